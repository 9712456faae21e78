"""Errors about what was moved out of a store into an archive."""

from __future__ import annotations

from kipu.errors.inputs import ConfigurationError
from kipu.errors.stores import StoreError


class SessionArchivedError(StoreError):
    """Session {session_id!r} has its events up to {until} in an archive. Bring them back: kipu unarchive {session_id}."""

    code = "session_archived"


class ArchiveError(StoreError):
    """The archive {name!r} at {place} cannot be used: {reason}. Nothing was removed; try again when the place answers."""

    code = "archive"


class ArchiveMissingError(ArchiveError):
    """The archive {name!r} is not at {place}. Bring the file back, or name where it is: kipu unarchive ID --from PLACE."""

    code = "archive_missing"


class ArchiveDamagedError(ArchiveError):
    """The archive {name!r} at {place} is damaged: {reason}. Nothing was changed; replace it by a good copy of the file."""

    code = "archive_damaged"


class ArchivePlaceError(ConfigurationError):
    """{place!r} is no place for archives: {reason}. Name a folder, or s3://bucket/folder with the extra s3 (pip install 'kipu[s3]')."""

    code = "archive_place"
