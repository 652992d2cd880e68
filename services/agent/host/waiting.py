"""Caches the Pods of the cluster that wait for a Node, and finds the missing reports."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from agent.actions import Place, ReportWaiting
from agent.host.declared import PODS
from agent.host.model import BusModel
from agent.host.work import REPORT_S, WAITING, Work
from agent.pods.waiting import Demand, demand_of
from agent.pools.openings import missing_reports, opening
from nodepool.host.logs import Logger
from nodepool.kube.api import Api
from nodepool.kube.informer import Informer

_UNPLACED: Final = "spec.nodeName=,status.phase=Pending"
"""Selects the Pods that are bound to no Node; the API server filters them."""


class WaitingPods:
    """Counts the waiting Pods by what they require; keeps nothing else of a Pod.

    cache: the cache of the waiting Pods.
    """

    def __init__(
        self,
        api: Api,
        model: BusModel,
        pool_uid: Callable[[str], str],
        work: Work,
        log: Logger,
    ) -> None:
        """Create the cache; `pool_uid` returns the uid of the object of a NodePool, or empty."""
        self._model, self._pool_uid, self._work = model, pool_uid, work
        self._demands: Counter[Demand] = Counter()
        self.cache: Informer[Demand] = Informer(
            api,
            PODS,
            demand_of,
            self._changed,
            log=log,
            selector=_UNPLACED,
            listed=lambda: work.wake(WAITING),
        )

    def missing(self, place: Place) -> Sequence[ReportWaiting]:
        """Return the missing reports about the autoscaled NodePools."""
        model = self._model
        self._work.reports.begin(WAITING, self._work.clock() + REPORT_S)
        openings = (
            opening(
                model.pools[name],
                self._pool_uid(name),
                (model.nodes[node] for node in model.members(name)),
                place,
            )
            for name in sorted(model.pools)
        )
        found = [each for each in openings if each is not None]
        return tuple(missing_reports(self._demands, found, model.waiting, place))

    def _changed(self, _key: str, old: Demand | None, new: Demand | None) -> None:
        if old is not None:
            self._demands[old] -= 1
            if not self._demands[old]:
                del self._demands[old]
        if new is not None:
            self._demands[new] += 1
        if old != new:
            self._work.wake(WAITING)
