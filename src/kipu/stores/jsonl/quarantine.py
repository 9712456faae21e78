"""Bytes that are no record are kept beside the log, with where they stood and why: nothing is deleted (C16)."""

from __future__ import annotations

import os

import orjson

from kipu.ports.store import Damage
from kipu.stores.jsonl.medium import PRIVATE_FILE, make_folder, open_plain, sync_folder, write_all

FOLDER = "quarantine"
ROOT_FOLDER = ".quarantine"  # no session id has a dot


def keep_aside(
    folder: str, source: str, *, offset: int, data: bytes, reason: str, at: str, sync: bool, into: str = FOLDER
) -> None:
    """Write `data` to a new file of the folder's quarantine, durably: one line that says what it is, then the bytes."""
    place = os.path.join(folder, into)
    made = make_folder(place)
    said = {"source": source, "offset": offset, "length": len(data), "reason": reason, "at": at}
    fd, _ = _new_file(place, f"{source}-{offset:012d}")
    try:
        write_all(fd, orjson.dumps(said) + b"\n" + data)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if sync:
        sync_folder(place)
        if made:
            sync_folder(folder)


def move_aside(path: str, root: str, *, stem: str, sync: bool) -> None:
    """Move a file of a session's quarantine to the store's, durably."""
    place = os.path.join(root, ROOT_FOLDER)
    make_folder(place)
    fd, free = _new_file(place, stem)
    os.close(fd)
    os.replace(path, free)
    if sync:
        sync_folder(place)
        sync_folder(root)


def _new_file(place: str, stem: str) -> tuple[int, str]:
    number = 1
    while True:
        path = os.path.join(place, f"{stem}-{number}.bytes")
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE), path
        except FileExistsError:
            number += 1


def kept_aside(folder: str, session_id: str | None) -> list[Damage]:
    """Return what the quarantine of a folder holds, with the offsets where it stood."""
    name = FOLDER if session_id else ROOT_FOLDER
    place = os.path.join(folder, name)
    try:
        names = sorted(os.listdir(place))
    except FileNotFoundError:
        return []
    prefix = f"{session_id}/" if session_id else ""
    return [_describe(place, name, prefix, session_id) for name in names]


def _describe(place: str, name: str, prefix: str, session_id: str | None) -> Damage:
    where = f"{prefix}{os.path.basename(place)}/{name}"
    try:
        with open(os.path.join(place, name), "rb", opener=open_plain) as file:
            first = file.readline(1 << 16)
    except OSError as error:
        return Damage(session_id, "unreadable", where, detail=str(error.strerror))
    try:
        said = orjson.loads(first)
        detail = f"moved out of {prefix}{said['source']} at {said['at']}"
        return Damage(session_id, said["reason"], where, said["offset"], said["length"], detail=detail)
    except (ValueError, KeyError, TypeError):
        return Damage(session_id, "torn", where, detail="a quarantine file that was not finished")
