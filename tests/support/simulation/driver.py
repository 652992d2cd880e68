"""A seeded simulation: all services under crashes, delays, duplicates, noise and broken machines.

Each step is one small thing that a replica, a customer or a machine does: read a few entries,
propose outputs, store them, learn what became of them, crash between any two of these. After each
step an auditor reads what is new in the log. In the end the faults stop, and what is left has to
add up, which `final_checks` checks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from random import Random

from nodepool.contract.log import LogId
from nodepool.engine.world import Log, World
from nodepool.service import AnyService
from support.audit import counts
from support.audit.auditor import Auditor
from support.services import services
from support.simulation.advice import ABOUT_NODES, check_advice
from support.simulation.attacker import Attacker
from support.simulation.autoscaling import Autoscaling
from support.simulation.bounded import bounded
from support.simulation.bugs import Bugs
from support.simulation.customers import Customers
from support.simulation.final_checks import FinalChecks
from support.simulation.health import Health
from support.simulation.machines import Machines
from support.simulation.noise import noise
from support.simulation.profile import Profile, profile_of
from support.simulation.quiet import run_until_quiet
from support.simulation.reading import sharing
from support.simulation.reclaims import Reclaims
from support.simulation.replicas import Replicas
from support.simulation.sender import Sender
from support.simulation.slurm import Slurm

JUMPS_S = (0.1, 1, 10, 45, 90, 121, 200, 600, 1900)
"""How far the clock moves at once, in seconds."""
ADVICE_MAX = 6
"""How much of what `explain` advises in the end is tried."""
UNSETTLED = (*["run_pod"] * 8, *("scale", "fail") * 3, "reserve", "allow", "preempt", "reclaim")
"""What happens before advice is tried a second time."""
UNSETTLING = 60
"""How much of that."""
LOGGED_STEPS = 1_500
"""How many steps a simulation takes for tests that only read its log."""


@dataclass
class Simulation:
    """One simulation; with the same seed, services and log it always runs the same.

    seed: what the order of all steps is drawn from.
    services: the services that run, two replicas each.
    profile: what is likely in it; None for that of the seed.
    log: the log that all replicas share.
    """

    seed: int
    services: Sequence[AnyService] = field(default_factory=services)
    profile: Profile | None = None
    log: Log = field(default_factory=lambda: Log(id=LogId("simulation")))

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        profile = self.profile or profile_of(self.seed)
        # Without it the others take the same steps as before there was one.
        self.services = [
            service
            for service in self.services
            if profile.autoscaled or service.name != "autoscaler"
        ]
        self.bugs = Bugs(self.random, profile.bugs)
        services = map(self.bugs.in_service, self.services)
        self.world = World(sharing(services), 2, self.log)
        self.auditor = Auditor()
        self.replicas = Replicas(self.random, self.world, profile.reads)
        self.sender = Sender(self.random, self.log)
        facts = self.auditor.facts
        self.machines = Machines(self.random, facts, self.sender, profile)
        self.customers = Customers(self.random, facts, self.sender, self.machines, profile)
        self.autoscaling = Autoscaling(self.random, facts, self.sender)
        self.reclaims = Reclaims(self.random, facts, self.sender)
        self.health = Health(self.random, facts, self.sender)
        self.attacker = Attacker(
            Random(f"{self.seed} attacks"),
            self.world,
            self.auditor,
            self.sender,
            self.customers.some_path,
        )
        self._attacks, self._hurries = profile.attacks, profile.hurries
        self._late = profile.late or tuple(service.name for service in self.services)
        self._steps, self._outputs_max = profile.steps, profile.outputs_max
        actions = self._actions()
        self._acts = list(actions.values())
        self._weights = [profile.weight(name) for name in actions]
        self._audited = 0

    def run(self) -> None:
        """Runs the simulation; raises `Violation` where anything is wrong, then or at the end."""
        self.take_steps()
        with bounded(self._outputs_max):
            self._check()
            check_advice(self.world, Random(f"{self.seed} advice"), ADVICE_MAX)
        self.unsettle()
        with bounded(self._outputs_max):
            unsettled = Random(f"{self.seed} unsettled advice")
            check_advice(self.world, unsettled, ADVICE_MAX, ABOUT_NODES)

    def take_steps(self) -> None:
        """Take all steps, let the faults stop, and run until all is quiet."""
        with bounded(self._outputs_max):
            self._start()
            for _ in range(self._steps):
                self.attacker.maybe_act(self._attacks)
                if self._hurries and self.random.random() < self._hurries:
                    self.replicas.hurry(self._late)
                self._step()
                self._audit()
            self._stop_faults()

    def unsettle(self) -> None:
        """Lets much happen at once: else no Node leaves, is ill or is at work at the end."""
        actions = self._actions()
        with bounded(self._outputs_max):
            for _ in range(UNSETTLING):
                actions[self.random.choice(UNSETTLED)]()
                self.world.run_until_idle()
                self._audit()
            self.world.pass_time(timedelta(seconds=self.random.choice((0, 5, 60, 300))))
            self._audit()

    def _check(self) -> None:
        self.auditor.check_duties()
        FinalChecks(self.world, self.auditor.facts, self.auditor.history).check(self.sender.sent)

    def tail(self, most: int = 12) -> list[str]:
        """The last entries that the auditor read, one line each."""
        return [
            f"{entry.position} {entry.time:%H:%M:%S} {entry.subject} {entry.content[:400]!r}"
            for entry in self.log.entries[: self.auditor.position][-most:]
        ]

    def _start(self) -> None:
        self.customers.register_clusters()
        self.customers.set_first_limits()
        self.machines.add_first()
        self.customers.apply_first()

    def _step(self) -> None:
        if self.sender.delayed and self.random.random() < 0.05:
            self.sender.delayed.popleft()()
            return
        chance = self.random.random()
        if chance < 0.040:
            self._act_from_outside()
        elif chance < 0.049:
            self._pass_time()
        elif chance < 0.053:
            self._make_noise()
        elif chance < 0.056:
            self.replicas.pause()
        elif chance < 0.0568:
            self.replicas.lag()
        else:
            self.replicas.step()

    def _act_from_outside(self) -> None:
        (action,) = self.random.choices(self._acts, self._weights)
        action()

    def _actions(self) -> Mapping[str, Callable[[], None]]:
        """What may happen from outside, by the name that profiles have for it."""
        customers, machines, batches = self.customers, self.machines, self.customers.batches
        slurm = Slurm(self.random, self.auditor.facts, self.sender)
        return {
            "apply": customers.apply,
            "scale": customers.scale,
            "scale_down_and_up": customers.scale_down_and_up,
            "delete": customers.delete,
            "change_limit": customers.change_limit,
            "delete_limit": customers.delete_limit,
            "batch": batches.send,
            "line_up": batches.line_up,
            "stay_wrong": batches.stay_wrong,
            "down_and_up": batches.down_and_up,
            "shrink_and_preempt": batches.shrink_and_preempt,
            "interfere": batches.interfere,
            "delete_in_some_phase": batches.delete_in_some_phase,
            "relabel": customers.relabel,
            "retaint": customers.retaint,
            "add": machines.add,
            "break_one": machines.break_one,
            "repair_one": machines.repair_one,
            "run_pod": machines.run_pod,
            "stop_pod": machines.stop_pod,
            "preempt": customers.preempt,
            "resend": self.sender.resend,
            "send_malformed": self._send_malformed,
            "bug": lambda: self.bugs.change(self.auditor.facts),
            "autoscale": self.autoscaling.autoscale,
            "request_pod": self.autoscaling.request_pod,
            "withdraw_pod": self.autoscaling.withdraw_pod,
            "create_pod": slurm.create_pod,
            "delete_pod": slurm.delete_pod,
            "lock": slurm.lock,
            "unlock": slurm.unlock,
            "reclaim": self.reclaims.reclaim,
            "give_back": self.reclaims.give_back,
            "acknowledge": self.reclaims.acknowledge,
            "ask": self.health.ask,
            "fail": self.health.fail,
            "reserve": self.health.reserve,
            "allow": self.health.allow,
            "want_racks": machines.racks.want,
            "add_racks": machines.racks.add,
            "break_rack": machines.racks.break_some,
            "repair_rack": machines.racks.repair_some,
            "change_rack_limit": machines.racks.change_limit,
            "fall_silent": machines.fall_silent,
            "answer_again": machines.answer_again,
        }

    def _send_malformed(self) -> None:
        self.sender.send_malformed(self.customers.some_path())

    def _pass_time(self) -> None:
        """Moves the clock to the next moment at which something is due, or by one of `JUMPS_S`."""
        due = [actor.replica.due() for actor in self.replicas.actors]
        ahead = [moment for moment in due if moment is not None and moment > self.log.clock]
        if ahead and self.random.random() < 0.5:
            self.log.clock = min(ahead)
        else:
            self.log.clock += timedelta(seconds=self.random.choice(JUMPS_S))
        counts.check_objects(self.world)

    def _make_noise(self) -> None:
        subject, content = noise(self.random, self.services, self.customers.some_path)
        self.auditor.noise.add(self.log.append(subject, content))

    def _audit(self) -> None:
        for entry in self.log.entries[self._audited :]:
            self.auditor.read(entry)
        self._audited = len(self.log.entries)

    def _stop_faults(self) -> None:
        """Lets every replica catch up, mends all, and lets as much time pass as anything takes."""
        self.replicas.catch_up()
        self._audit()
        self.bugs.keys.clear()
        run_until_quiet(self.world, self._audit)


@cache
def simulated_log(seed: int) -> Log:
    """Return the log of a short simulation to tests that only read it.

    A process runs each simulation once, audits each step, and skips the checks at the end.
    """
    simulation = Simulation(seed, profile=replace(profile_of(seed), steps=LOGGED_STEPS))
    simulation.take_steps()
    simulation.unsettle()
    return simulation.log
