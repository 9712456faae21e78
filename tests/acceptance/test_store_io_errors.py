"""Every n-th write, sync, cut and rename fails: no false acknowledgement, the old state intact, a typed error."""

from __future__ import annotations

import asyncio
import errno
import shutil
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kipu.errors import KipuError, StoreError, StoreFullError, StoreUnavailableError
from kipu.ports.clock import Clock
from kipu.ports.owner import Liveness
from kipu.ports.store import Binding, EventStore
from kipu.stores.sqlite import SqliteStore
from kipu.testing.conformance import FunctionPlace, Place
from kipu.testing.conformance.jobs import append_many, append_until_killed
from kipu.testing.conformance.place import Capabilities
from kipu.testing.conformance.runner import places_like, subject_at
from kipu.testing.conformance.second_process import command, environment
from kipu.testing.conformance.subject import Subject, texts
from kipu.testing.faults.failing_calls import CallFaults, failing_calls
from kipu.testing.faults.failing_vfs import DiskFaults, failing_vfs

JSONL = "jsonl:///x?segment_bytes=4096"
BLOB = b"blob" * 5000


class Witness:
    """What was acknowledged, and what was refused while the disk failed."""

    def __init__(self) -> None:
        self.texts: list[str] = ["begin"]
        self.refused: list[str] = []
        self.errors: list[Exception] = []
        self.bound = False

    async def attempt(self, store: EventStore, subject: Subject, text: str) -> None:
        """Append under a key, and remember what came of it."""
        try:
            await subject.say(store, "s1", text=text, idempotency_key=text)
        except Exception as error:  # noqa: BLE001 - what it is, is judged below
            self.errors.append(error)
            self.refused.append(text)
        else:
            self.texts.append(text)

    async def try_all(self, store: EventStore, subject: Subject) -> None:
        """Make every kind of writing call."""
        await self.attempt(store, subject, "a")
        await self.attempt(store, subject, "b" * 6000)
        await asyncio.gather(*(self.attempt(store, subject, f"c{n}") for n in range(3)))
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.put_blob("s1", BLOB),
            lambda: store.claim("s1", owner="h/b/1/1/w", ttl_s=15),
            lambda: store.append("s1", [subject.record("bound")], bind=Binding("k:1"), idempotency_key="bound"),
            lambda: store.append("s2", [subject.record(event_type="session_init")], head=subject.first_patch()),
        ]
        for number, call in enumerate(calls):
            try:
                await call()
            except Exception as error:  # noqa: BLE001 - what it is, is judged below
                self.errors.append(error)
            else:
                self.bound = self.bound or number == 2
        if self.bound:
            self.texts.append("bound")

    def check_errors(self) -> None:
        """Say that whatever was raised is a typed store error with its next step."""
        strangers = [error for error in self.errors if not isinstance(error, StoreError)]
        told = ["".join(traceback.format_exception(error)[-6:]) for error in strangers]
        assert not strangers, f"untyped errors: {strangers!r}\n" + "\n".join(told)


async def prepare(place: Place) -> None:
    """Begin a session before anything fails."""
    async with subject_at(place) as subject:
        await subject.begin(await subject.open(), "s1")


async def expect_intact(place: Place, witness: Witness) -> None:
    """Open the place with a healthy disk: what was acknowledged is there once, what was refused is not, and it goes on."""
    async with subject_at(place) as subject:
        store = await subject.open()
        found = await texts(store, "s1")
        assert sorted(found) == sorted(witness.texts), "what stands, against what was acknowledged"
        assert (await store.resolve("k:1") == "s1") == witness.bound, "whether the key was bound with its event"
        for text in witness.refused:
            retried = await subject.say(store, "s1", text=text, idempotency_key=text)
            assert not retried.duplicate
        await subject.say(store, "s1", text="goes on")
        head = await store.head("s1")
        assert head is not None
        assert head.last_seq == head.event_count == len(await texts(store, "s1"))
        for digest in await store.blobs("s1"):
            assert await store.get_blob("s1", digest) == BLOB


