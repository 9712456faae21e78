"""Files that something happened to, imported."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kipu.interop.import_events import import_events
from kipu.interop.report import ImportReport
from kipu.manager.manager import SessionManager
from kipu.ports.store import StoredEvent
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.memory import MemoryStore
from kipu.wiring import open_manager


async def memory() -> SessionManager:
    store = await MemoryStore.open(clock=SystemClock(), liveness=SystemLiveness())
    return SessionManager(store, clock=SystemClock(), entropy=SystemEntropy(), owner=this_process_owner("test"))


def event(number: int, **fields: Any) -> bytes:
    line = {
        "event_id": f"e{number}",
        "event_type": "user_message",
        "timestamp": "2026-01-02T03:04:05Z",
        "session_id": "s",
        "content": f"text {number}",
    }
    return json.dumps({**line, **fields}).encode()


def whole_line(report: ImportReport) -> bool:
    return report.records == report.imported + report.raw + report.quarantined


async def events_of(manager: SessionManager, session_id: str) -> list[StoredEvent]:
    return [stored async for stored in (await manager.open(session_id)).records()]


BAD = {
    "broken": b"{oops",
    "text": "こんにちは, not JSON at all".encode(),
    "utf8": b'{"event_type":"note","x":"\xff\xfe"}',
    "surrogate": event(90, content="x").replace(b'"x"', b'"\\ud83d half"'),
    "nan": event(91, event_type="anything", x=1).replace(b'"x": 1', b'"x": NaN'),
    "nul": b"\0" * 300,
    "bom": b"\xef\xbb\xbf" + event(92),
    "separators": event(93, content="a\u2028b\u2029c\u0085d"),
    "deep": event(94, event_type="anything")[:-1] + b', "deep": ' + b"[" * 100 + b"]" * 100 + b"}",
    "deepest": event(95, event_type="anything")[:-1] + b', "deep": ' + b"[" * 99_999 + b"]" * 99_999 + b"}",
    "integer": event(96, event_type="anything", n=7).replace(b"7}", b"7" * 5_000 + b"}"),
    "torn": event(97)[:-15],
    "fused": event(98)[:-20] + event(99),
    "two": event(100) + event(101),
    "array": b"[1, 2, 3]",
    "no type": b'{"event_id": "e", "session_id": "s", "content": "what am I"}',
    "wrong types": event(102, content=17),
    "unknown": event(103, event_type="telepathy", strength=7),
    "bad time": event(104, timestamp="yesterday"),
    "no id": event(105, event_id=None),
    "second init": event(106, event_type="session_init"),
    "empty": b"",
    "odd seq": event(107, seq=-5),
    "control": event(108, content="\x1b[2J\x07"),
    "bad title": event(110, event_type="metadata_changed", set={"title": 17}),
    "bad tags": event(111, event_type="metadata_changed", set={"tags": "abc"}),
    "big": event(109, content="x" * 300_000),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_line_never_costs_the_others(tmp_path: Path, kind: str) -> None:
    """Whatever one line is, all others are imported in order, and its bytes are in an event or in quarantine (B28, C16)."""
    path = tmp_path / "file.jsonl"
    lines = [event(1), event(2), BAD[kind], event(3), event(4)]
    path.write_bytes(b"\n".join(lines))
    manager = await memory()
    report = await import_events(manager, path)
    assert whole_line(report)
    events = await events_of(manager, "s")
    good = [stored.record.event_id for stored in events if stored.record.event_id in {"e1", "e2", "e3", "e4"}]
    assert good == ["e1", "e2", "e3", "e4"]
    assert all(json.loads(stored.record.body) is not None for stored in events)
    texts = [stored.record.body.decode() for stored in events]
    if report.raw:
        notes = [
            json.loads(text)["data"]
            for text, stored in zip(texts, events, strict=True)
            if stored.record.event_type == "note"
        ]
        data = path.read_bytes()
        assert all(data[note["offset"] :].startswith(note["text"].encode()) for note in notes)
    if report.quarantined:
        assert report.quarantine is not None
        entries = [json.loads(line) for line in report.quarantine.read_bytes().splitlines()]
        assert len(entries) == report.quarantined
        for entry in entries:
            kept = base64.b64decode(entry["base64"])
            assert path.read_bytes()[entry["offset"] : entry["offset"] + entry["length"]] == kept
            assert entry["reason"]
    assert (await import_events(manager, path)).added == 0


EXPECTED = {
    "imported": {"surrogate", "nan", "bom", "separators", "two", "unknown", "bad time", "no id", "odd seq", "control", "big"},
    "raw": {
        "broken", "text", "deep", "deepest", "integer", "torn", "fused", "array", "no type", "wrong types", "second init",
        "bad title", "bad tags",
    },
    "quarantined": {"utf8", "nul"},
    "nothing": {"empty"},
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_line_is_kept_as_much_as_it_can_be(tmp_path: Path, kind: str) -> None:
    """What has a meaning is imported, what is text is kept as a note, and only bytes that are no text go to quarantine."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(event(1) + b"\n" + BAD[kind] + b"\n")
    report = await import_events(await memory(), path)
    counts = {"imported": report.imported - 1, "raw": report.raw, "quarantined": report.quarantined}
    wanted = next(name for name, kinds in EXPECTED.items() if kind in kinds)
    assert [name for name, count in counts.items() if count and name != "imported"] == (
        [] if wanted in {"imported", "nothing"} else [wanted]
    )
    assert counts["imported"] == {"two": 2, "fused": 1}.get(kind, 1 if wanted == "imported" else 0)


