"""The store cannot do it; nothing was acknowledged."""

from __future__ import annotations

from kipu.errors.kipu_error import KipuError


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


class OlderFormatError(StoreError):
    """The tables of {store} are those of an older Kipu: {reason}. Run `kipu store migrate` once; nothing was changed."""

    code = "older_format"


class LocalRemainsError(StoreError):
    """{what} of {store} is in {path} on this machine; the database keeps it now. Run `kipu store migrate` here; nothing was changed."""

    code = "local_remains"


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
    """{what} is under key {kek!r}; given: {given}. Give the key it was made with (`kipu key status` tells which); nothing was changed."""

    code = "key_unavailable"


class KeyRetiredError(EncryptionError):
    """Key {kek!r} of {store} was rotated away and wraps nothing more. Start this again with the store's new key; nothing was changed."""

    code = "key_retired"


class KeyServiceError(EncryptionError):
    """The key service {service!r} did not {verb} a data key: {reason}. Try again when it answers; nothing was changed."""

    code = "key_service"


class KeysBusyError(EncryptionError):
    """The keys of {store} are being rotated by another process. Nothing was changed; run it again when that one has ended."""

    code = "keys_busy"


class DataKeyMissingError(EncryptionError):
    """The data key of session {session_id!r} is not there: {reason}. What it sealed stands unread; restore the key vault."""

    code = "data_key_missing"


class DataKeyDestroyedError(DataKeyMissingError):
    """The data key of session {session_id!r} was destroyed: the session is being erased. Open the store for writing to end that."""

    code = "data_key_destroyed"


class KeysMissingError(EncryptionError):
    """The store {store} {holds}, and {vault} has no keys for it. {advice} Nothing was changed."""

    code = "keys_missing"


class StoreSealedError(EncryptionError):
    """The store {store} is encrypted (key vault: {vault}); its key is wanted: {source}. See `kipu key status`."""

    code = "store_sealed"


class StoreInUseError(StoreError):
    """The store {store} is open in another process. End that first (`kipu chat`, a worker, a server); nothing was changed."""

    code = "store_in_use"


class StoreConvertingError(StoreError):
    """The store {store} is being {verb}: {reason}. `kipu {command}` finishes it when run again; nothing was changed."""

    code = "store_converting"


class StoreMovedError(StoreError):
    """The store {store} {state} to {other}: nothing was changed here. {advice}."""

    code = "store_moved"


class MoveRunningError(StoreError):
    """{store} is being moved to {other} by another process ({holder}). Let that one finish, or end it and run this again."""

    code = "move_running"


class MoveStoppedError(StoreError):
    """{store} was not moved to {other}: {reason}. It is in use as before, and what was copied is kept to go on with."""

    code = "move_stopped"


class CopyUnsealsError(StoreError):
    """{store} is encrypted and {other} is not: a copy there could be read by whoever has its files. Encrypt it, or say --decrypt."""

    code = "copy_unseals"


class StoreBeingFilledError(StoreError):
    """The store {store} is being filled from {other}, and is not to be written yet. `kipu copy {other} {store} --cut-over` ends that."""

    code = "store_being_filled"


class OlderReleaseError(StoreError):
    """{store} is written by a release of format {format} ({age_s} s ago). End it and try again in two minutes; nothing was changed."""

    code = "older_release"


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
