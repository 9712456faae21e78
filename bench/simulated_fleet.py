"""A fleet simulated by events: workers, database nodes, sessions, models; seeded, so that a run is the same every time.

Nothing here is measured: service times come from bench/kipu_scale.py. A process is a generator that yields what it waits for: a number
of seconds, or a turn at a `Station`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Request:
    """So long at one of a station's servers; whoever finds all of them busy waits in line."""

    station: Station
    service_s: float


@dataclass(frozen=True, slots=True)
class Take:
    """One of a station's servers, kept until it is given back."""

    station: Station


Process: TypeAlias = Generator["float | Request | Take", None, None]


class Station:
    """Some servers with one line before them, first come first served; it may be shut for a while."""

    def __init__(self, simulation: Simulation, name: str, servers: int) -> None:
        self.name, self.servers = name, servers
        self.free = servers
        self.shut_until_s = 0.0
        self.busy_s = self.waited_s = 0.0
        self.served = 0
        self._line: deque[tuple[Process, float | None, float]] = deque()
        self._simulation = simulation

    @property
    def in_line(self) -> int:
        """Return how many wait."""
        return len(self._line)

    def ask(self, process: Process, service_s: float | None) -> None:
        """Serve a process, or let it wait; without a time it keeps its server until `give_back`."""
        self._line.append((process, service_s, self._simulation.now_s))
        self._serve()

    def give_back(self) -> None:
        """Take a server back that was kept."""
        self.free += 1
        self._serve()

    def shut(self, for_s: float) -> None:
        """Serve nobody for a while; what is under way goes on."""
        self.shut_until_s = self._simulation.now_s + for_s
        self._simulation.at(self.shut_until_s, self._serve)

    def _serve(self) -> None:
        while self._line and self.free and self._simulation.now_s >= self.shut_until_s:
            process, service_s, came_s = self._line.popleft()
            self.free -= 1
            self.served += 1
            self.waited_s += self._simulation.now_s - came_s
            if service_s is None:
                self._simulation.resume(process)
            else:
                self.busy_s += service_s
                self._simulation.at(self._simulation.now_s + service_s, self._finish, process)

    def _finish(self, process: Process) -> None:
        self.free += 1
        self._simulation.resume(process)
        self._serve()


class Simulation:
    """A clock and what is to happen, in order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = itertools.count()

    def at(self, when_s: float, call: Callable[..., None], *values: object) -> None:
        """Call something then; of two at one moment the one that was said first."""
        heapq.heappush(self._due, (when_s, next(self._count), call, values))

    def start(self, process: Process, *, after_s: float = 0.0) -> None:
        """Let a process begin."""
        self.at(self.now_s + after_s, self.resume, process)

    def resume(self, process: Process) -> None:
        """Let a process go on to what it waits for next."""
        for wanted in process:
            if isinstance(wanted, Request):
                wanted.station.ask(process, wanted.service_s)
            elif isinstance(wanted, Take):
                wanted.station.ask(process, None)
            else:
                self.at(self.now_s + wanted, self.resume, process)
            return

    def run(self, until_s: float = math.inf) -> None:
        """Let everything happen that is due until then."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, call, values = heapq.heappop(self._due)
            call(*values)


# ---- the fleet ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What one thing takes, as measured."""

    worker_cpu_s: float = 0.036  # of a turn
    server_cpu_s: float = 0.0153  # of a turn
    transactions: int = 67  # of a turn
    wal_bytes: float = 89_000  # of a turn
    commit_s: float = 0.001  # until the log is on the medium
    look_cpu_s: float = (
        0.0  # of the server, when a worker looks what came; a message has every worker look, unless one is at it
    )
    look_changed_cpu_s: float = 0.0  # of it for each session that changed within a second
    look_worker_times: float = 0.0  # what the worker needs for its look, times what the server needs


@dataclass(frozen=True, slots=True)
class Load:
    """Who asks for how much."""

    sessions: int = 1_000_000
    turns_per_s: float = 100.0
    steps: int = 4  # calls of the model in a turn
    model_s: float = 6.0  # median of a call
    model_spread: float = 0.7  # sigma of its logarithm; 0 makes every call the same
    zipf: float = 0.8
    plateau: int = 1_000  # the most active sessions are asked alike: a person waits for the answer
    day_s: float = 86_400.0
    swing: float = 0.0  # how far the peak is above the mean: 1 is twice
    hot_turns_per_s: float = 0.0  # of one session, beside the others
    backlog: int = 0  # messages that wait at the beginning instead of coming one by one
    a_chat: int = 1  # of them in each session


@dataclass(frozen=True, slots=True)
class Fleet:
    """What there is."""

    workers: int = 40
    slots: int = 64  # turns at once of a worker
    worker_cores: int = 1
    databases: int = 1
    database_cores: int = 16
    one_machine: int = 0  # so many cores that workers and database share, as in the run it is compared with
    lease_s: float = 15.0
    crash_at_s: float = math.inf
    failover_at_s: float = math.inf
    failover_s: float = 30.0


