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

from kipu.errors.concurrency import ConcurrencyError, ConflictError, LeaseLostError, LeaseRequiredError
from kipu.errors.inputs import (
    ApprovalNotFoundError,
    ConfigurationError,
    GrantNotFoundError,
    ImportFormatError,
    InputError,
    InvalidBusyPolicyError,
    InvalidEventError,
    InvalidQueryError,
    InvalidSessionIdError,
    InvalidSessionKeyError,
    KeySourceError,
    MessageRejectedError,
    MissingExtraError,
    StoreUrlError,
)
from kipu.errors.kipu_error import KipuError
from kipu.errors.models import (
    ModelAnswerError,
    ModelAuthError,
    ModelContextOverflowError,
    ModelError,
    ModelLoadError,
    ModelNameError,
    ModelNotFoundError,
    ModelQuotaError,
    ModelRateLimitedError,
    ModelRefusedError,
    ModelStreamCutError,
    ModelUnavailableError,
    ModelUnreachableError,
)
from kipu.errors.sessions import (
    AccessDeniedError,
    ReplayMismatchError,
    SessionAmbiguousError,
    SessionBusyError,
    SessionErasedError,
    SessionError,
    SessionExistsError,
    SessionForkedError,
    SessionNotFoundError,
    TransitionError,
)
from kipu.errors.stores import (
    BlobNotFoundError,
    CopyMismatchError,
    DataKeyMissingError,
    EncryptionError,
    KeysMissingError,
    KeyUnavailableError,
    NetworkFileSystemError,
    NewerFormatError,
    SealBrokenError,
    SearchUnavailableError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreNotFoundError,
    StoreReadOnlyError,
    StoreSealedError,
    StoreUnavailableError,
)
from kipu.errors.tools import DemoStepError, McpServerError, SandboxError, ToolError
from kipu.errors.turns import TurnEndedError, TurnLimitError, TurnStoppedError
from kipu.errors.workspaces import (
    GitError,
    PathDeniedError,
    PathNotFoundError,
    PathOutsideError,
    PathTwinError,
    RestoreError,
    WorkspaceError,
    WorkspaceMissingError,
)

__all__ = [
    "AccessDeniedError",
    "ApprovalNotFoundError",
    "BlobNotFoundError",
    "ConcurrencyError",
    "ConfigurationError",
    "ConflictError",
    "CopyMismatchError",
    "DataKeyMissingError",
    "DemoStepError",
    "EncryptionError",
    "GitError",
    "GrantNotFoundError",
    "ImportFormatError",
    "InputError",
    "InvalidBusyPolicyError",
    "InvalidEventError",
    "InvalidQueryError",
    "InvalidSessionIdError",
    "InvalidSessionKeyError",
    "KeySourceError",
    "KeyUnavailableError",
    "KeysMissingError",
    "KipuError",
    "LeaseLostError",
    "LeaseRequiredError",
    "McpServerError",
    "MessageRejectedError",
    "MissingExtraError",
    "ModelAnswerError",
    "ModelAuthError",
    "ModelContextOverflowError",
    "ModelError",
    "ModelLoadError",
    "ModelNameError",
    "ModelNotFoundError",
    "ModelQuotaError",
    "ModelRateLimitedError",
    "ModelRefusedError",
    "ModelStreamCutError",
    "ModelUnavailableError",
    "ModelUnreachableError",
    "NetworkFileSystemError",
    "NewerFormatError",
    "PathDeniedError",
    "PathNotFoundError",
    "PathOutsideError",
    "PathTwinError",
    "ReplayMismatchError",
    "RestoreError",
    "SandboxError",
    "SealBrokenError",
    "SearchUnavailableError",
    "SessionAmbiguousError",
    "SessionBusyError",
    "SessionErasedError",
    "SessionError",
    "SessionExistsError",
    "SessionForkedError",
    "SessionNotFoundError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreNotFoundError",
    "StoreReadOnlyError",
    "StoreSealedError",
    "StoreUnavailableError",
    "StoreUrlError",
    "ToolError",
    "TransitionError",
    "TurnEndedError",
    "TurnLimitError",
    "TurnStoppedError",
    "WorkspaceError",
    "WorkspaceMissingError",
]

# Programs and people know them by the public name, wherever each is written.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
