"""What was given cannot be used; nothing was changed."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


class InputError(KipuError):
    """What was given cannot be used: {reason}. Correct it and call again; nothing was changed."""

    code = "input"


class InvalidEventError(InputError):
    """The event of type {event_type!r} is not valid: {reason}. Correct the named field; nothing was stored."""

    code = "event_invalid"


class InvalidSessionIdError(InputError):
    """{session_id!r} is not a session id: {reason}. Use 1-64 characters of a-z, 0-9, '_' and '-', or give the name as a key."""

    code = "session_id_invalid"


class InvalidSessionKeyError(InputError):
    """{key!r} is not a session key: {reason}. Write it as channel:chat_id with non-empty parts; percent-escape ':' and '/'."""

    code = "session_key_invalid"


class InvalidQueryError(InputError):
    """The query cannot be answered: {reason}. Correct it, or start again without a cursor."""

    code = "query_invalid"


class ImportFormatError(InputError):
    """{source} cannot be imported: {reason}. Nothing was written; see `kipu import --help` for the formats that are read."""

    code = "import_format"


class PersonArchiveError(ImportFormatError):
    """{source} is refused, for its entry {entry!r}: {reason}. Nothing was written; only what `kipu export --person` makes is read."""

    code = "person_archive"


class MessageRejectedError(InputError):
    """Session {session_id!r} did not take the message: {reason} (turn {active_turn}). Try again in {retry_after_s} s."""

    code = "message_rejected"


class InvalidBusyPolicyError(InputError):
    """The busy policy of the {level} cannot be used: {reason}. Correct it and send again; nothing was stored."""

    code = "busy_policy_invalid"


class ApprovalNotFoundError(InputError):
    """There is no open approval {approval_id!r}: {reason}. `kipu approvals` lists those that wait."""

    code = "approval_not_found"


class GrantNotFoundError(InputError):
    """No grant {grant_id!r} can be taken back: {reason}. `kipu grants` lists those there are."""

    code = "grant_not_found"


class FactNotFoundError(InputError):
    """Memory has no fact {fact_id!r} for this principal. `kipu memory ls` lists those there are; nothing was changed."""

    code = "fact_not_found"


class ConfigurationError(InputError):
    """The configuration cannot be used: {reason}. See `kipu config` for what is in force and where it comes from."""

    code = "configuration"


class StoreUrlError(ConfigurationError):
    """{url!r} is not a store URL: {reason}. Use memory://, sqlite:///path/to/file.db or jsonl:///path/to/folder."""

    code = "store_url"


class KeySourceError(ConfigurationError):
    """The encryption key from {source} cannot be used: {reason}. No store was opened with it, and nothing was changed."""

    code = "key_source"


class MissingExtraError(ConfigurationError):
    """{feature} needs the optional package {package}. Install it with: pip install 'kipu[{extra}]'."""

    code = "missing_extra"