def any_line() -> st.SearchStrategy[bytes]:
    """Return lines good and bad, numbered and not, of several sessions."""
    numbered = st.builds(
        lambda seq, session, kind: event(seq, seq=seq, session_id=session, event_type=kind, event_id=f"{session}{seq}"),
        st.integers(min_value=1, max_value=8),
        st.sampled_from(["s", "t", "Not An Id", ""]),
        st.sampled_from(["user_message", "session_init", "telepathy", "tool_call"]),
    )
    good = st.builds(
        lambda number, session: event(number, session_id=session), st.integers(1, 9), st.sampled_from("st")
    )
    junk = st.one_of(st.sampled_from(sorted(BAD.values())), st.binary(max_size=30))
    cut = st.builds(lambda line, at: line[:at], good, st.integers(min_value=0, max_value=60))
    return st.one_of(good, numbered, junk, cut)


@settings(max_examples=150)
@given(st.lists(any_line(), max_size=14), st.sampled_from([b"\n", b"\r\n", b"\n\n"]), st.booleans())
def test_every_record_ends_in_exactly_one_account(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, torn: bool
) -> None:
    """For any file, records = imported + raw + quarantined, the accounts agree with the store, and twice is once (C23)."""
    path = tmp_path_factory.mktemp("import") / "file.jsonl"
    path.write_bytes(end.join(lines) + (b"" if torn else end))
    if path.read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return

    async def run() -> None:
        manager = await memory()
        report = await import_events(manager, path)
        assert whole_line(report)
        stored = [event for session in report.sessions for event in await events_of(manager, session.session_id)]
        notes = [event for event in stored if b'"kipu.import.raw"' in event.record.body]
        assert len(notes) == report.raw
        assert len(stored) == report.added
        entries = report.quarantine.read_bytes().splitlines() if report.quarantine else []
        assert len(entries) == report.quarantined
        for session in report.sessions:
            await (await manager.open(session.session_id)).get_context_for_llm()
        again = await import_events(manager, path)
        assert (again.added, again.records, again.raw, again.quarantined) == (
            0, report.records, report.raw, report.quarantined,
        )  # fmt: skip
        assert again.sessions == tuple(
            type(session)(session.session_id, session.source_session_id, session.events, 0)
            for session in report.sessions
        )

    asyncio.run(run())


