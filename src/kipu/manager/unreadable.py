"""The errors of one session that cannot be read, though the store can be: they keep nobody from the others."""

from kipu.errors import ArchiveError, DataKeyMissingError, StoreCorruptError, StoreUnavailableError

# A file of a session may be out of reach as a whole store is; of a store that cannot be asked at all, what asks next says so.
UNREADABLE = (ArchiveError, DataKeyMissingError, StoreCorruptError, StoreUnavailableError)
