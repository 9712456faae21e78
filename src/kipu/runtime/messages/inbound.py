"""`InboundEvent`: what every entry (chat, gateway, chat platforms, webhook, cron) hands in, and the key that it leads to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from kipu.errors import InvalidEventError, InvalidSessionKeyError
from kipu.events.content import Content, text_of
from kipu.session.busy import BusyPolicy
from kipu.session.key import SessionKey

Scope = Literal["direct", "group", "thread", "task", "job"]
MAX_ID_LENGTH = 512
_NAMES = ("channel", "chat_id", "sender_id")
_OPTIONAL_NAMES = ("account", "thread_id", "source_message_id")


class ReplyAddress(BaseModel):
    """Where an answer goes. It travels with the message and is never read out of a key. `message_id` is what it answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str
    chat_id: str
    account: str | None = None
    thread_id: str | None = None
    message_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the parts that are given."""
        return self.model_dump(exclude_none=True)


class InboundEvent(BaseModel):
    """One message from outside (C30). What is missing or empty is refused here, before anything is stored (A5, A62).

    `account` is which of several accounts of the channel got it; it is part of the key, since two accounts may meet the same
    chat id. `scope` is direct where nothing is said, thread where there is a `thread_id`. `source_message_id` with `revision`
    is what makes a second delivery of the same message known (C4). `policy` is what the message itself asks for while the
    session is busy. `metadata` with `"publish": False` asks for no answer through the channel.

    >>> InboundEvent(channel="telegram", chat_id="42", sender_id="u1", content="hi").session_key()
    SessionKey(channel='telegram', chat_id='42', tenant=None, agent=None, account=None, scope=None, thread_id=None, member=None)
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channel: str
    chat_id: str
    sender_id: str
    content: Content
    account: str | None = None
    thread_id: str | None = None
    scope: Scope | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    source_message_id: str | None = None
    revision: str = ""
    session_key_override: str | None = None
    reply_to: ReplyAddress | None = None
    policy: dict[str, Any] | str | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _typed(cls, data: Any, handler: ModelWrapValidatorHandler[InboundEvent]) -> InboundEvent:
        """Refuse with Kipu's own errors: a key part that is missing names itself, other fields say what is wrong."""
        if isinstance(data, Mapping):
            for name in _NAMES:
                _check_name(name, data.get(name))
            for name in _OPTIONAL_NAMES:
                if data.get(name) is not None:
                    _check_name(name, data[name])
        try:
            event = handler(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"]) or "message"
            raise InvalidEventError(event_type="inbound", reason=f"{where}: {first['msg']}") from None
        event.check()
        return event

    def check(self) -> None:
        """Raise what is wrong with the parts together: InvalidSessionKeyError, InvalidEventError, InvalidBusyPolicyError."""
        if self.scope == "thread" and self.thread_id is None:
            raise InvalidSessionKeyError(key=f"{self.channel}:{self.chat_id}", reason="its thread_id is missing")
        if isinstance(self.content, str):
            is_empty = not self.content.strip()
        else:
            is_empty = not text_of(self.content).strip() and all(part.type == "text" for part in self.content)
        if is_empty:
            raise InvalidEventError(event_type="inbound", reason="content: there is nothing in it")
        self.session_key()
        BusyPolicy.resolve(message=self.policy)

    def session_key(self) -> SessionKey:
        """Return where it belongs: the override, else `channel:chat_id`, with thread and account where they tell chats apart.

        Raises: InvalidSessionKeyError.
        """
        if self.session_key_override is not None:
            return SessionKey.parse(self.session_key_override)
        scope = self.scope or ("thread" if self.thread_id is not None else "direct")
        in_thread = scope == "thread"
        return SessionKey(
            self.channel,
            self.chat_id,
            account=self.account,
            scope="thread" if in_thread else None,
            thread_id=self.thread_id if in_thread else None,
        )

    @property
    def address(self) -> ReplyAddress:
        """Return where its answer goes: as it says, else where it came from."""
        return self.reply_to or ReplyAddress(
            channel=self.channel,
            chat_id=self.chat_id,
            account=self.account,
            thread_id=self.thread_id,
            message_id=self.source_message_id,
        )

    @property
    def is_published(self) -> bool:
        """Return False when its answer stays in the log."""
        return self.metadata.get("publish") is not False


def _check_name(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidSessionKeyError(key=value, reason=f"its {name} is missing or empty")
    if len(value) > MAX_ID_LENGTH:
        raise InvalidSessionKeyError(
            key=value[:80] + "…", reason=f"its {name} is longer than {MAX_ID_LENGTH} characters"
        )
