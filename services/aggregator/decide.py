"""The aggregator as a service: it decides nothing, and projects its state into the read model."""

from typing import Never

from aggregator import Hears
from aggregator.projection import PROJECTION
from aggregator.samples import samples
from aggregator.state import State, evolve
from nodepool.service import Service

SERVICE: Service[State, Hears, Never] = Service(
    name="aggregator",
    hears=Hears,
    initial=State(),
    evolve=evolve,
    projection=PROJECTION,
    samples=samples,
)
