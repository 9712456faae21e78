"""Every error Kipu raises, in one tree.

    KipuError
    ├── InputError                      what was given cannot be used; nothing was changed
    │   ├── InvalidEventError
    │   ├── InvalidSessionIdError
    │   ├── InvalidSessionKeyError
    │   ├── InvalidQueryError
    │   ├── ImportFormatError
    │   ├── MessageRejectedError
    │   ├── InvalidBusyPolicyError
    │   ├── ApprovalNotFoundError
    │   ├── GrantNotFoundError
    │   └── ConfigurationError
    │       ├── StoreUrlError
    │       ├── KeySourceError
    │       └── MissingExtraError
    ├── SessionError                    about one session
    │   ├── SessionNotFoundError
    │   ├── SessionExistsError
    │   ├── SessionErasedError
    │   ├── SessionBusyError
    │   ├── SessionForkedError
    │   ├── SessionAmbiguousError
    │   ├── ReplayMismatchError
    │   └── TransitionError
    ├── ConcurrencyError                somebody else was there first
    │   ├── LeaseLostError
    │   ├── LeaseRequiredError
    │   └── ConflictError
    ├── AccessDeniedError
    ├── DemoStepError                   the guided tour did not show what it says
    ├── TurnEndedError                  a running turn is to end; what is open in it is closed
    │   ├── TurnStoppedError
    │   └── TurnLimitError
    ├── WorkspaceError                  the files cannot be reached as asked; none was changed
    │   ├── PathOutsideError
    │   ├── PathNotFoundError
    │   ├── PathDeniedError
    │   ├── PathTwinError
    │   ├── WorkspaceMissingError
    │   ├── GitError
    │   └── RestoreError
    ├── ToolError                       a tool cannot be used; the model is told, the turn goes on
    │   ├── SandboxError
    │   └── McpServerError
    ├── ModelError                      the model gave no usable answer; what it gave is kept
    │   ├── ModelNameError
    │   ├── ModelRefusedError
    │   │   └── ModelContextOverflowError
    │   ├── ModelAuthError
    │   ├── ModelNotFoundError
    │   ├── ModelQuotaError
    │   ├── ModelRateLimitedError
    │   ├── ModelUnavailableError
    │   ├── ModelUnreachableError
    │   │   └── ModelStreamCutError
    │   ├── ModelAnswerError
    │   └── ModelLoadError
    └── StoreError                      the store cannot do it; nothing was acknowledged
        ├── StoreNotFoundError
        ├── StoreUnavailableError
        │   └── StoreFullError
        ├── StoreReadOnlyError
        │   └── NewerFormatError
        ├── StoreCorruptError
        │   └── SealBrokenError
        ├── EncryptionError             the keys do not fit; nothing was read as empty, nothing was written
        │   ├── KeyUnavailableError
        │   ├── DataKeyMissingError
        │   ├── KeysMissingError
        │   └── StoreSealedError
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


class SessionAmbiguousError(SessionError):
    """{text!r} could be any of these sessions: {candidates}. Give the whole id of one; nothing was opened."""

    code = "session_ambiguous"


class ReplayMismatchError(SessionError):
    """Model call {seq} of session {session_id!r} renders as {actual}, not as {expected}. Run `kipu verify {session_id}`."""

    code = "replay_mismatch"


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


class DemoStepError(KipuError):
    """The tour stopped at {step!r}: {reason}. Everything is kept in {folder}; `kipu demo --keep` shows it again."""

    code = "demo_step"


class TurnEndedError(KipuError):
    """The turn is to end."""

    code = "turn_ended"


class TurnStoppedError(TurnEndedError):
    """Somebody asked the turn to end ({mode}). What it had is kept; send another message to go on."""

    code = "turn_stopped"


class TurnLimitError(TurnEndedError):
    """The turn was ended: {reason}. Send another message to go on, or raise the limit."""

    code = "turn_limit"


class WorkspaceError(KipuError):
    """The workspace {root} cannot do it: {reason}."""

    code = "workspace"


class PathOutsideError(WorkspaceError):
    """{path!r} is not inside the workspace: {reason}. Name a path below its root."""

    code = "path_outside"


class PathNotFoundError(WorkspaceError):
    """There is no {path!r} in the workspace. List its directory to see what there is."""

    code = "path_not_found"


class WorkspaceMissingError(WorkspaceError):
    """The directory {root} of this session is gone. Bring it back, or choose another one with /cwd."""

    code = "workspace_missing"


class PathDeniedError(WorkspaceError):
    """{path!r} may not be {verb}: {reason}. Choose another path, or let a person do it."""

    code = "path_denied"


class PathTwinError(WorkspaceError):
    """{path!r} looks the same as {twin!r}, which is there already ({difference}). Use that name, or one that people can tell apart."""

    code = "path_twin"


class GitError(WorkspaceError):
    """git cannot do it in {root}: {reason}. Correct the repository, or choose a plain directory."""

    code = "git"


class RestoreError(WorkspaceError):
    """Some files of {root} could not be brought back: {reason}. Move what is in their way, then restore again; the rest is done."""

    code = "restore"


class ToolError(KipuError):
    """The tool {tool} cannot be used: {reason}."""

    code = "tool"


class SandboxError(ToolError):
    """Commands cannot be shut in here: {reason}. Install bubblewrap, or allow commands one by one."""

    code = "sandbox"


class McpServerError(ToolError):
    """The MCP server {server} failed: {reason}. The model is told so; `/mcp` shows how each server stands."""

    code = "mcp_server"


class StoreError(KipuError):
    """The store {store} failed: {reason}."""

    code = "store"


class StoreNotFoundError(StoreError):
    """There is no store at {path} ({store}), and none was made. Correct the URL, or make one with `kipu chat` or `kipu import`."""

    code = "store_not_found"


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


class SealBrokenError(StoreCorruptError):
    """The seal of {where} in session {session_id!r} does not hold: it was changed, cut or moved. Nothing was deleted; run `kipu verify`."""

    code = "seal_broken"


class EncryptionError(StoreError):
    """The store {store} cannot be opened with these keys: {reason}. Nothing was changed."""

    code = "encryption"


class KeyUnavailableError(EncryptionError):
    """{what} is under key {kek!r}, which is not among those given ({given}). Give the key it was made with; nothing was changed."""

    code = "key_unavailable"


class DataKeyMissingError(EncryptionError):
    """The data key of session {session_id!r} is not there: {reason}. What it sealed stands unread; restore the key vault."""

    code = "data_key_missing"


class KeysMissingError(EncryptionError):
    """The store {store} has sessions, but {vault} has no keys for it. Restore its key vault, or open the store without encryption."""

    code = "keys_missing"


class StoreSealedError(EncryptionError):
    """The store {store} is encrypted (its key vault is {vault}). Open it with its key: ?encrypt=file:PATH or env:NAME."""

    code = "store_sealed"


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


# Models


class ModelError(KipuError):
    """{model} failed: {reason}. The message is kept; send it again, or choose another model with /model."""

    code = "model"
    retryable: ClassVar[bool] = False


class ModelNameError(ModelError):
    """{model!r} is not a model: {reason}. Name one as provider:model, such as openai:gpt-6-luna, ollama:llama3.2 or demo."""

    code = "model_name"


class ModelRefusedError(ModelError):
    """{model} refused the request (HTTP {status}): {reason}. Sending it again changes nothing: send a stricter window."""

    code = "model_refused"


class ModelContextOverflowError(ModelRefusedError):
    """The window is longer than {model} takes: {reason}. Undo turns or begin a new session, or choose a model with a longer one."""

    code = "model_context_overflow"


class ModelAuthError(ModelError):
    """{model} does not accept the key (HTTP {status}): {reason}. Set the right one in {key_variable}; the session is untouched."""

    code = "model_auth"


class ModelNotFoundError(ModelError):
    """{model} is not known at {endpoint}: {reason}. Check the name, and the base URL if you set one."""

    code = "model_not_found"


class ModelQuotaError(ModelError):
    """The account's quota for {model} is used up: {reason}. Waiting does not help: top it up, or choose another model."""

    code = "model_quota"


class ModelRateLimitedError(ModelError):
    """{model} asks to wait: {reason}. Try again after {retry_after_s} seconds (None: it did not say)."""

    code = "model_rate_limited"
    retryable = True


class ModelUnavailableError(ModelError):
    """{model} cannot answer now (HTTP {status}): {reason}. Nothing is wrong with the request: try again in a while."""

    code = "model_unavailable"
    retryable = True


class ModelUnreachableError(ModelError):
    """{model} cannot be reached at {endpoint}: {reason}. Check the network and the base URL, then try again."""

    code = "model_unreachable"
    retryable = True


class ModelStreamCutError(ModelUnreachableError):
    """The answer of {model} broke off: {reason}. What had arrived is kept as an interrupted answer; ask again."""

    code = "model_stream_cut"
    retryable = True


class ModelAnswerError(ModelError):
    """The answer of {model} cannot be read: {reason}. Try again; if it stays so, the endpoint does not speak this format."""

    code = "model_answer"
    retryable = True


class ModelLoadError(ModelError):
    """The model file {path} cannot be loaded: {reason}. Give a GGUF file that fits into memory, or choose another model."""

    code = "model_load"
