"""A `valkey://` or `redis://` URL taken apart: which servers, which keys, and what is Kipu's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from kipu.errors import StoreUrlError
from kipu.ports.url_settings import settings_in

SCHEMES = frozenset({"valkey", "redis", "valkeys", "rediss"})
_TLS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
_OWN = frozenset({"db", "prefix", "connections", "timeout_s", "notify", "durability", "replicas"})
# What is for those around the store, and not its own.
_OTHERS = frozenset({"archive", "vault", "encrypt", "chain", "fields"})
_PREFIX = re.compile(r"[a-z0-9_.-]{1,64}")
_HOST = re.compile(r"(?P<host>[^\s:\[\]@/]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d{1,5}))?")
_CLIENTS_OWN = ("VALKEYCLI_AUTH", "REDISCLI_AUTH")
_NOT_TAKEN_APART = (
    "it cannot be taken apart; in a name or a password / : @ ? # and % are written as %2F %3A %40 %3F %23 %25"
)
MOST_CONNECTIONS = 64
DEFAULT_PORT = 6379


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and how it is used. `shown` has no password; of several hosts the one that takes writes is used."""

    shown: str
    hosts: tuple[tuple[str, int], ...]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    db: int = 0
    prefix: str = "kipu"
    connections: int = 8
    timeout_s: float = 10.0
    notify: bool = True
    wants_fsync: bool = False
    replicas: int = 0
    tls: Mapping[str, str] | None = None

    @property
    def client_url(self) -> str:
        """Return the URL for a client of its own beside the store, with the password: for nobody's eyes."""
        host, port = self.hosts[0]
        named = quote(self.user or "", safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        place = f"[{host}]" if ":" in host else host
        query = urlencode({"prefix": self.prefix, **(self.tls or {})}, quote_via=quote)
        scheme = "valkey" if self.tls is None else "valkeys"
        return f"{scheme}://{named}{'@' if named else ''}{place}:{port}/{self.db}?{query}"

    @classmethod
    def parse(cls, url: str, *, environment: Mapping[str, str] | None = None) -> Address:
        """Return the parts of a URL. A password that it lacks is taken from VALKEYCLI_AUTH or REDISCLI_AUTH, as the clients do.

        Raises:
            StoreUrlError: it cannot be taken apart, or a setting is not one of this store; no word of it holds the password.
        """
        try:
            url.encode()  # half a character is in no name
            parts = urlsplit(url)
            settings = dict(settings_in(parts.query, strict=True))
            user, password, hosts, shown = _places(url)
        except ValueError:
            # Neither it nor its text is shown: what cannot be taken apart may hold the password anywhere.
            raise StoreUrlError(url="valkey://…", reason=_NOT_TAKEN_APART) from None
        is_tls = parts.scheme in {"valkeys", "rediss"}
        unknown = sorted(settings.keys() - _OWN - _OTHERS - (_TLS if is_tls else frozenset()))
        if unknown:
            raise StoreUrlError(url=shown, reason=f"a {parts.scheme} store has no setting {unknown[0]!r}")
        if settings.get("durability", "fsync") != "fsync":
            raise StoreUrlError(
                url=shown, reason="durability is fsync, or is left out: then what the server is set to counts"
            )
        prefix = settings.get("prefix", "kipu")
        if not _PREFIX.fullmatch(prefix):
            raise StoreUrlError(url=shown, reason="prefix is a name of lower-case letters, digits, _ . and -")
        return cls(
            shown,
            hosts,
            user,
            password if password is not None else _from_environment(environment or {}),
            _database(parts.path, settings, url=shown),
            prefix,
            int(_number(settings, "connections", 8, least=1, most=MOST_CONNECTIONS, url=shown)),
            _number(settings, "timeout_s", 10.0, least=1, most=600, url=shown),
            _switch(settings, "notify", url=shown),
            "durability" in settings,
            int(_number(settings, "replicas", 0, least=0, most=16, url=shown)),
            {name: value for name, value in settings.items() if name in _TLS} if is_tls else None,
        )


def _places(url: str) -> tuple[str | None, str | None, tuple[tuple[str, int], ...], str]:
    """Return user, password, hosts, and the URL without a password. Raises: ValueError."""
    parts = urlsplit(url)
    named, at, places = parts.netloc.rpartition("@")
    found = [_HOST.fullmatch(one) for one in places.split(",")]
    if not places or "@" in named or "@" in parts.path or parts.fragment or not all(found):
        raise ValueError(url)
    user, _, password = named.partition(":")
    hosts = tuple((one["host"].strip("[]"), int(one["port"] or DEFAULT_PORT)) for one in found if one is not None)
    shown_place = f"{user}@{places}" if user else places
    settings = urlencode(
        [pair for pair in settings_in(parts.query) if pair[1] and pair[0] in _OWN | _TLS | _OTHERS], quote_via=quote
    )
    shown = urlunsplit((parts.scheme, shown_place, parts.path, settings, ""))
    return unquote(user) or None, unquote(password) if at and password else None, hosts, shown


def _from_environment(environment: Mapping[str, str]) -> str | None:
    return next((environment[name] for name in _CLIENTS_OWN if environment.get(name)), None)


def _database(path: str, settings: Mapping[str, str], *, url: str) -> int:
    text = settings.get("db", path.strip("/") or "0")
    if not text.isdigit() or len(text) > 5:
        raise StoreUrlError(url=url, reason="db, or the path, is the number of a database")
    return int(text)


def _number(own: Mapping[str, str], name: str, default: float, *, least: float, most: float, url: str) -> float:
    try:
        value = float(own.get(name, default))
    except ValueError:
        value = -1
    if not least <= value <= most:
        raise StoreUrlError(url=url, reason=f"{name} is a number from {least:g} to {most:g}")
    return value


def _switch(own: Mapping[str, str], name: str, *, url: str) -> bool:
    value = own.get(name, "on")
    if value not in {"on", "off"}:
        raise StoreUrlError(url=url, reason=f"{name} is on or off")
    return value == "on"
