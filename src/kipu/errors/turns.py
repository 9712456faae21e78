"""A running turn is to end; what is open in it is closed."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class TurnEndedError(KipuError):
    """The turn is to end."""

    code = "turn_ended"


class TurnStoppedError(TurnEndedError):
    """Somebody asked the turn to end ({mode}). What it had is kept; send another message to go on."""

    code = "turn_stopped"


class TurnLimitError(TurnEndedError):
    """The turn was ended: {reason}. Send another message to go on, or raise the limit."""

    code = "turn_limit"


class CallParkedError(KipuError):
    """The call waits for a person elsewhere ({waits_for}). Decide there; its turn goes on by itself then."""

    code = "call_parked"