@dataclass
class Outcome:
    """What came of it."""

    waits_s: list[float] = field(default_factory=list)  # of messages whose session was idle
    queued_s: list[float] = field(default_factory=list)  # of messages that met a turn of their session
    times_s: list[float] = field(default_factory=list)
    arrived: int = 0
    answered: int = 0
    taken_over: int = 0
    in_system_s: float = 0.0  # integral over time of how many are in the system
    took_s: float = 0.0
    utilisation: dict[str, float] = field(default_factory=dict)
    wal_mb_per_s: float = 0.0

    def wait_s(self, share: float) -> float:
        """Return the wait before a turn that so many stay below."""
        ordered = sorted(self.waits_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0

    @property
    def bottleneck(self) -> str:
        """Return what is busiest."""
        return max(self.utilisation, key=lambda name: self.utilisation[name])


class FleetRun:
    """One run of a fleet under a load."""

    def __init__(self, fleet: Fleet, load: Load, costs: UnitCosts, *, seed: int) -> None:
        self.fleet, self.load, self.costs = fleet, load, costs
        self.chance = random.Random(seed)
        self.simulation = Simulation()
        self.outcome = Outcome()
        shared = Station(self.simulation, "cores", fleet.one_machine) if fleet.one_machine else None
        new = Station
        self.slots = [new(self.simulation, "turns at once", fleet.slots) for _ in range(fleet.workers)]
        self.cores = [shared or new(self.simulation, "worker CPU", fleet.worker_cores) for _ in range(fleet.workers)]
        self.databases = [
            shared or new(self.simulation, "database CPU", fleet.database_cores) for _ in range(fleet.databases)
        ]
        self._waiting: dict[int, deque[tuple[float, bool]]] = {}
        self._used, self._used_s, self._used_at_s = 0, 0.0, 0.0
        self._looks: dict[int, bool] = {}  # workers that are looking, and whether they have to look again
        self._commits: list[deque[float]] = [deque() for _ in self.databases]
        self._dead: set[int] = set()
        self._in_system, self._changed_s = 0, 0.0
        self._line: deque[int] = deque()  # sessions with work that no worker has

    def run(self, *, seconds: float) -> Outcome:
        """Let messages come for so long, and everything that came be answered."""
        for number in range(self.load.backlog):
            self._arrive(number // self.load.a_chat)
        if not self.load.backlog:
            self.simulation.start(self._arrivals(seconds))
            if self.load.hot_turns_per_s:
                self.simulation.start(self._hot(seconds))
        if self.fleet.crash_at_s < math.inf:
            self.simulation.at(self.fleet.crash_at_s, self._dead.add, 0)
        if self.fleet.failover_at_s < math.inf:
            self.simulation.at(self.fleet.failover_at_s, self.databases[0].shut, self.fleet.failover_s)
        if not self.load.backlog:
            self.simulation.run(seconds)
            self._look(seconds)
        self.simulation.run()
        self._count(0)
        self.outcome.took_s = self.simulation.now_s
        if self.load.backlog:
            self._look(self.outcome.took_s)
        return self.outcome

    def _look(self, span_s: float) -> None:
        """Note how busy everything was while messages came."""
        self._use(0)
        found: dict[str, list[Station]] = {}
        for station in {id(one): one for one in (*self.cores, *self.databases)}.values():
            found.setdefault(station.name, []).append(station)
        self.outcome.utilisation = {
            name: sum(one.busy_s for one in stations) / sum(one.servers for one in stations) / span_s
            for name, stations in found.items()
        } | {"turns at once": self._used_s / span_s / self.fleet.workers / self.fleet.slots}
        self.outcome.wal_mb_per_s = self.outcome.answered * self.costs.wal_bytes / span_s / 1e6

    # ---- messages ------------------------------------------------------------------------------------------------------

    def _arrivals(self, seconds: float) -> Process:
        top = self.load.turns_per_s * (1 + self.load.swing)
        while True:
            yield self.chance.expovariate(top)
            now_s = self.simulation.now_s
            if now_s >= seconds:
                return
            rate = self.load.turns_per_s * (1 + self.load.swing * math.sin(2 * math.pi * now_s / self.load.day_s))
            if self.chance.random() < rate / top:
                self._arrive(self._session())

    def _hot(self, seconds: float) -> Process:
        while self.simulation.now_s < seconds:
            self._arrive(-1)
            yield self.chance.expovariate(self.load.hot_turns_per_s)

    def _session(self) -> int:
        """Return a session, some of them far more often than others (Zipf-Mandelbrot, by the inverse of its continuous form)."""
        power, first = 1 - self.load.zipf, 1 + min(self.load.plateau, self.load.sessions)
        least, most = first**power, (first + self.load.sessions - 1) ** power
        return int((self.chance.random() * (most - least) + least) ** (1 / power)) - first

    def _arrive(self, session: int) -> None:
        self.outcome.arrived += 1
        self._count(1)
        if self.costs.look_cpu_s:
            for worker in range(hash(session) % len(self.databases), self.fleet.workers, len(self.databases)):
                if self._looks.get(worker) is None:
                    self._looks[worker] = False
                    self.simulation.start(self._look_what_came(worker))
                else:
                    self._looks[worker] = True
        line = self._waiting.setdefault(session, deque())
        line.append((self.simulation.now_s, not line))
        if len(line) == 1:
            self._line.append(session)
            self._dispatch()

    def _look_what_came(self, worker: int) -> Process:
        """Look, and once more where something came meanwhile: what comes during a look shares the next one."""
        which = worker % len(self.databases)
        while True:
            self._looks[worker] = False
            commits, now_s = self._commits[which], self.simulation.now_s
            while commits and commits[0] < now_s - 1:
                commits.popleft()
            changed = min(len(commits), self._used / len(self.databases))
            cost_s = self.costs.look_cpu_s + self.costs.look_changed_cpu_s * changed
            yield Request(self.databases[which], cost_s)
            if self.costs.look_worker_times:
                yield Request(self.cores[worker], cost_s * self.costs.look_worker_times)
            if not self._looks[worker]:
                del self._looks[worker]
                return

    def _count(self, change: int) -> None:
        now_s = self.simulation.now_s
        self.outcome.in_system_s += self._in_system * (now_s - self._changed_s)
        self._in_system, self._changed_s = self._in_system + change, now_s

    # ---- turns ---------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give the sessions that wait to the workers that are least busy."""
        while self._line:
            worker = self._free_worker()
            if worker is None:
                return
            self.slots[worker].free -= 1
            self._use(1)
            self.simulation.start(self._turn(self._line.popleft(), worker, step=0))

    def _free_worker(self) -> int | None:
        """Return the less busy of two that chance names, or any that is free: whoever is idle hears of work first."""
        for _ in range(2):
            one, two = (self.chance.randrange(len(self.slots)) for _ in range(2))
            worker = max(one, two, key=lambda number: 0 if number in self._dead else self.slots[number].free)
            if self.slots[worker].free and worker not in self._dead:
                return worker
        return next((n for n, slot in enumerate(self.slots) if slot.free and n not in self._dead), None)

    def _use(self, change: int) -> None:
        now_s = self.simulation.now_s
        self._used_s += self._used * (now_s - self._used_at_s)
        self._used, self._used_at_s = self._used + change, now_s

    def _turn(self, session: int, worker: int, *, step: int) -> Process:
        came_s, was_idle = self._waiting[session][0]
        steps = self.load.steps
        yield from self._asked(session, share=1 / (steps + 1))  # the claim and what the turn begins with
        if step == 0:
            waits = self.outcome.waits_s if was_idle else self.outcome.queued_s
            waits.append(self.simulation.now_s - came_s)
        for number in range(step, steps):
            yield Request(self.cores[worker], self._about(self.costs.worker_cpu_s / steps))
            yield self._model_s()
            yield from self._asked(session, share=1 / (steps + 1))
            if worker in self._dead:  # its lease has to end, then somebody goes on where the log ends
                self.outcome.taken_over += 1
                yield self.fleet.lease_s * (2 / 3 + self.chance.random() / 3)
                self._use(-1)
                yield from self._taken_over(session, step=number)
                return
        self._end(session, worker, came_s=came_s)

    def _taken_over(self, session: int, *, step: int) -> Process:
        while True:
            free = [number for number, slot in enumerate(self.slots) if slot.free and number not in self._dead]
            if free:
                self.slots[free[0]].free -= 1
                self._use(1)
                yield from self._turn(session, free[0], step=max(step, 1))
                return
            yield 0.5

    def _end(self, session: int, worker: int, *, came_s: float) -> None:
        now_s = self.simulation.now_s
        self.outcome.answered += 1
        self.outcome.times_s.append(now_s - came_s)
        self._count(-1)
        self.slots[worker].free += 1
        self._use(-1)
        line = self._waiting[session]
        line.popleft()
        if line:
            self._line.append(session)
        else:
            del self._waiting[session]
        self._dispatch()

    def _asked(self, session: int, *, share: float) -> Process:
        """Ask the session's database for a share of what a turn asks: its processor, and the medium once for each transaction."""
        which = hash(session) % len(self.databases)
        database = self.databases[which]
        if self.costs.look_cpu_s:
            self._commits[which].append(self.simulation.now_s)
        yield Request(database, self._about(self.costs.server_cpu_s * share))
        yield self.costs.commit_s * self.costs.transactions * share

    def _model_s(self) -> float:
        if not self.load.model_spread:
            return self.load.model_s
        return self.chance.lognormvariate(math.log(self.load.model_s), self.load.model_spread)

    def _about(self, mean_s: float) -> float:
        return self.chance.expovariate(1 / mean_s)


def simulate(fleet: Fleet, load: Load, costs: UnitCosts, *, seconds: float, seed: int = 1) -> Outcome:
    """Return what a fleet makes of a load that comes for so many seconds."""
    return FleetRun(fleet, load, costs, seed=seed).run(seconds=seconds)
