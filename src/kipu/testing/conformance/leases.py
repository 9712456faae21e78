"""Requirements 30 to 49: one holder at a time, and no append with an old token."""

from __future__ import annotations

import asyncio

from kipu.errors import LeaseLostError, LeaseRequiredError, SessionNotFoundError
from kipu.ports.store import LEASE_FREE_TYPES
from kipu.testing.conformance.expectation import expect, expect_equal, expect_error
from kipu.testing.conformance.requirement import requirement
from kipu.testing.conformance.subject import OWNER_A, OWNER_B, TURN_TYPE, Subject, unchanged


@requirement(30, "A39", "C3")
async def a_live_lease_has_one_holder(subject: Subject) -> None:
    """While one owner's lease is live another's claim returns None, and the head names the holder."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1", ttl_s=15)
    expect_equal((lease.session_id, lease.owner, lease.ttl_s), ("s1", OWNER_A, 15), what="the lease")
    expect_equal(lease.expires_at, subject.clock.iso(15), what="its expiry")
    expect_equal(await store.claim("s1", owner=OWNER_B, ttl_s=15), None, what="the second claim")
    head = await store.head("s1")
    expect(head, "the session must have a head")
    if head:
        seen = (head.lease_owner, head.lease_token, head.lease_until)
        expect_equal(seen, (OWNER_A, lease.token, lease.expires_at), what="the lease in the head")


@requirement(31, "C3")
async def every_claim_gets_the_next_token(subject: Subject) -> None:
    """Each successful claim's token is one more than the one before, kept after release; a refused claim uses none."""
    store = await subject.open()
    await subject.begin(store, "s1")
    tokens = []
    for _ in range(3):
        lease = await subject.claim(store, "s1")
        await store.claim("s1", owner=OWNER_B, ttl_s=1)
        await store.release(lease)
        tokens.append(lease.token)
    expect_equal(tokens, [tokens[0], tokens[0] + 1, tokens[0] + 2], what="the tokens")
    expect(tokens[0] > 0, "the first token must be positive")
    head = await store.head("s1")
    expect(head and head.lease_owner is None and head.lease_token == tokens[-1], f"the head after release: {head}")


@requirement(32, "C3")
async def claiming_again_makes_the_old_token_stale(subject: Subject) -> None:
    """The same owner's second claim succeeds with a new token, and its first token is refused."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1")
    new = await subject.claim(store, "s1")
    expect_equal(new.token, old.token + 1, what="the second token")
    async with unchanged(store, "s1"):
        with expect_error(LeaseLostError, what="an append with the first token"):
            await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=new.token)


@requirement(33, "C3", "A39")
async def a_stale_token_appends_nothing(subject: Subject) -> None:
    """After a takeover the old token is refused for every type, with log and head as they were."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(15.1)
    new = await subject.claim(store, "s1", owner=OWNER_B)
    for event_type in (TURN_TYPE, "user_message", "turn_finished"):
        async with unchanged(store, "s1"):
            with expect_error(LeaseLostError, what=f"{event_type} with an old token"):
                await store.append("s1", [subject.record(event_type=event_type)], token=old.token)
    outcome = await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=new.token)
    expect_equal(outcome.first_seq, 2, what="the new holder's number")


@requirement(34, "A39", "C3")
async def turn_events_need_the_lease_while_it_is_held(subject: Subject) -> None:
    """While a lease is live, a batch with a lease-needing type and no token is LeaseRequiredError, mixed batches too."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.claim(store, "s1")
    for batch in ([TURN_TYPE], ["user_message", "tool_call"], ["unknown_type"], ["turn_started", "user_message"]):
        async with unchanged(store, "s1"):
            with expect_error(LeaseRequiredError, what=f"{batch} without a token"):
                await store.append("s1", [subject.record(event_type=each) for each in batch])


@requirement(35, "A44", "C13")
async def the_control_lane_never_waits(subject: Subject) -> None:
    """Every lease-free type is accepted without a token while somebody holds the lease, `session_init` apart."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1")
    free = sorted(LEASE_FREE_TYPES - {"session_init"})
    for event_type in free:
        await store.append("s1", [subject.record(event_type=event_type)])
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=lease.token)
    log = await store.read("s1", after=1)
    expect_equal([e.record.event_type for e in log], [*free, TURN_TYPE], what="the log")


