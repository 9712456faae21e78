"""Head patches: how each event changes its session's row. Pure and without knowledge of the row, so that any writer can say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from kipu.events import access, boundary, conversation, turn
from kipu.events.content import text_of
from kipu.events.event import SessionEvent, utc_text
from kipu.ports.head import PREVIEWS_KEPT, HeadPatch
from kipu.session.window_start import recorded_in, rewound_to

PREVIEW_CHARACTERS = 120
WINDOW_NOTE = "kipu.window"
WORKSPACE = "kipu.workspace"  # the name under which a session's directory is changed; heads have it as `workspace`
_OWN_NAMES = ("title", "tags", "pinned", WORKSPACE)


class _Patch:
    """The operations collected over one batch; a later event of the batch overrides an earlier one."""

    __slots__ = ("_moments", "operations", "previews")

    def __init__(self, moments: Sequence[str]) -> None:
        self._moments = moments
        self.operations: dict[str, dict[str, Any]] = {}
        self.previews: list[tuple[int, str, str]] = []

    def of(self, operation: str) -> dict[str, Any]:
        """Return what one operation holds so far; most events need one or two of the ten."""
        return self.operations.setdefault(operation, {})

    def put(self, **values: Any) -> None:
        for operation in ("at", "min"):
            earlier = self.operations.get(operation)
            for name in values if earlier else ():
                self.operations[operation].pop(name, None)
        self.of("set").update(values)

    def place(self, name: str, index: int) -> None:
        self.of("set").pop(name, None)
        self.of("at")[name] = index

    def active(self, index: int) -> None:
        moment = self._moments[index]
        if moment:
            most = self.of("max")
            most["last_activity_at"] = max(most.get("last_activity_at", ""), moment)

    def moment(self, index: int) -> str:
        return self._moments[index]

    def preview(self, index: int, event: SessionEvent, *, text: str) -> None:
        self.previews.append((index, event.event_type, one_line(text)))

    def done(self) -> HeadPatch:
        return HeadPatch(**self.operations, previews=self.previews[-PREVIEWS_KEPT:])


def patch_for(events: Sequence[SessionEvent], moments: Sequence[str] | None = None) -> HeadPatch:
    """Return how one batch of events changes the head; `moments` are their times as text, where the caller has them."""
    if moments is None:
        moments = [utc_text(event.timestamp) if event.timestamp else "" for event in events]
    patch = _Patch(moments)
    for index, event in enumerate(events):
        handler = _HANDLERS.get(event.event_type)
        # A stored event of a known type that does not validate is generic: it moves nothing but the counts (EV-9).
        if handler is not None and not isinstance(event, boundary.GenericEvent):
            handler(patch, index, event)
    return patch.done()


def one_line(text: str) -> str:
    """Return the start of `text` as one line for lists."""
    return " ".join(text[: PREVIEW_CHARACTERS * 4].split())[:PREVIEW_CHARACTERS]


def _session_init(patch: _Patch, index: int, event: SessionEvent) -> None:
    init = cast(boundary.SessionInitEvent, event)
    patch.put(status="active", owner=init.owner, tenant=init.tenant)
    if init.timestamp is not None:
        patch.put(created_at=utc_text(init.timestamp))
    given = {"key": init.key, "title": init.title, "workspace": init.workspace, "origin": init.origin}
    patch.put(**{name: value for name, value in given.items() if value is not None})
    metadata = {name: value for name, value in init.metadata.items() if name not in _OWN_NAMES}
    patch.put(**_own(init.metadata))
    if metadata:
        patch.of("merge")["metadata"] = metadata
    if init.forked_from is not None:
        patch.put(forked_from=init.forked_from.session_id, base_seq=init.forked_from.seq)
    patch.put(**(init.inherited or {}))
    patch.active(index)


def _own(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the session's own settings as heads hold them: one odd value must not spoil every listing."""
    own: dict[str, Any] = {}
    for name in _OWN_NAMES:
        if name not in values:
            continue
        value = values[name]
        if name == "title":
            own[name] = None if value is None else str(value)
        elif name == "pinned":
            own[name] = bool(value)
        elif name == WORKSPACE:
            own["workspace"] = dict(value) if isinstance(value, Mapping) else None
        else:
            own[name] = (
                [str(tag) for tag in value] if isinstance(value, list | tuple) else [] if not value else [str(value)]
            )
    return own


