"""A `postgresql://` URL taken apart: what is Kipu's own, and what the driver is given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from kipu.errors import StoreUrlError
from kipu.ports.url_settings import settings_in

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_OWN = {"schema", "connections", "notify", "prepare", "statement_timeout_s", "durability"}
# What is for those around the store, and neither its own nor the driver's.
_OTHERS = {"archive", "vault", "encrypt", "chain", "fields"}
_SECRET = {"password", "sslpassword", "vault"}  # another database's URL may hold its own password
MOST_CONNECTIONS = 64
_PORT = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
NOT_TAKEN_APART = (
    "it cannot be taken apart; in a name or a password / : @ ? # and % are written as %2F %3A %40 %3F %23 %25"
)
DEFAULT_SCHEMA, DEFAULT_CONNECTIONS, DEFAULT_TIMEOUT_S = "kipu", 8, 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a database is and how it is used. `shown` has no password."""

    driver_url: str
    shown: str
    schema: str = DEFAULT_SCHEMA
    connections: int = DEFAULT_CONNECTIONS
    notify: bool = True
    prepare: bool = True
    statement_timeout_s: float = DEFAULT_TIMEOUT_S
    durability: str | None = None  # what the server must promise at least

    @property
    def timeout_ms(self) -> str:
        """Return how long a statement may take, and a transaction may sleep, as the server's settings have it."""
        return str(int(self.statement_timeout_s * 1000))

    @property
    def channel(self) -> str:
        """Return the name under which commits are made known."""
        return f"kipu_{self.schema}"

    @classmethod
    def parse(cls, url: str) -> Address:
        """Return the parts of a URL; every parameter that is not Kipu's is the driver's (sslmode, connect_timeout …).

        Raises:
            StoreUrlError: a value of Kipu's own is not one that it knows.
        """
        try:
            url.encode()  # half a character is in no name
            parts = urlsplit(url)
            settings = dict(settings_in(parts.query, strict=True))
            shown = _without_password(url)
        except ValueError:
            # Neither it nor its text is shown: what cannot be taken apart may hold the password anywhere.
            raise StoreUrlError(url="postgresql://…", reason=NOT_TAKEN_APART) from None
        own = {name: settings.pop(name) for name in _OWN & set(settings)}
        for name in _OTHERS & set(settings):
            del settings[name]
        durability = own.pop("durability", None)
        if durability not in {None, "fsync"}:
            raise StoreUrlError(
                url=shown, reason="what PostgreSQL acknowledges is as durable as its server is set to be"
            )
        schema = own.get("schema", DEFAULT_SCHEMA)
        if not _SCHEMA.fullmatch(schema):
            raise StoreUrlError(url=shown, reason="schema is a name of lower-case letters, digits and _")
        return cls(
            _joined("postgresql", parts.netloc, parts.path, settings.items()),
            shown,
            schema,
            int(_number(own, "connections", DEFAULT_CONNECTIONS, most=MOST_CONNECTIONS, url=shown)),
            _switch(own, "notify", url=shown),
            _switch(own, "prepare", url=shown),
            _number(own, "statement_timeout_s", DEFAULT_TIMEOUT_S, most=600, url=shown),
            durability,
        )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not all(_PORT.fullmatch(one) for one in host.split(",")) or "@" in user or "@" in parts.path or parts.fragment:
        raise ValueError(url)
    shown = f"{user.split(':')[0]}@{host}" if at else host
    settings = [(name, value) for name, value in settings_in(parts.query, strict=True) if name not in _SECRET and value]
    return _joined(parts.scheme, shown, parts.path, settings)


def _joined(scheme: str, place: str, path: str, settings: Iterable[tuple[str, str]]) -> str:
    """Return a URL that keeps its two slashes also where no host is named: a database of this machine, by its socket."""
    query = urlencode(list(settings), quote_via=quote)
    return f"{scheme}://{place}{path}{'?' if query else ''}{query}"


def _number(own: dict[str, str], name: str, default: float, *, most: float, url: str) -> float:
    try:
        value = float(own.get(name, default))
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise StoreUrlError(url=url, reason=f"{name} is a number from 1 to {most:g}")
    return value


def _switch(own: dict[str, str], name: str, *, url: str) -> bool:
    value = own.get(name, "on")
    if value not in {"on", "off"}:
        raise StoreUrlError(url=url, reason=f"{name} is on or off")
    return value == "on"
