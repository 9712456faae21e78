"""Whatever arrives, in whatever order and policy: each message ends in exactly one place, and each policy keeps its order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kipu.session.busy import MODES, ON_FULL, BusyPolicy
from kipu.session.mailbox import (
    Arrival,
    Author,
    Settlement,
    address_of,
    joining,
    next_turn,
    on_arrival,
)

MS = 1_000
AUTHORS = [Author("p", "ada"), Author("p", "bo"), Author("q", "ada")]

policies = st.builds(
    BusyPolicy,
    mode=st.sampled_from(MODES),
    debounce_ms=st.integers(0, 50),
    max_wait_ms=st.integers(0, 120),
    cap=st.none() | st.integers(1, 4),
    on_full=st.sampled_from(ON_FULL),
    ttl_ms=st.none() | st.integers(1, 200),
)
arrive = st.tuples(st.just("arrive"), policies, st.sampled_from(AUTHORS), st.sampled_from(["1", "2"]))
others = st.sampled_from(["start", "boundary", "finish", "cancel"]).map(lambda name: (name,))
waits = st.tuples(st.just("wait"), st.integers(0, 100))
steps = st.lists(st.one_of(arrive, others, waits), max_size=40)


class Mailbox:
    """A session as the runtime would drive it, with nothing but the pure decisions."""

    def __init__(self) -> None:
        self.now_us = 1_000_000
        self.seq = 0
        self.all: dict[int, Arrival] = {}
        self.waiting: list[Arrival] = []
        self.turns: list[tuple[str, tuple[int, ...]]] = []
        self.steered: list[int] = []
        self.settled: dict[int, str] = {}
        self.open_turn: str | None = None
        self.started_by = AUTHORS[0]

    def arrive(self, policy: BusyPolicy, author: Author, chat: str) -> None:
        arriving = Arrival(0, author, address_of("chat", {"chat_id": chat}), policy, self.now_us)
        reception = on_arrival(
            arriving, waiting=self.waiting, open_turn=self.open_turn, parked=False, now_us=self.now_us
        )
        if reception.refusal is not None:
            return
        self.settle(reception.settle)
        assert (reception.stop is not None) == (self.open_turn is not None and policy.mode in ("interrupt", "rollback"))
        if reception.stop is not None:
            self.open_turn = None  # the turn ends, and then its messages are gone with it
        self.seq += 1
        stored = replace(arriving, seq=self.seq, due_us=reception.due_us)
        self.all[self.seq] = stored
        self.waiting.append(stored)
        live = [entry for entry in self.waiting if not entry.is_expired(self.now_us)]
        assert policy.cap is None or len(live) <= policy.cap

    def settle(self, settlements: tuple[Settlement, ...]) -> None:
        for entry in settlements:
            for seq in entry.seqs:
                assert seq not in self.settled
                self.settled[seq] = entry.reason
            self.take(entry.seqs)

    def take(self, seqs: tuple[int, ...]) -> list[Arrival]:
        taken = [entry for entry in self.waiting if entry.seq in seqs]
        assert [entry.seq for entry in taken] == list(seqs)
        self.waiting = [entry for entry in self.waiting if entry.seq not in seqs]
        return taken

    def start(self) -> None:
        if self.open_turn is not None:
            return
        plan = next_turn(self.waiting, now_us=self.now_us)
        self.settle(plan.settle)
        if not plan.consumes:
            assert not self.waiting or (plan.due_us or 0) > self.now_us
            return
        taken = self.take(plan.consumes)
        if plan.mode == "collect":
            assert len({entry.group for entry in taken}) == 1
            assert all(entry.policy.mode == "collect" for entry in taken)
        else:
            assert len(taken) == 1
        self.started_by = taken[0].author
        self.open_turn = f"turn {len(self.turns)}"
        self.turns.append((plan.mode, plan.consumes))

    def boundary(self) -> None:
        if self.open_turn is None:
            return
        found = joining(self.waiting, started_by=self.started_by, now_us=self.now_us)
        self.settle(found.settle)
        taken = self.take(found.consumes)
        assert {entry.author for entry in taken} <= {self.started_by}
        assert {entry.policy.mode for entry in taken} <= {"steer"}
        self.steered.extend(found.consumes)

    def finish(self) -> None:
        self.open_turn = None

    def cancel(self) -> None:
        if self.waiting:
            self.settle((Settlement((self.waiting[0].seq,), "cancelled"),))

    def wait(self, milliseconds: int) -> None:
        self.now_us += milliseconds * MS


@given(steps)
@settings(max_examples=300)
def test_every_arrival_ends_in_exactly_one_place(script: list[tuple[Any, ...]]) -> None:
    """Each message is consumed once, settled once or waiting; each policy is first in, first out; nothing waits for ever (C12)."""
    mailbox = Mailbox()
    for name, *arguments in script:
        getattr(mailbox, name)(*arguments)
    consumed = [seq for _, seqs in mailbox.turns for seq in seqs] + mailbox.steered
    waiting = [entry.seq for entry in mailbox.waiting]
    assert sorted([*consumed, *mailbox.settled, *waiting]) == sorted(mailbox.all)
    for mode in MODES:
        own = [seqs[0] for turn_mode, seqs in mailbox.turns if turn_mode == mode]
        assert own == sorted(own)
    assert mailbox.steered == sorted(mailbox.steered)
    _expect_drained(mailbox)


def _expect_drained(mailbox: Mailbox) -> None:
    """Once nothing arrives any more, every waiting message gets its turn within the longest quiet time."""
    mailbox.finish()
    left = len(mailbox.waiting)
    for _ in range(2 * left + 1):
        plan = next_turn(mailbox.waiting, now_us=mailbox.now_us)
        if plan.due_us is not None:
            assert plan.due_us - mailbox.now_us <= 120 * MS
            mailbox.now_us = plan.due_us
        mailbox.start()
        mailbox.finish()
    assert mailbox.waiting == []
