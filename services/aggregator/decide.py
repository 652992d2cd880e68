"""The aggregator as a service: it decides nothing, and projects its state into the read model."""

from typing import Never

from aggregator import Hears, projection
from aggregator.figures.samples import samples
from aggregator.state import State, evolve
from nodepool.contract.buckets import BUCKETS
from nodepool.service import Projection, Service

PROJECTION: Projection[State, Hears] = Projection(
    buckets=BUCKETS,
    touched=lambda state, message: projection.list_touched(state.read_model, message),
    get=lambda state, bucket, key: projection.get(state.read_model, bucket, key),
    keys=lambda state, bucket: projection.keys(state.read_model, bucket),
    render=projection.render,
    render_deprecated=projection.render_deprecated,
    rendering=projection.RENDERING,
)
SERVICE: Service[State, Hears, Never] = Service(
    name="aggregator",
    hears=Hears,
    initial=State(),
    evolve=evolve,
    projection=PROJECTION,
    samples=lambda state: samples(state.read_model, state.figures),
)
