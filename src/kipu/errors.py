"""Every error Kipu raises, in one tree.

    KipuError
    ├── InputError                      what was given cannot be used; nothing was changed
    │   ├── InvalidEventError
    │   ├── InvalidSessionIdError
    │   ├── InvalidSessionKeyError
    │   ├── InvalidQueryError
    │   ├── ImportFormatError
    │   └── ConfigurationError
    │       ├── StoreUrlError
    │       └── MissingExtraError
    ├── SessionError                    about one session
    │   ├── SessionNotFoundError
    │   ├── SessionExistsError
    │   ├── SessionErasedError
    │   ├── SessionBusyError
    │   ├── SessionForkedError
    │   └── TransitionError
    ├── ConcurrencyError                somebody else was there first
    │   ├── LeaseLostError
    │   ├── LeaseRequiredError
    │   └── ConflictError
    ├── AccessDeniedError
    └── StoreError                      the store cannot do it; nothing was acknowledged
        ├── StoreUnavailableError
        │   └── StoreFullError
        ├── StoreReadOnlyError
        │   └── NewerFormatError
        ├── StoreCorruptError
        ├── StoreClosedError
        ├── NetworkFileSystemError
        ├── BlobNotFoundError
        ├── SearchUnavailableError
        └── CopyMismatchError

A class's docstring is its message template followed by the next step; its data are attributes. `code` is stable: programs
may match on it. Driver errors never leave an adapter untranslated.
"""

from __future__ import annotations

from typing import Any, ClassVar


class KipuError(Exception):
    """Something in Kipu failed."""

    code: ClassVar[str] = "kipu"

    def __init__(self, **data: Any) -> None:
        self.data = data
        super().__init__(self._render())

    def _render(self) -> str:
        template = " ".join((type(self).__doc__ or type(self).__name__).split())
        try:
            return template.format(**self.data)
        except (KeyError, IndexError):
            return f"{template} {self.data}"

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data")
        if data is not None and name in data:
            return data[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.data))


def _rebuild(kind: type[KipuError], data: dict[str, Any]) -> KipuError:
    return kind(**data)


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


class ConfigurationError(InputError):
    """The configuration cannot be used: {reason}. See `kipu config` for what is in force and where it comes from."""

    code = "configuration"


class StoreUrlError(ConfigurationError):
    """{url!r} is not a store URL: {reason}. Use memory://, sqlite:///path/to/file.db or jsonl:///path/to/folder."""

    code = "store_url"


class MissingExtraError(ConfigurationError):
    """{feature} needs the optional package {package}. Install it with: pip install 'kipu[{extra}]'."""

    code = "missing_extra"


class SessionError(KipuError):
    """Session {session_id}: {reason}."""

    code = "session"


class SessionNotFoundError(SessionError):
    """There is no session {session_id!r} for this principal. List those there are with `kipu ls`; nothing was created."""

    code = "session_not_found"


class SessionExistsError(SessionError):
    """Session {session_id!r} exists already. Open it with get_session, or create one under another id."""

    code = "session_exists"


class SessionErasedError(SessionError):
    """Session {session_id!r} was erased. Ids are not used again: create one under another id."""

    code = "session_erased"


class SessionBusyError(SessionError):
    """Session {session_id!r} is in use by {owner}. Wait for it, open it read-only, fork it, or stop the other one."""

    code = "session_busy"


class SessionForkedError(SessionError):
    """Session {session_id!r} has forks that need its events: {forks}. Erase them too (cascade), or keep it."""

    code = "session_forked"


class TransitionError(SessionError):
    """Session {session_id!r} cannot go from {before} to {after}. See the lifecycle table in docs/concepts/lifecycle.md."""

    code = "transition"


class ConcurrencyError(KipuError):
    """Somebody else changed session {session_id} first. Read it again and decide again."""

    code = "concurrency"


class LeaseLostError(ConcurrencyError):
    """The lease on session {session_id!r} is not yours any more (token {token}, now {current}). Stop this turn; append nothing."""

    code = "lease_lost"


class LeaseRequiredError(ConcurrencyError):
    """Appending {event_type} to session {session_id!r} needs its lease, which {owner} holds. Claim it first, or wait."""

    code = "lease_required"


class ConflictError(ConcurrencyError):
    """Session or key {session_id!r} is not where you saw it (expected {expected}, is {actual}). Read again and decide again."""

    code = "conflict"


class AccessDeniedError(KipuError):
    """{principal} may not {verb} session {session_id!r}. Ask its owner."""

    code = "access_denied"


class StoreError(KipuError):
    """The store {store} failed: {reason}."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The store {store} cannot be read or written now: {reason}. Nothing was acknowledged; try again when it is back."""

    code = "store_unavailable"


class StoreFullError(StoreUnavailableError):
    """The store {store} has no room: {reason}. Nothing was acknowledged and the old state stands; free space and try again."""

    code = "store_full"


class StoreReadOnlyError(StoreError):
    """The store {store} is open for reading only: {reason}. Nothing was written."""

    code = "store_read_only"


class NewerFormatError(StoreReadOnlyError):
    """{store} was written by a newer Kipu (format {found}, this one knows {known}). It is opened read-only: update Kipu to write."""

    code = "newer_format"


class StoreCorruptError(StoreError):
    """The store {store} is damaged: {reason}. Nothing was deleted; run `kipu verify` to see what can be read."""

    code = "store_corrupt"


class StoreClosedError(StoreError):
    """The store {store} is closed. Open it again with kipu.wiring.open_store."""

    code = "store_closed"


class NetworkFileSystemError(StoreError):
    """{store} is on a network file system ({kind}), where {reason}. Use a local disk, a jsonl:// store, or a database server."""

    code = "network_file_system"


class BlobNotFoundError(StoreError):
    """Blob {digest} of session {session_id!r} is not in the store. Run `kipu verify {session_id}`."""

    code = "blob_not_found"


class SearchUnavailableError(StoreError):
    """The store {store} has no search. Copy it to one that has: kipu copy {store} sqlite:///sessions.db."""

    code = "search_unavailable"


class CopyMismatchError(StoreError):
    """After copying, session {session_id!r} differs at event {seq}: {reason}. The source is untouched; run the copy again."""

    code = "copy_mismatch"
