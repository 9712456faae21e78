"""What a rendering changed, so that nobody has to guess why the model saw something else than the log."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

AdjustmentKind: TypeAlias = Literal[
    "call_closed",
    "damaged_skipped",
    "duplicate_result_dropped",
    "empty_text_dropped",
    "id_changed",
    "lead_dropped",
    "media_replaced",
    "message_missing",
    "name_changed",
    "orphan_dropped",
    "pin_dropped",
    "placeholder_added",
    "raw_arguments_wrapped",
    "reasoning_dropped",
    "result_late",
    "result_reordered",
    "roles_merged",
    "summary_dropped",
    "text_flattened",
    "text_shortened",
    "text_trimmed",
    "user_deferred",
]


class Adjustment(NamedTuple):
    """One deviation of the window from the log: its kind, the event it is about (0: none), and the detail (C8)."""

    kind: AdjustmentKind
    seq: int
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the adjustment as JSON."""
        return self._asdict()