@requirement(36, "C3", "B24")
async def turn_events_pass_without_a_token_when_nobody_holds(subject: Subject) -> None:
    """With no live lease (never claimed, released, or expired) lease-needing types are accepted without a token."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await store.append("s1", [subject.record(event_type=TURN_TYPE)])
    lease = await subject.claim(store, "s1")
    await store.release(lease)
    await store.append("s1", [subject.record(event_type=TURN_TYPE)])
    await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(15.1)
    await store.append("s1", [subject.record(event_type=TURN_TYPE)])


@requirement(37, "C14", "C3")
async def a_lease_ends_by_the_stores_clock(subject: Subject) -> None:
    """A claim by another is None until the lease's time is over, and succeeds after it."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(14.9)
    expect_equal(await store.claim("s1", owner=OWNER_B, ttl_s=15), None, what="a claim just before the end")
    subject.clock.advance(0.2)
    expect((await store.claim("s1", owner=OWNER_B, ttl_s=15)) is not None, "a claim after the end must succeed")


@requirement(38, "C3")
async def renewing_moves_the_end(subject: Subject) -> None:
    """`renew` returns the same token with an end counted from now, and the lease is live until then."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(10)
    renewed = await store.renew(lease)
    expect_equal((renewed.token, renewed.owner), (lease.token, OWNER_A), what="the renewed lease")
    expect_equal(renewed.expires_at, subject.clock.iso(15), what="its end")
    subject.clock.advance(14)
    expect_equal(
        await store.claim("s1", owner=OWNER_B, ttl_s=15), None, what="a claim after the first end, before the new one"
    )


@requirement(39, "C3")
async def a_lost_lease_is_not_renewed(subject: Subject) -> None:
    """`renew` after another's takeover, after one's own newer claim, or after release is LeaseLostError."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1", ttl_s=15)
    newer = await subject.claim(store, "s1", ttl_s=15)
    with expect_error(LeaseLostError, what="renewing a replaced lease"):
        await store.renew(lease)
    subject.clock.advance(15.1)
    theirs = await subject.claim(store, "s1", owner=OWNER_B, ttl_s=15)
    with expect_error(LeaseLostError, what="renewing a lease that was taken over"):
        await store.renew(newer)
    await store.release(theirs)
    with expect_error(LeaseLostError, what="renewing a released lease"):
        await store.renew(theirs)


@requirement(40, "C5", "A39")
async def release_sees_what_arrived(subject: Subject) -> None:
    """`release` with expected_seq returns False and keeps the lease if something arrived since, else True and frees it."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1")
    await subject.say(store, "s1", text="arrived")
    expect_equal(await store.release(lease, expected_seq=1), False, what="releasing at an old seq")
    expect_equal(await store.claim("s1", owner=OWNER_B, ttl_s=1), None, what="a claim after the refused release")
    expect_equal(await store.release(lease, expected_seq=2), True, what="releasing at the newest seq")
    expect((await store.claim("s1", owner=OWNER_B, ttl_s=1)) is not None, "a claim after release must succeed")


@requirement(41, "C3")
async def releasing_a_lost_lease_frees_nobody_elses(subject: Subject) -> None:
    """`release` of a lease that was lost returns True and leaves the new holder's lease alone."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(15.1)
    new = await subject.claim(store, "s1", owner=OWNER_B)
    expect_equal(await store.release(old), True, what="releasing what was lost")
    expect_equal(await store.release(old, expected_seq=0), True, what="releasing what was lost, at some seq")
    expect_equal(
        await store.claim("s1", owner=OWNER_A, ttl_s=1), None, what="a claim while the new holder's lease lives"
    )
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=new.token)