def _fork_detached(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(base_seq=0, forked_from=None)


def _instruction(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.place("instruction_seq", index)


def _user_message(patch: _Patch, index: int, event: SessionEvent) -> None:
    message = cast(conversation.UserMessageEvent, event)
    text = text_of(message.content)
    if message.queued:
        _waits(patch, index, message)
    if one_line(text):
        patch.of("default").setdefault("first_text", one_line(text))
    patch.preview(index, event, text=text)
    patch.active(index)


def _waits(patch: _Patch, index: int, message: conversation.UserMessageEvent) -> None:
    patch.of("insert_at").setdefault("waiting", []).append(index)
    if message.deliver:
        patch.of("insert_at").setdefault("undelivered", []).append(index)
    busy = message.busy or {}
    wakes_at = busy.get("wakes_at")
    if isinstance(wakes_at, str):  # it was parked then, and nothing came in between
        patch.put(not_before=wakes_at)
    if "behind" not in busy:  # else what it stands behind is due before its quiet time is over
        due_at = busy.get("due_at")
        patch.put(quiet_until=due_at if isinstance(due_at, str) else None)


def _agent_message(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.preview(index, event, text=text_of(cast(conversation.AgentMessageEvent, event).content))
    patch.active(index)


def _tool_call(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.preview(index, event, text=cast(conversation.ToolCallEvent, event).tool_name)
    patch.active(index)


def _tool_result(patch: _Patch, index: int, event: SessionEvent) -> None:
    if cast(conversation.ToolResultEvent, event).pinned:
        patch.of("insert_at").setdefault("pins", []).append(index)
    patch.active(index)


def _model_call(patch: _Patch, index: int, event: SessionEvent) -> None:
    start = recorded_in(cast(conversation.ModelCallEvent, event).window, seq=event.seq)
    if start is not None:
        patch.put(window_seq=start)


def _turn_started(patch: _Patch, index: int, event: SessionEvent) -> None:
    started = cast(turn.TurnStartedEvent, event)
    patch.put(open_turn=started.turn_id, parked=False, decided=False, stop=None, not_before=None)
    patch.place("open_turn_seq", index)
    _consume(patch, started.consumes)
    patch.active(index)


def _turn_steered(patch: _Patch, index: int, event: SessionEvent) -> None:
    _consume(patch, cast(turn.TurnSteeredEvent, event).consumes)


def _consume(patch: _Patch, seqs: Sequence[int]) -> None:
    if seqs:
        patch.of("discard").setdefault("waiting", []).extend(seqs)


def _turn_parked(patch: _Patch, index: int, event: SessionEvent) -> None:
    until = cast(turn.TurnParkedEvent, event).until
    patch.put(parked=True, not_before=utc_text(until) if until else None)


def _turn_resumed(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(parked=False, decided=False, not_before=None)


def _stop_requested(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(stop=cast(turn.StopRequestedEvent, event).turn_id)


def _approval_decision(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(decided=True)


def _turn_finished(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(open_turn=None, open_turn_seq=0, parked=False, decided=False, stop=None, not_before=None)
    patch.active(index)


def _message_settled(patch: _Patch, index: int, event: SessionEvent) -> None:
    _consume(patch, cast(turn.MessageSettledEvent, event).seqs)


def _delivery(patch: _Patch, index: int, event: SessionEvent) -> None:
    answers = cast(turn.DeliveryEvent, event).answers
    if answers:
        patch.of("discard").setdefault("undelivered", []).extend(answers)


def _compaction(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.place("compaction_seq", index)


def _consolidation(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(consolidated_seq=cast(boundary.ConsolidationEvent, event).to_seq)


def _rewind(patch: _Patch, index: int, event: SessionEvent) -> None:
    rewind = cast(boundary.RewindEvent, event)
    patch.place("rewind_seq", index)
    patch.of("min")["consolidated_seq"] = min(rewind.to_seq, patch.of("min").get("consolidated_seq", rewind.to_seq))
    patch.put(
        instruction_seq=rewind.instruction_seq,
        compaction_seq=rewind.compaction_seq,
        window_seq=rewound_to(rewind),
    )


def _metadata_changed(patch: _Patch, index: int, event: SessionEvent) -> None:
    change = cast(boundary.MetadataChangedEvent, event)
    empty: dict[str, Any] = {"title": None, "tags": [], "pinned": False, WORKSPACE: None}
    own = _own(change.set)
    own.update({name.removeprefix("kipu."): empty[name] for name in change.unset if name in _OWN_NAMES})
    patch.put(**own)
    free = {name: value for name, value in change.set.items() if name not in _OWN_NAMES}
    free.update(dict.fromkeys((name for name in change.unset if name not in _OWN_NAMES), None))
    if free:
        patch.of("merge").setdefault("metadata", {}).update(free)


def _status_changed(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(status=cast(boundary.StatusChangedEvent, event).status)


def _key_bound(patch: _Patch, index: int, event: SessionEvent) -> None:
    patch.put(key=cast(boundary.KeyBoundEvent, event).key)


def _event_pinned(patch: _Patch, index: int, event: SessionEvent) -> None:
    pinned = cast(boundary.EventPinnedEvent, event)
    target = patch.of("insert" if pinned.on else "discard")
    target.setdefault("pins", []).extend(pinned.seqs)
    taken_back = patch.operations.get("discard", {}).get("pins")
    if pinned.on and taken_back:  # before it in the batch; what is discarded is so behind all that is inserted
        taken_back[:] = [seq for seq in taken_back if seq not in pinned.seqs]


def _members_changed(patch: _Patch, index: int, event: SessionEvent) -> None:
    change = cast(access.MembersChangedEvent, event)
    gone = dict.fromkeys(change.revoked)
    patch.of("merge").setdefault("members", {}).update({**gone, **change.roles})


def _access_denied(patch: _Patch, index: int, event: SessionEvent) -> None:
    add = patch.of("add")
    add["denied_count"] = add.get("denied_count", 0) + 1
    most = patch.of("max")
    most["denied_at"] = max(most.get("denied_at", ""), patch.moment(index))


def _note(patch: _Patch, index: int, event: SessionEvent) -> None:
    note = cast(boundary.NoteEvent, event)
    start = recorded_in(note.data, seq=event.seq)
    if note.kind == WINDOW_NOTE and start is not None:
        patch.put(window_seq=start)


_HANDLERS: dict[str, Callable[[_Patch, int, SessionEvent], None]] = {
    "session_init": _session_init,
    "fork_detached": _fork_detached,
    "instruction": _instruction,
    "user_message": _user_message,
    "agent_message": _agent_message,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "model_call": _model_call,
    "turn_started": _turn_started,
    "turn_steered": _turn_steered,
    "turn_parked": _turn_parked,
    "turn_resumed": _turn_resumed,
    "stop_requested": _stop_requested,
    "approval_decision": _approval_decision,
    "turn_finished": _turn_finished,
    "message_settled": _message_settled,
    "compaction": _compaction,
    "consolidation": _consolidation,
    "rewind": _rewind,
    "metadata_changed": _metadata_changed,
    "status_changed": _status_changed,
    "key_bound": _key_bound,
    "event_pinned": _event_pinned,
    "members_changed": _members_changed,
    "access_denied": _access_denied,
    "delivery": _delivery,
    "note": _note,
}
