"""Lists of heads: a sorted set walked from where the page before ended, the rest of the conditions asked at the server."""

from __future__ import annotations

from collections.abc import Sequence

from kipu.ports.head import Head
from kipu.ports.owner import Liveness
from kipu.ports.store import Page, SessionQuery
from kipu.stores.listed_heads import listed_head
from kipu.stores.paging import check_order, decode_cursor, encode_cursor, page_size
from kipu.stores.valkey.key_names import KeyNames
from kipu.stores.valkey.places import EVERY, FENCE, ORDERS, member, metadata_name, metadata_token, token
from kipu.stores.valkey.reading import taken_apart
from kipu.stores.valkey.scripts import LIST, WORK
from kipu.stores.valkey.server import Server, Word

_MOST_LOOKED_AT = 1_000  # by one script; a page of rare sessions takes several
_MOST_HELD = 500
_AFTER_EQUAL = "\x01"  # the character zero stands behind a value, so that this is behind all that have the same


async def page(server: Server, query: SessionQuery, *, keys: KeyNames) -> Page[Head]:
    """Return a page of heads."""
    check_order(query)
    limit = page_size(query.limit)
    sets = [keys.listed(ORDERS[query.order], facet) for facet in _facets(query)]
    conditions = _conditions(query)
    low, high = _bounds(query)
    found: list[tuple[str, bytes]] = []
    while len(found) <= limit:
        words: list[Word] = [keys.heads, int(query.descending), low, high, limit + 1 - len(found), _MOST_LOOKED_AT]
        words += [len(sets), *sets, len(conditions)]
        for condition in conditions:
            words += [len(condition), *condition]
        place, is_done, sizes, joined = await server.look(LIST, *words)
        values = taken_apart(sizes, joined)
        found += [(one.decode(), data) for one, data in zip(values[::2], values[1::2], strict=True)]
        if is_done == b"1" or not place:
            break
        if query.descending:
            high = f"({place.decode()}"
        else:
            low = f"({place.decode()}"
    more = len(found) > limit
    del found[limit:]
    cursor = encode_cursor(*_place(found[-1][0])) if more else None
    return Page(tuple(listed_head(_place(one)[1], data) for one, data in found), cursor)


def _place(one: str) -> tuple[str, str]:
    moment, _, session_id = one.rpartition("\0")
    return moment, session_id


def _facets(query: SessionQuery) -> list[str]:
    """Return the lists that hold all that is asked for; the server walks the shortest."""
    found = [EVERY]
    found += [token("v", one) for one in (query.visible_to, query.owner) if one]
    found += [
        token(kind, value) for kind, value in (("t", query.tenant), ("k", query.key), ("f", query.forked_from)) if value
    ]
    if query.statuses is not None and len(query.statuses) == 1:
        found += [token("s", one) for one in query.statuses if one != "active"]
    found += [token("g", tag) for tag in query.tags]
    return found + ["p"] * (query.pinned is True) + ["w"] * (query.open_turn is True)


def _conditions(query: SessionQuery) -> list[tuple[str, ...]]:
    pairs = (
        ("t", query.tenant),
        ("o", query.owner),
        ("v", query.visible_to),
        ("k", query.key),
        ("f", query.forked_from),
    )
    found: list[tuple[str, ...]] = [("has", _whole(token(kind, value))) for kind, value in pairs if value is not None]
    found += [("has", _whole(token("g", tag))) for tag in sorted(query.tags)]
    if query.key_prefix is not None:
        found.append(("has", FENCE + token("k", query.key_prefix)))
    if query.statuses is not None:
        found.append(("any", *(_whole(token("s", status)) for status in sorted(query.statuses))))
    for name, value in sorted(query.metadata.items()):
        found.append(
            ("not", FENCE + metadata_name(name)) if value is None else ("has", _whole(metadata_token(name, value)))
        )
    for flag, wanted in (("p", query.pinned), ("w", query.open_turn), ("u", query.unindexed or None)):
        if wanted is not None:
            found.append(("has" if wanted else "not", _whole(flag)))
    return found + _times(query)


def _times(query: SessionQuery) -> list[tuple[str, ...]]:
    bounds = (
        ("c>", query.created_after),
        ("c<", query.created_before),
        ("a>", query.active_after),
        ("a<", query.active_before),
    )
    return [(kind, value) for kind, value in bounds if value is not None]


def _whole(text: str) -> str:
    return f"{FENCE}{text}{FENCE}"


def _bounds(query: SessionQuery) -> tuple[str, str]:
    """Return between which members a page is: behind the cursor, and within the bounds of the time it is ordered by."""
    is_active = query.order == "last_activity_at"
    after = query.active_after if is_active else query.created_after
    before = query.active_before if is_active else query.created_before
    lows = [] if after is None else [after + _AFTER_EQUAL]
    highs = [] if before is None else [f"{before}\0"]
    if query.cursor is not None:
        (highs if query.descending else lows).append(member(*decode_cursor(query.cursor, str, str)))
    return f"({max(lows)}" if lows else "-", f"({min(highs)}" if highs else "+"


# ---- work ------------------------------------------------------------------------------------------------------------


async def runnable(server: Server, keys: KeyNames, *, liveness: Liveness, now: str, limit: int) -> list[Head]:
    """Return heads with work that is due and without a live lease, those due longest first."""
    limit = page_size(limit)
    end = f"({now}{_AFTER_EQUAL}"
    free = await _work(server, keys, keys.due, "-", end, most=limit)
    found = [listed_head(session_id, data) for _, session_id, data in free]
    low = "-"
    while rows := await _work(server, keys, keys.held, low, end, most=_MOST_HELD):  # whose leases are over
        found += [listed_head(session_id, data) for _, session_id, data in rows]
        low = f"({rows[-1][0]}"
    dead: dict[str, bool] = {}
    for one, session_id, data in await _work(server, keys, keys.held, f"[{now}{_AFTER_EQUAL}", "+", most=_MOST_HELD):
        owner = listed_head(session_id, data).lease_owner or ""
        if owner not in dead:
            dead[owner] = bool(one) and liveness.is_dead(owner)
        if dead[owner]:
            found.append(listed_head(session_id, data))
    due = [head for head in found if head.due_at is not None and head.due_at <= now]
    due.sort(key=lambda head: (head.due_at or "", head.last_event_at, head.session_id))
    return due[:limit]


async def _work(
    server: Server, keys: KeyNames, name: str, low: str, high: str, *, most: int
) -> Sequence[tuple[str, str, bytes]]:
    answer = await server.look(WORK, name, low, high, most, keys.heads)
    rows = zip(answer[::3], answer[2::3], strict=True)
    return [(one.decode(), one.decode().rpartition("\0")[2], data) for one, data in rows]
