"""The simulation of a fleet obeys what is known of queues, so that it can be wrong."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from bench.simulated_fleet import Fleet, Load, Process, Request, Simulation, Station, UnitCosts, simulate

COSTS = UnitCosts()
QUICK = Load(sessions=10_000, turns_per_s=20, model_s=2.0)
SMALL = Fleet(workers=4, slots=64, database_cores=2)


def waited_s(servers: int, *, load: float, count: int) -> float:
    """Return the mean wait at a station with exponential arrivals and services of one second."""
    simulation, chance = Simulation(), random.Random(3)
    station = Station(simulation, "station", servers)

    def customer() -> Process:
        yield Request(station, chance.expovariate(1.0))

    def arrivals() -> Process:
        for _ in range(count):
            yield chance.expovariate(load * servers)
            simulation.start(customer())

    simulation.start(arrivals())
    simulation.run()
    return station.waited_s / station.served


def erlang_wait_s(servers: int, load: float) -> float:
    """Return the same by Erlang's formula."""
    offered = load * servers
    tail = offered**servers / math.factorial(servers) / (1 - load)
    return tail / (sum(offered**n / math.factorial(n) for n in range(servers)) + tail) / (servers * (1 - load))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.9)])
def test_wait_is_as_erlang_says(servers: int, load: float) -> None:
    """The mean wait at a station is that of M/M/1 and M/M/c, within a tenth."""
    assert waited_s(servers, load=load, count=200_000) == pytest.approx(erlang_wait_s(servers, load), rel=0.1)


def test_fleet_obeys_littles_law() -> None:
    """As many are in the system as come in a second times how long each stays; nobody is lost, and nobody answered twice."""
    outcome = simulate(SMALL, QUICK, COSTS, seconds=200)
    assert outcome.arrived == outcome.answered == len(outcome.times_s) == len(outcome.waits_s) + len(outcome.queued_s)
    in_system = outcome.in_system_s / outcome.took_s
    assert in_system == pytest.approx(
        outcome.arrived / outcome.took_s * sum(outcome.times_s) / outcome.arrived, rel=1e-6
    )


def test_busy_share_is_rate_times_cost() -> None:
    """Each processor is busy for the turns of a second times what a turn takes of it."""
    outcome = simulate(SMALL, QUICK, COSTS, seconds=300)
    rate = outcome.arrived / 300
    assert outcome.utilisation["database CPU"] == pytest.approx(rate * COSTS.server_cpu_s / 2, rel=0.07)
    assert outcome.utilisation["worker CPU"] == pytest.approx(rate * COSTS.worker_cpu_s / 4, rel=0.07)


def test_looks_of_all_workers_are_counted() -> None:
    """A message has every worker look; while looks are short each counts, and what comes during a long one shares the next."""
    looking = replace(COSTS, look_cpu_s=0.0005, server_cpu_s=1e-9)
    outcome = simulate(SMALL, QUICK, looking, seconds=200)
    assert outcome.utilisation["database CPU"] == pytest.approx(outcome.arrived / 200 * 4 * 0.0005 / 2, rel=0.05)
    busy = simulate(SMALL, QUICK, replace(looking, look_cpu_s=0.4), seconds=200)
    assert busy.utilisation["database CPU"] == pytest.approx(1.0, abs=0.02)
    assert busy.arrived == busy.answered


def test_run_is_the_same_by_its_seed() -> None:
    """A seed gives the same run, another one another."""
    first, again, other = (simulate(SMALL, QUICK, COSTS, seconds=30, seed=seed) for seed in (1, 1, 2))
    assert first.times_s == again.times_s != other.times_s


def test_session_has_one_turn_at_a_time() -> None:
    """Messages of one session wait for one another, however many workers are idle."""
    load = Load(sessions=1, turns_per_s=0.001, hot_turns_per_s=2, model_s=1, model_spread=0, steps=4)
    outcome = simulate(Fleet(workers=50), load, COSTS, seconds=50)
    assert outcome.took_s > outcome.answered * 4 * 0.99  # 4 s of models each, one after the other
    assert max(outcome.queued_s) > 100
    assert len(outcome.waits_s) < 5


def test_crash_is_taken_over_after_the_lease() -> None:
    """The turns of a worker that dies go on elsewhere when its lease has ended, and none is lost."""
    calm = simulate(SMALL, QUICK, COSTS, seconds=100)
    crashed = simulate(replace(SMALL, crash_at_s=50), QUICK, COSTS, seconds=100)
    assert calm.taken_over == 0 < crashed.taken_over <= 64
    assert crashed.arrived == crashed.answered
    assert max(crashed.times_s) > 10


def test_failover_lets_everybody_wait() -> None:
    """While a database is away its sessions wait so long, and then all are answered."""
    outcome = simulate(replace(SMALL, failover_at_s=50, failover_s=20), QUICK, COSTS, seconds=100)
    assert outcome.arrived == outcome.answered
    assert 15 < outcome.wait_s(0.99) < 40


def test_too_little_of_something_is_named() -> None:
    """What there is too little of is the busiest and is named as the bottleneck, and waits show it."""
    heavy = replace(QUICK, turns_per_s=110)
    outcome = simulate(Fleet(workers=60, slots=64, database_cores=1), heavy, COSTS, seconds=60)
    assert outcome.bottleneck == "database CPU"
    assert outcome.wait_s(0.5) > 1
    few = simulate(Fleet(workers=2, slots=8, database_cores=16), replace(QUICK, turns_per_s=10), COSTS, seconds=60)
    assert few.bottleneck == "turns at once"


def test_sessions_are_asked_by_zipf() -> None:
    """The share of the most active sessions is that of the law of Zipf and Mandelbrot."""
    from bench.simulated_fleet import FleetRun

    run = FleetRun(SMALL, Load(sessions=1_000_000, zipf=0.8), COSTS, seed=5)
    asked = [run._session() for _ in range(20_000)]
    assert min(asked) >= 0
    assert max(asked) < 1_000_000
    least = 1_001**0.2
    expected = (11_001**0.2 - least) / (1_001_001**0.2 - least)
    assert sum(one < 10_000 for one in asked) / len(asked) == pytest.approx(expected, abs=0.03)