async def fail_calls(folder: Path, *, nth: int, code: int, lasting: bool, short: bool) -> CallFaults:
    """Let the n-th call fail in a run of every writing call, and check the outcome; return the faults that were made."""
    place = places_like(JSONL)(folder)
    await prepare(place)
    witness = Witness()
    faults = CallFaults(folder, nth=nth, code=code, lasting=lasting, short=short)
    async with subject_at(place) as subject:
        store = await subject.open()
        with failing_calls(faults):
            await witness.try_all(store, subject)
        witness.check_errors()
        if short:
            assert not witness.refused
        await say_afterwards(subject, store, witness)
    await expect_intact(place, witness)
    return faults


async def say_afterwards(subject: Subject, store: EventStore, witness: Witness) -> None:
    """Append through the same store once the disk is well: it works, or says what to do."""
    before = len(witness.errors)
    await witness.attempt(store, subject, "afterwards")
    assert len(witness.errors) == before or isinstance(witness.errors[-1], StoreError)


async def fail_each_call(folder: Path, *, step: int, code: int, lasting: bool = False, short: bool = False) -> int:
    """Fail every `step`-th of all calls, one per run; return how many runs there were."""
    runs = 0
    nth = 1
    while True:
        place = folder / f"{code}-{lasting}-{short}-{nth}"
        place.mkdir()
        faults = await fail_calls(place, nth=nth, code=code, lasting=lasting, short=short)
        shutil.rmtree(place)
        if not faults.broken:
            return runs
        runs += 1
        nth += step


@pytest.mark.parametrize(
    ("code", "lasting"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, True)]
)
async def test_jsonl_keeps_the_old_state_when_a_call_fails(code: int, lasting: bool, tmp_path: Path) -> None:
    """Whichever write, sync, cut, rename or open fails, nothing is acknowledged that is not there (A52, B25, C16, A51)."""
    assert await fail_each_call(tmp_path, step=5, code=code, lasting=lasting) > 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "lasting"), [(errno.EIO, False), (errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, True)]
)
async def test_jsonl_keeps_the_old_state_whichever_call_fails(code: int, lasting: bool, tmp_path: Path) -> None:
    """The same for every single call (A52, B25, C16, A51)."""
    assert await fail_each_call(tmp_path, step=1, code=code, lasting=lasting) > 15


async def test_jsonl_continues_short_writes(tmp_path: Path) -> None:
    """A write that took only half is continued, and nobody notices (C2, C16)."""
    assert await fail_each_call(tmp_path, step=3, code=0, lasting=True, short=True) > 1


async def fail_disk(folder: Path, *, nth: int, full: bool, lasting: bool) -> DiskFaults:
    """Let the n-th call of SQLite's file system fail in a run of every writing call, and check the outcome."""
    faults = DiskFaults(full=full, lasting=lasting)
    witness = Witness()
    with failing_vfs(f"kipu-faults-{folder.name}", faults) as vfs:

        async def opened(*, clock: Clock, liveness: Liveness) -> EventStore:
            return await SqliteStore.open(folder / "store.db", clock=clock, liveness=liveness, vfs=vfs.name)

        place = FunctionPlace(opened, Capabilities(), folder)
        await prepare(place)
        async with subject_at(place) as subject:
            store = await subject.open()
            faults.seen, faults.nth = 0, nth
            await witness.try_all(store, subject)
            faults.nth = 0
            witness.check_errors()
            await say_afterwards(subject, store, witness)
    await expect_intact(places_like("sqlite:///x")(folder), witness)
    return faults


async def fail_each_disk_call(folder: Path, *, step: int, full: bool, lasting: bool) -> int:
    """Fail every `step`-th of all calls, one per run; return how many runs there were."""
    runs, nth = 0, 1
    while True:
        place = folder / f"{full}-{lasting}-{nth}"
        place.mkdir()
        faults = await fail_disk(place, nth=nth, full=full, lasting=lasting)
        shutil.rmtree(place)
        if not faults.broken:
            return runs
        runs += 1
        nth += step


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("full", "lasting"), [(False, False), (True, False), (True, True), (False, True)])
async def test_sqlite_keeps_the_old_state_when_a_call_fails(full: bool, lasting: bool, tmp_path: Path) -> None:
    """Whichever write, sync or cut of the engine fails, nothing is acknowledged that is not there (A48, A52, B25, C16)."""
    assert await fail_each_disk_call(tmp_path, step=7, full=full, lasting=lasting) > 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("full", "lasting"), [(False, False), (True, False), (True, True), (False, True)])
