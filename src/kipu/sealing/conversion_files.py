"""The files of a conversion: the store, its copy, and what it was before, each with what stands beside it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from kipu.ports.url_settings import settings_in
from kipu.stores.store_files import StoreFiles, overwrite


class ConversionFiles:
    """Know where they are, and move or destroy them. Every step that was done already finds nothing left to do."""

    def __init__(self, kind: str, path: Path, *, url: str) -> None:
        index = dict(settings_in(urlsplit(url).query)).get("index", "")
        self.store = StoreFiles(kind, path, index=index)
        self.copy = StoreFiles(kind, path.with_name(f"{path.name}.converted"), index=index)
        self.before = StoreFiles(kind, path.with_name(f"{path.name}.before"), index=index)

    def exchange(self) -> None:
        """Give the copy the store's name, and the store the name of what was before."""
        if self.copy.exists():
            if not self.before.exists():
                self.store.move_to(self.before.path)
            _move_beside(self.store.path, self.before.path)
            if archives_of(self.store.path).exists():
                archives_of(self.store.path).replace(archives_of(self.before.path))
            self.copy.move_to(self.store.path)
        _move_beside(self.copy.path, self.store.path)

    def discard_copy(self) -> None:
        """Throw away what was copied."""
        if self.copy.exists():
            self.copy.destroy()
        _destroy_beside(self.copy.path)

    def destroy_before(self) -> None:
        """Destroy what the store was."""
        _destroy_beside(self.before.path)  # the key first: what is left then opens no more
        StoreFiles("jsonl", archives_of(self.before.path)).destroy()
        if self.before.exists():
            self.before.destroy()


def archives_of(path: Path) -> Path:
    """Return the folder beside the store at `path` in which its archives are, where none was named."""
    return path.with_name(f"{path.name}.archive")


def vault_of(path: Path) -> Path:
    """Return where the vault of the store at `path` is."""
    return path.with_name(f"{path.name}.keys")


def _beside(path: Path) -> list[Path]:
    """Return the vault and what else stands beside the store, such as its memory, the vault last."""
    names = (".memory-journal", ".memory", ".keys-journal", ".keys.lock", ".keys")
    return [found for side in names if (found := path.with_name(path.name + side)).exists()]


def _move_beside(path: Path, to: Path) -> None:
    for here in _beside(path):
        here.replace(to.with_name(to.name + here.name.removeprefix(path.name)))


def _destroy_beside(path: Path) -> None:
    for here in _beside(path):
        overwrite(here)
        here.unlink()
