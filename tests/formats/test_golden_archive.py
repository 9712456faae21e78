"""The golden archive: what the first version wrote still reads (C18)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kipu.archive.archive_reader import ArchiveReader
from kipu.archive.place import FolderPlace
from kipu.ports.store import Outcome

GOLDEN = Path(__file__).parent / "golden" / "archive-v1"


async def test_the_first_versions_archive_still_reads() -> None:
    """Events, a blob, outcomes, keys and head of a format 1 archive are what they were (C18, B48)."""
    (file,) = GOLDEN.iterdir()
    reader = await ArchiveReader.open(FolderPlace(GOLDEN), file.name, session_id="golden")
    assert await reader.verify() == 5
    page = await reader.page(after=0, until=9, limit=9, backwards=False)
    assert [event.record.event_id for event in page] == ["e1", "e2", "e3", "e4", "e5"]
    assert page[2].record.body == b'{"content": "\xc2\x85 3 %s", "x":1.50}' % (b"z" * 50)
    assert (page[0].record.tokens, page[0].record.trace_id, page[0].record.v) == (3, "t", 2)
    assert await reader.blob(hashlib.sha256(b"a picture").hexdigest()) == b"a picture"
    assert await reader.outcomes() == [Outcome("a key", 2, 2)]
    assert reader.manifest.keys == ("cli:golden",)
    assert reader.manifest.head["title"] == "kept since version 1"
