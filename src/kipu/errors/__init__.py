"""Every error Kipu raises, in one tree.

    KipuError
    ├── InputError                      what was given cannot be used; nothing was changed
    │   ├── InvalidEventError
    │   ├── InvalidSessionIdError
    │   ├── InvalidSessionKeyError
    │   ├── InvalidQueryError
    │   ├── ImportFormatError
    │   │   └── PersonArchiveError
    │   ├── MessageRejectedError
    │   ├── InvalidBusyPolicyError
    │   ├── ApprovalNotFoundError
    │   ├── GrantNotFoundError
    │   ├── FactNotFoundError
    │   ├── ProposalNotFoundError
    │   ├── InvalidProposalError
    │   ├── ProposalRepeatedError
    │   ├── ProposalUntriedError
    │   ├── ProposalSuspectError
    │   └── ConfigurationError
    │       ├── StoreUrlError
    │       ├── KeySourceError
    │       ├── ArchivePlaceError
    │       └── MissingExtraError
    ├── SessionError                    about one session
    │   ├── SessionNotFoundError
    │   ├── SessionExistsError
    │   ├── SessionErasedError
    │   ├── SessionBusyError
    │   ├── SessionForkedError
    │   ├── SessionHeldError
    │   ├── ErasureUnfinishedError
    │   ├── SessionAmbiguousError
    │   ├── ReplayMismatchError
    │   └── TransitionError
    ├── ConcurrencyError                somebody else was there first
    │   ├── LeaseLostError
    │   ├── LeaseRequiredError
    │   ├── ConflictError
    │   ├── ProposalDecidedError
    │   └── ProposalMovedError
    ├── AccessDeniedError
    ├── NotAPersonError
    ├── DemoStepError                   the guided tour did not show what it says
    ├── TurnEndedError                  a running turn is to end; what is open in it is closed
    │   ├── TurnStoppedError
    │   └── TurnLimitError
    ├── CallParkedError                 a call waits for a person elsewhere, and its turn with it
    ├── WorkspaceError                  the files cannot be reached as asked; none was changed
    │   ├── PathOutsideError
    │   ├── PathNotFoundError
    │   ├── PathDeniedError
    │   ├── PathTwinError
    │   ├── WorkspaceMissingError
    │   ├── GitError
    │   ├── RestoreError
    │   ├── HostBoundError
    │   ├── SharedRootError
    │   └── WorkspaceTooLargeError
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
        │   ├── KeyRetiredError
        │   ├── KeyServiceError
        │   ├── KeysBusyError
        │   ├── DataKeyMissingError
        │   │   └── DataKeyDestroyedError
        │   ├── KeysMissingError
        │   └── StoreSealedError
        ├── OlderFormatError
        ├── LocalRemainsError
        ├── StoreInUseError
        ├── StoreConvertingError
        ├── StoreMovedError
        ├── MoveRunningError
        ├── MoveStoppedError
        ├── CopyUnsealsError
        ├── StoreBeingFilledError
        ├── OlderReleaseError
        ├── StoreClosedError
        ├── NetworkFileSystemError
        ├── BlobNotFoundError
        ├── SessionArchivedError
        ├── ArchiveError                what was moved out of a store cannot be had; nothing of it was removed
        │   ├── ArchiveMissingError
        │   └── ArchiveDamagedError
        ├── SearchUnavailableError
        └── CopyMismatchError

A class's docstring is its message template followed by the next step; its data are attributes. `code` is stable: programs
may match on it. Driver errors never leave an adapter untranslated.
"""

from __future__ import annotations