async def test_sqlite_keeps_the_old_state_whichever_call_fails(full: bool, lasting: bool, tmp_path: Path) -> None:
    """The same for every single call (A48, A52, B25, C16)."""
    assert await fail_each_disk_call(tmp_path, step=1, full=full, lasting=lasting) > 15


@pytest.mark.parametrize("url", ["sqlite:///x", "jsonl:///x"])
def test_store_says_that_a_file_may_not_grow(url: str, tmp_path: Path) -> None:
    """Where the system forbids a file to grow the writer gets a typed error, and what was acknowledged is there (C16, B25)."""
    place = places_like(url)(tmp_path)
    asyncio.run(prepare(place))
    limited = command(append_until_killed, place, name="w", session_id="s1", size=10_000)
    script = (
        "import resource, runpy, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        "exec(sys.argv.pop(1))\n"
    )
    done = subprocess.run(
        [limited[0], "-c", script, *limited[2:]], env=environment(), capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 1
    last = done.stderr.decode().strip().splitlines()[-1]
    assert last.startswith(("kipu.errors.StoreFullError", "kipu.errors.StoreUnavailableError")), last
    told = done.stdout.count(b"\n")
    assert told > 5

    async def check() -> None:
        async with subject_at(place) as subject:
            store = await subject.open()
            assert len(await texts(store, "s1")) == told + 1
            await subject.say(store, "s1", text="goes on")

    asyncio.run(check())


@pytest.mark.skipif(shutil.which("strace") is None or sys.platform != "linux", reason="strace is not installed")
@pytest.mark.parametrize(
    ("url", "call", "error"),
    [
        ("sqlite:///x", "fdatasync", "EIO"),
        ("sqlite:///x", "pwrite64", "ENOSPC"),
        ("jsonl:///x", "fdatasync", "EIO"),
        ("jsonl:///x", "write", "EIO"),
    ],
)
def test_store_survives_calls_that_the_kernel_refuses(url: str, call: str, error: str, tmp_path: Path) -> None:
    """With calls refused from the kernel's side, engine included, the writer ends with a typed error and loses nothing (C16)."""
    place = places_like(url)(tmp_path)
    asyncio.run(prepare(place))
    writer = command(append_many, place, name="w", session_ids=["s1"], count=100)
    names = ["store.db", "store.db-wal", "store/s1/000001.jsonl"]
    files = [flag for name in names for flag in ("-P", str(tmp_path / name))]
    inject = f"inject={call}:error={error}:when=12+"
    traced = ["strace", "-f", "-qq", "-o", "/dev/null", *files, "-e", f"trace={call}", "-e", inject]
    done = subprocess.run([*traced, *writer], env=environment(), capture_output=True, check=False, timeout=120)
    last = (done.stderr.decode().strip().splitlines() or [""])[-1]
    assert done.returncode == 1, "the fault was not met"
    assert last.startswith("kipu.errors.Store"), last

    async def check() -> None:
        async with subject_at(place) as subject:
            store = await subject.open()
            found = await texts(store, "s1")
            told = done.stdout.count(b"\n")
            assert found[: told + 1] == ["begin", *(f"w.{number}" for number in range(told))]
            # The process ended before it could take back what the kernel would not sync: its outcome is open, as in a kill.
            assert len(found) <= told + 2
            await subject.say(store, "s1", text="goes on")

    asyncio.run(check())


def test_full_is_a_kind_of_unavailable() -> None:
    """A full store is one that is unavailable now, with its own code and next step (B25)."""
    assert issubclass(StoreFullError, StoreUnavailableError)
    assert issubclass(StoreUnavailableError, KipuError)
    assert StoreFullError.code != StoreUnavailableError.code