@requirement(42, "C14")
async def a_dead_owners_lease_is_over(subject: Subject) -> None:
    """A lease whose owner is known to be dead is claimed at once, and the dead owner's token is refused."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1", ttl_s=3600)
    subject.liveness.kill(OWNER_A)
    new = await store.claim("s1", owner=OWNER_B, ttl_s=15)
    expect(new and new.token == old.token + 1, f"a claim after the owner's death must succeed, got {new}")
    with expect_error(LeaseLostError, what="an append of the dead owner"):
        await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)


@requirement(43, "C3", "C16", needs=("persistent",))
async def tokens_grow_over_reopening(subject: Subject) -> None:
    """A token is never given twice, also after the store was closed and opened; an old one stays refused."""
    store = await subject.open()
    await subject.begin(store, "s1")
    old = await subject.claim(store, "s1")
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)
    await store.release(old)
    store = await subject.reopen()
    new = await subject.claim(store, "s1", owner=OWNER_B)
    expect(new.token > old.token, f"the token after reopening must be above {old.token}, got {new.token}")
    with expect_error(LeaseLostError, what="the old token"):
        await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)


@requirement(44, "A50")
async def claiming_an_unknown_session_is_an_error(subject: Subject) -> None:
    """`claim` of a session that does not exist is SessionNotFoundError."""
    store = await subject.open()
    with expect_error(SessionNotFoundError, what="a claim of nothing"):
        await store.claim("ghost", owner=OWNER_A, ttl_s=15)


@requirement(45, "C3", "C1")
async def fencing_compares_tokens_not_times(subject: Subject) -> None:
    """A token that nobody has replaced is accepted though its time is over; one that was never given is refused."""
    store = await subject.open()
    await subject.begin(store, "s1")
    lease = await subject.claim(store, "s1", ttl_s=15)
    subject.clock.advance(100)
    await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=lease.token)
    for never in (lease.token + 1, lease.token - 1, 0, 10**12):
        async with unchanged(store, "s1"):
            with expect_error(LeaseLostError, what=f"token {never} where {lease.token} is the newest"):
                await store.append("s1", [subject.record(event_type=TURN_TYPE)], token=never)


@requirement(46, "A39", "A74")
async def one_of_many_claims_wins(subject: Subject) -> None:
    """Of many owners that claim at once exactly one gets the lease."""
    store = await subject.open()
    await subject.begin(store, "s1")
    owners = [f"host-a/boot-1/{n}/{n}/w" for n in range(1, 21)]
    leases = await asyncio.gather(*(store.claim("s1", owner=owner, ttl_s=15) for owner in owners))
    expect_equal(sum(lease is not None for lease in leases), 1, what="how many got it")


@requirement(47, "C3", "A39", needs=("shared",))
async def a_lease_holds_between_stores(subject: Subject) -> None:
    """A lease and its fencing hold between two store objects at the same place."""
    one, two = await subject.open(), await subject.open()
    await subject.begin(one, "s1")
    old = await subject.claim(one, "s1", ttl_s=15)
    expect_equal(await two.claim("s1", owner=OWNER_B, ttl_s=15), None, what="the other store's claim")
    with expect_error(LeaseRequiredError, what="a turn event through the other store"):
        await two.append("s1", [subject.record(event_type=TURN_TYPE)])
    subject.clock.advance(15.1)
    new = await subject.claim(two, "s1", owner=OWNER_B)
    async with unchanged(one, "s1"):
        with expect_error(LeaseLostError, what="the old holder's append"):
            await one.append("s1", [subject.record(event_type=TURN_TYPE)], token=old.token)
    await two.append("s1", [subject.record(event_type=TURN_TYPE)], token=new.token)


@requirement(48, "B3")
async def leases_are_per_session(subject: Subject) -> None:
    """Holding one session's lease hinders no other session, and its token opens no other."""
    store = await subject.open()
    await subject.begin(store, "s1")
    await subject.begin(store, "s2")
    first = await subject.claim(store, "s1")
    first = await subject.claim(store, "s1")
    second = await subject.claim(store, "s2", owner=OWNER_B)
    expect(first.token != second.token, "the tokens of this test must differ")
    with expect_error(LeaseLostError, what="a token of another session"):
        await store.append("s2", [subject.record(event_type=TURN_TYPE)], token=first.token)
    await store.append("s2", [subject.record(event_type=TURN_TYPE)], token=second.token)