async def test_numbers_stay_when_lines_are_missing(tmp_path: Path) -> None:
    """Where numbered lines are lost, later events keep their numbers, since others refer to them by number (C16)."""
    path = tmp_path / "file.jsonl"
    numbered = {n: event(n, seq=n) for n in (2, 3, 4, 6, 9)}
    path.write_bytes(
        b"\n".join([numbered[2], numbered[3], numbered[4], b"{broken", numbered[6], numbered[9], numbered[3]])
    )
    manager = await memory()
    report = await import_events(manager, path)
    assert (report.records, report.imported, report.raw) == (7, 6, 1)
    events = await events_of(manager, "s")
    assert [stored.record.event_id for stored in events if stored.record.event_id.startswith("e")] == [
        "e2", "e3", "e4", "e6", "e9",
    ]  # fmt: skip
    assert [
        (stored.seq, stored.record.event_type) for stored in events if stored.record.event_type != "user_message"
    ] == [
        (1, "session_init"),
        (5, "note"),
        (7, "damaged"),
        (8, "damaged"),
    ]
    assert all(stored.seq == int(stored.record.event_id[1:]) for stored in events if stored.record.event_id[0] == "e")


@pytest.mark.parametrize(
    "odd",
    [
        {"event_type": "model_call", "model": "m", "window": {"from": 900}},
        {"event_type": "note", "kind": "kipu.window", "data": {"from": True}},
        {"event_type": "rewind", "to_seq": 4, "window_seq": 900},
        {"event_type": "session_init", "inherited": {"window_seq": 900, "pins": [900]}},
    ],
    ids=lambda odd: str(odd["event_type"]),
)
async def test_a_window_never_starts_behind_what_is_there(tmp_path: Path, odd: dict[str, Any]) -> None:
    """A file whose events were numbered elsewhere may say anything of its window: the model is shown what was said (C16, B33)."""
    lines = [event(1), event(2), event(3)]
    lines.insert(
        0 if odd["event_type"] == "session_init" else 3,
        event(9, content=None, **odd).replace(b', "content": null', b""),
    )
    path = tmp_path / "file.jsonl"
    path.write_bytes(b"\n".join(lines))
    url = f"sqlite:///{tmp_path}/a.db"
    async with await open_manager(url) as manager:
        assert (await import_events(manager, path)).imported == 4
    async with await open_manager(url) as manager:
        session = await manager.open("s")
        assert (session.head.window_seq, session.head.pins) == (0, ())
        assert "text 3" in str(await session.get_context_for_llm())


async def test_a_record_of_twenty_megabytes_is_imported(tmp_path: Path) -> None:
    """Size is never damage (situation 17)."""
    path = tmp_path / "file.jsonl"
    result = {"tool_call_id": "c", "result": "z" * 20_000_000}
    path.write_bytes(event(1) + b"\n" + event(2, event_type="tool_result", **result) + b"\n" + event(3) + b"\n")
    async with await open_manager(f"sqlite:///{tmp_path}/a.db") as manager:
        report = await import_events(manager, path)
        assert (report.imported, report.records) == (3, 3)
        session = await manager.open("s")
        (digest,) = await manager.store.blobs("s")
        assert len(await session.blob(digest)) == 20_000_000


_SCRIPT = """
import asyncio, sys
from pathlib import Path
from kipu.interop.import_events import import_events
from kipu.wiring import open_manager

async def main():
    async with await open_manager(sys.argv[1]) as manager:
        await import_events(manager, Path(sys.argv[2]), progress=lambda done, total: print(done, flush=True))
        print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_an_import_killed_in_the_middle_goes_on(tmp_path: Path, kind: str) -> None:
    """An import killed at any point and run again ends with every event once (C16)."""
    path = tmp_path / "file.jsonl"
    path.write_bytes(b"".join(event(number, session_id=f"s{number % 2}") + b"\n" for number in range(3_000)) + b"{torn")
    url = {"sqlite": f"sqlite:///{tmp_path}/a.db", "jsonl": f"jsonl:///{tmp_path}/a"}[kind]
    for share in (0.2, 0.5, 0.9):
        process = subprocess.Popen([sys.executable, "-c", _SCRIPT, url, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            assert line.strip() != "done"
            if int(line) >= share * path.stat().st_size:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.stdout.close()
        process.wait()
    async with await open_manager(url) as manager:
        report = await import_events(manager, path)
        assert (report.imported, report.raw) == (3_000, 1)
        for name in (0, 1):
            ids = [stored.record.event_id for stored in await events_of(manager, f"s{name}")]
            assert ids[1:1501] == [f"e{number}" for number in range(name, 3_000, 2)]
        assert (await import_events(manager, path)).added == 0
    assert not list(tmp_path.glob("*.quarantine.jsonl"))
