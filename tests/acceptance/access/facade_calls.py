"""Every public name of `Session` and `SessionManager`: which right it asks for, and how it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kipu.events.boundary import EventPinnedEvent, MetadataChangedEvent, NoteEvent
from kipu.events.conversation import UserMessageEvent
from kipu.events.turn import MessageSettledEvent, StopRequestedEvent
from kipu.interop.export_html import export_html
from kipu.interop.export_jsonl import export_jsonl
from kipu.interop.export_markdown import export_markdown
from kipu.manager.access import Verb
from kipu.ports.principal import Principal
from kipu.ports.store import SessionQuery
from tests.acceptance.access.people import KEY

Call = Callable[[Any, Any, Principal], Any]  # of the manager, the session, and who asks


class Row(NamedTuple):
    """One way to use a session."""

    verb: str
    call: Call
    empty_is_missing: bool = False  # it answers None, False or nothing where others raise


def message() -> UserMessageEvent:
    return UserMessageEvent(content="x", queued=True)


SESSION_ROWS: dict[str, Row] = {
    "add_event": Row("send", lambda m, s, who: s.add_event(message(), principal=who)),
    "add_event: note": Row("append", lambda m, s, who: s.add_event(NoteEvent(kind="x"), principal=who)),
    "add_event: stop": Row("stop", lambda m, s, who: s.add_event(StopRequestedEvent(turn_id="t"), principal=who)),
    "add_event: rollback": Row(
        "rewind", lambda m, s, who: s.add_event(StopRequestedEvent(turn_id="t", mode="rollback"), principal=who)
    ),
    "add_event: settle": Row(
        "cancel", lambda m, s, who: s.add_event(MessageSettledEvent(seqs=[2], reason="cancelled"), principal=who)
    ),
    "add_event: metadata": Row(
        "configure", lambda m, s, who: s.add_event(MetadataChangedEvent(set={"a": 1}), principal=who)
    ),
    "add_event: pin": Row("configure", lambda m, s, who: s.add_event(EventPinnedEvent(seqs=[2]), principal=who)),
    "add_events": Row("append", lambda m, s, who: s.add_events([message(), NoteEvent(kind="x")], principal=who)),
    "append": Row("send", lambda m, s, who: s.append([message()], principal=who)),
    "permit": Row("hold", lambda m, s, who: s.permit(Verb.HOLD, who)),
    "set_metadata": Row("configure", lambda m, s, who: s.set_metadata(title="mine", principal=who)),
    "set_status": Row("configure", lambda m, s, who: s.set_status("expired", principal=who)),
    "set_status: no change": Row("configure", lambda m, s, who: s.set_status("active", principal=who)),
    "pin": Row("configure", lambda m, s, who: s.pin(2, principal=who)),
    "pin: no such event": Row("configure", lambda m, s, who: s.pin(999, principal=who)),
    "turn": Row("append", lambda m, s, who: s.turn(principal=who).id),
    "resumed_turn": Row("append", lambda m, s, who: s.resumed_turn(principal=who).id),
    "render": Row("read", lambda m, s, who: s.render(principal=who)),
    "get_context_for_llm": Row("read", lambda m, s, who: s.get_context_for_llm(principal=who)),
    "get_history": Row("read", lambda m, s, who: s.get_history(principal=who)),
    "get_full_history": Row("read", lambda m, s, who: s.get_full_history(principal=who)),
    "get_recent_events": Row("read", lambda m, s, who: s.get_recent_events(principal=who)),
    "events": Row("read", lambda m, s, who: s.events(principal=who)),
    "records": Row("read", lambda m, s, who: s.records(principal=who)),
    "follow": Row("read", lambda m, s, who: s.follow(principal=who)),
    "blob": Row("read", lambda m, s, who: s.blob("0" * 64, principal=who)),
    "members": Row("read", lambda m, s, who: s.members(principal=who)),
    "share": Row("share", lambda m, s, who: s.share("new", role="viewer", principal=who)),
    "share: no such role": Row("share", lambda m, s, who: s.share("new", role="god", principal=who)),
    "revoke": Row("share", lambda m, s, who: s.revoke("nobody", principal=who)),
    "revoke: oneself": Row("leave", lambda m, s, who: s.revoke(who.id, principal=who)),
    "audit": Row("audit", lambda m, s, who: s.audit(principal=who)),
    "fork": Row("fork", lambda m, s, who: s.fork(principal=who)),
    "rewind": Row("rewind", lambda m, s, who: s.rewind(1, principal=who)),
}
# What a program does with what it holds in its hands: it says nothing to anybody by itself, and asks for nobody.
SESSION_HELD = frozenset({"holding", "redacted", "redacted_blob", "refresh", "save", "set_policy"})

MANAGER_ROWS: dict[str, Row] = {
    "open": Row("read", lambda m, s, who: m.open(s.session_id, principal=who)),
    "open: for a verb": Row("rewind", lambda m, s, who: m.open(s.session_id, principal=who, verb=Verb.REWIND)),
    "get_session": Row("read", lambda m, s, who: m.get_session(s.session_id, principal=who), True),
    "create_session": Row("read", lambda m, s, who: m.create_session(s.session_id, principal=who)),
    "resolve": Row("read", lambda m, s, who: m.resolve(KEY, principal=who), True),
    "list": Row("read", lambda m, s, who: _items(m.list(principal=who)), True),
    "list: by owner": Row("read", lambda m, s, who: _items(m.list(SessionQuery(owner="ada"), principal=who)), True),
    "heads": Row("read", lambda m, s, who: m.heads(principal=who), True),
    "list_sessions": Row("read", lambda m, s, who: m.list_sessions({"status": "active"}, principal=who), True),
    "search": Row("read", lambda m, s, who: _items(m.search("secret", principal=who)), True),
    "search: in it": Row(
        "read", lambda m, s, who: _items(m.search("secret", session_id=s.session_id, principal=who)), True
    ),
    "get_or_create": Row("read", lambda m, s, who: m.get_or_create(KEY, principal=who)),
    "new_session": Row("configure", lambda m, s, who: m.new_session(KEY, principal=who)),
    "bind_key": Row("configure", lambda m, s, who: m.bind_key("chat:other", s.session_id, principal=who)),
    "add_alias": Row("configure", lambda m, s, who: m.add_alias("chat:other", KEY, principal=who)),
    "acquire": Row("append", lambda m, s, who: m.acquire(KEY, principal=who)),
    "receive": Row("send", lambda m, s, who: m.receive(KEY, message(), principal=who)),
    "save_event": Row("send", lambda m, s, who: m.save_event(s.session_id, message(), principal=who)),
    "fork_session": Row("fork", lambda m, s, who: m.fork_session(s, seq=None, title=None, principal=who)),
    "hold_session": Row("hold", lambda m, s, who: m.hold_session(s.session_id, reason="a case", principal=who)),
    "release_session": Row("hold", lambda m, s, who: m.release_session(s.session_id, principal=who)),
    "erase_session": Row("erase", lambda m, s, who: m.erase_session(s.session_id, principal=who)),
    "delete_session": Row("erase", lambda m, s, who: m.delete_session(s.session_id, principal=who), True),
}
EXPORT_ROWS: dict[str, Row] = {
    "jsonl": Row("read", lambda m, s, who: export_jsonl(s, principal=who)),
    "markdown": Row("read", lambda m, s, who: export_markdown(s, principal=who)),
    "html": Row("read", lambda m, s, who: export_html(s, principal=who)),
}
# About no session, or asked of a person and not of a session (tests/acceptance/test_erasing*.py).
MANAGER_HELD = frozenset({"catch_up_index", "close", "erase_person", "finish_erasures", "mint", "now_us", "receipts"})
# A key of another tenant is another key: there, these make a session of the caller's own.
BY_KEY = frozenset({"get_or_create", "new_session", "acquire", "receive"})


def _items(page: Any) -> Any:
    if hasattr(page, "items"):
        return page.items
    return _awaited(page)


async def _awaited(page: Any) -> Any:
    return (await page).items