from kipu.errors.archives import (
    ArchiveDamagedError,
    ArchiveError,
    ArchiveMissingError,
    ArchivePlaceError,
    SessionArchivedError,
)
from kipu.errors.concurrency import ConcurrencyError, ConflictError, LeaseLostError, LeaseRequiredError
from kipu.errors.inputs import (
    ApprovalNotFoundError,
    ConfigurationError,
    FactNotFoundError,
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
    PersonArchiveError,
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
from kipu.errors.proposals import (
    InvalidProposalError,
    NotAPersonError,
    ProposalDecidedError,
    ProposalMovedError,
    ProposalNotFoundError,
    ProposalRepeatedError,
    ProposalSuspectError,
    ProposalUntriedError,
)
from kipu.errors.sessions import (
    AccessDeniedError,
    ErasureUnfinishedError,
    ReplayMismatchError,
    SessionAmbiguousError,
    SessionBusyError,
    SessionErasedError,
    SessionError,
    SessionExistsError,
    SessionForkedError,
    SessionHeldError,
    SessionNotFoundError,
    TransitionError,
)
from kipu.errors.stores import (
    BlobNotFoundError,
    CopyMismatchError,
    CopyUnsealsError,
    DataKeyDestroyedError,
    DataKeyMissingError,
    EncryptionError,
    KeyRetiredError,
    KeysBusyError,
    KeyServiceError,
    KeysMissingError,
    KeyUnavailableError,
    LocalRemainsError,
    MoveRunningError,
    MoveStoppedError,
    NetworkFileSystemError,
    NewerFormatError,
    OlderFormatError,
    OlderReleaseError,
    SealBrokenError,
    SearchUnavailableError,
    StoreBeingFilledError,
    StoreClosedError,
    StoreConvertingError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreInUseError,
    StoreMovedError,
    StoreNotFoundError,
    StoreReadOnlyError,
    StoreSealedError,
    StoreUnavailableError,
)
from kipu.errors.tools import DemoStepError, McpServerError, SandboxError, ToolError
from kipu.errors.turns import CallParkedError, TurnEndedError, TurnLimitError, TurnStoppedError
from kipu.errors.workspaces import (
    GitError,
    HostBoundError,
    PathDeniedError,
    PathNotFoundError,
    PathOutsideError,
    PathTwinError,
    RestoreError,
    SharedRootError,
    WorkspaceError,
    WorkspaceMissingError,
    WorkspaceTooLargeError,
)

__all__ = [
    "AccessDeniedError",
    "ApprovalNotFoundError",
    "ArchiveDamagedError",
    "ArchiveError",
    "ArchiveMissingError",
    "ArchivePlaceError",
    "BlobNotFoundError",
    "CallParkedError",
    "ConcurrencyError",
    "ConfigurationError",
    "ConflictError",
    "CopyMismatchError",
    "CopyUnsealsError",
    "DataKeyDestroyedError",
    "DataKeyMissingError",
    "DemoStepError",
    "EncryptionError",
    "ErasureUnfinishedError",
    "FactNotFoundError",
    "GitError",
    "GrantNotFoundError",
    "HostBoundError",
    "ImportFormatError",
    "InputError",
    "InvalidBusyPolicyError",
    "InvalidEventError",
    "InvalidProposalError",
    "InvalidQueryError",
    "InvalidSessionIdError",
    "InvalidSessionKeyError",
    "KeyRetiredError",
    "KeyServiceError",
    "KeySourceError",
    "KeyUnavailableError",
    "KeysBusyError",
    "KeysMissingError",
    "KipuError",
    "LeaseLostError",
    "LeaseRequiredError",
    "LocalRemainsError",
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
    "MoveRunningError",
    "MoveStoppedError",
    "NetworkFileSystemError",
    "NewerFormatError",
    "NotAPersonError",
    "OlderFormatError",
    "OlderReleaseError",
    "PathDeniedError",
    "PathNotFoundError",
    "PathOutsideError",
    "PathTwinError",
    "PersonArchiveError",
    "ProposalDecidedError",
    "ProposalMovedError",
    "ProposalNotFoundError",
    "ProposalRepeatedError",
    "ProposalSuspectError",
    "ProposalUntriedError",
    "ReplayMismatchError",
    "RestoreError",
    "SandboxError",
    "SealBrokenError",
    "SearchUnavailableError",
    "SessionAmbiguousError",
    "SessionArchivedError",
    "SessionBusyError",
    "SessionErasedError",
    "SessionError",
    "SessionExistsError",
    "SessionForkedError",
    "SessionHeldError",
    "SessionNotFoundError",
    "SharedRootError",
    "StoreBeingFilledError",
    "StoreClosedError",
    "StoreConvertingError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreInUseError",
    "StoreMovedError",
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
    "WorkspaceTooLargeError",
]

# Programs and people know them by the public name, wherever each is written.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
