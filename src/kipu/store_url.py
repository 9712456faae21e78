"""Store URLs: which kind of store, where it is, and where what belongs to it stands."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from kipu.errors import StoreUrlError
from kipu.ports.home_path import home_path
from kipu.ports.url_settings import settings_in
from kipu.stores.postgres.address import Address
from kipu.stores.valkey.address import SCHEMES as VALKEY_SCHEMES
from kipu.stores.valkey.address import Address as ValkeyAddress

DURABILITIES = ("fsync", "buffered", "os")
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<place>[^?]*)(\?(?P<query>.*))?", re.DOTALL)
VAULT, MEMORY = "The key vault", "The memory"
SEALING = {"encrypt", "chain", "fields"}
_COMMON = {"durability", "archive", *SEALING}
_SERVERS = {"postgresql", "postgres"}
_SETTINGS = {
    "memory": {"archive", *SEALING},
    "sqlite": {*_COMMON, "network", "fallback"},
    "jsonl": {*_COMMON, "segment_bytes", "network", "index"},
}


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store URL taken apart.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `jsonl:///folder`, `memory://`, `postgresql://user@host/database`,
    `valkey://user@host`. `path` is where the store is or, of one on a server, where this machine keeps what is its own for it.
    """

    text: str
    kind: str
    path: Path = Path()
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        """Return the parts of a URL; `~` is the home folder.

        Raises:
            StoreUrlError: the kind, the path or a setting is not one that Kipu knows.
        """
        found = _URL.fullmatch(text)
        if found is None:
            raise StoreUrlError(url=text, reason="it has no scheme such as sqlite://")
        kind, place = found["scheme"], unquote(found["place"])
        if kind in _SERVERS:
            return cls._on_server(text, found["query"] or "", kind="postgresql", shown=Address.parse(text).shown)
        if kind in VALKEY_SCHEMES:
            return cls._on_server(text, found["query"] or "", kind="valkey", shown=ValkeyAddress.parse(text).shown)
        if kind not in _SETTINGS:
            raise StoreUrlError(url=text, reason=f"there is no store of the kind {kind!r}")
        query, _, fallback = (found["query"] or "").partition("fallback=")
        settings = dict(settings_in(query))
        if fallback:
            settings["fallback"] = unquote(fallback)
        unknown = sorted(set(settings) - _SETTINGS[kind])
        if unknown:
            raise StoreUrlError(url=text, reason=f"a {kind} store has no setting {unknown[0]!r}")
        if settings.get("durability", "fsync") not in DURABILITIES:
            raise StoreUrlError(url=text, reason=f"durability is one of {', '.join(DURABILITIES)}")
        if settings.get("chain", "on") != "on":
            raise StoreUrlError(url=text, reason="chain is on, or is left out")
        if "fields" in settings and not all(settings["fields"].split(",")):
            raise StoreUrlError(url=text, reason="fields is the names of fields with commas between them")
        if kind == "memory":
            return cls(text, kind, settings=settings)
        return cls(text, kind, _path_in(text, place), settings)

    @classmethod
    def _on_server(cls, text: str, query: str, *, kind: str, shown: str) -> StoreUrl:
        settings = {
            name: value for name, value in settings_in(query) if value and name in {"archive", "vault", *SEALING}
        }
        if "vault" in settings and not (is_database(settings["vault"]) or settings["vault"].startswith(("/", "~/"))):
            raise StoreUrlError(url=shown, reason="vault is postgresql://… or a directory by its whole path")
        name = hashlib.sha256(shown.encode()).hexdigest()[:16]
        return cls(text, kind, _data_folder(os.environ) / "servers" / name, settings)

    @property
    def keeps_its_own(self) -> bool:
        """Return True where the store's memory and, unless `vault=` says otherwise, its key vault are in its database."""
        return self.kind == "postgresql"

    @property
    def is_on_server(self) -> bool:
        """Return True where the sessions are on another machine, or may be."""
        return self.kind in {"postgresql", "valkey"}


def _path_in(text: str, place: str) -> Path:
    if not place.startswith("/") or place == "/":
        raise StoreUrlError(
            url=text, reason="after the scheme comes /path: three slashes, or four for an absolute path"
        )
    if "\0" in place:
        raise StoreUrlError(url=text, reason="no path has a character of the code 0 in it")
    return home_path(place[1:])


def default_store_url(environment: Mapping[str, str]) -> str:
    """Return the store that commands use when none is named: KIPU_STORE, else one database in the user's data folder."""
    if environment.get("KIPU_STORE"):
        return environment["KIPU_STORE"]
    return f"sqlite:///{quote(str(_data_folder(environment)), safe='/~')}/sessions.db"


def _data_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME", "")
    if not base.startswith("/"):  # the XDG rules: a relative one is as good as none
        base = f"{environment.get('HOME') or '~'}/.local/share"
    return Path(base, "kipu")


def is_database(url: str) -> bool:
    """Return True for the URL of a database that may hold a key vault."""
    return url.partition("://")[0] in _SERVERS


def vault_path(parsed: StoreUrl) -> Path | None:
    """Return the file of a store's key vault: beside it, so that a copy of the store alone opens nothing; None where it is no file."""
    named = parsed.settings.get("vault")
    if named:
        return None if is_database(named) else home_path(named) / "store.keys"
    return None if parsed.kind == "memory" or parsed.keeps_its_own else _beside(parsed, ".keys")


def archive_url(parsed: StoreUrl) -> str | None:
    """Return where a store's archives are by default: what `archive=` says, else a folder beside it; None where it has no place."""
    if parsed.settings.get("archive"):
        return parsed.settings["archive"]
    return None if parsed.kind == "memory" else str(parsed.path.with_name(f"{parsed.path.name}.archive"))


def memory_path(parsed: StoreUrl) -> Path | None:
    """Return where a store's memory is: a file beside it, made with the first fact; None where it is no file."""
    return None if parsed.kind == "memory" or parsed.keeps_its_own else _beside(parsed, ".memory")


def remains(parsed: StoreUrl) -> dict[str, Path]:
    """Return what an older release kept for a store in files of this machine, and the store keeps itself now: `kipu store migrate`."""
    if not parsed.keeps_its_own:
        return {}
    left = {VAULT: _beside(parsed, ".keys"), MEMORY: _beside(parsed, ".memory")}
    return {what: path for what, path in left.items() if path.exists()}


def _beside(parsed: StoreUrl, ending: str) -> Path:
    return parsed.path.with_name(f"{parsed.path.name}{ending}")
