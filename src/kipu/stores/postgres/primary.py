"""Which server is the primary: connections are kept from one that another took over from, wherever the URL's hosts lead.

A server that was primary and comes back as if nothing had happened takes writes that nobody will find again. Each promotion begins
a new timeline, so of servers of one system the one with the newest timeline is the primary.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
import psycopg.errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kipu.errors import StoreUrlError
from kipu.stores.postgres.address import NOT_TAKEN_APART, Address

_WHO = (
    "SELECT (SELECT system_identifier FROM pg_control_system())::text, CASE WHEN pg_is_in_recovery() THEN 0"
    " ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END"
)
# An engine of another make, or a role that may not ask: then nobody can tell.
_UNTOLD = (psycopg.errors.UndefinedFunction, psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege)
_UNKNOWN = re.compile(r'invalid URI query parameter: "(?P<name>\w+)"')
_STANDBY = 0
_READING = {"standby", "prefer-standby", "read-only", "any"}


def driver_settings(address: Address) -> dict[str, Any]:
    """Return what the URL says to the driver. Raises: StoreUrlError, without the driver's own words, which may quote the password."""
    try:
        return dict(conninfo_to_dict(address.driver_url))
    except (psycopg.Error, ValueError) as error:
        found = _UNKNOWN.match(str(error))
    reason = f"the driver knows no setting {found['name']!r}" if found else NOT_TAKEN_APART
    raise StoreUrlError(url=address.shown, reason=reason)


class Primary:
    """Remember which server was seen to be primary, and refuse those that are not, or no more."""

    def __init__(self, address: Address) -> None:
        self._given = driver_settings(address)
        self._system: str | None = None
        self._timeline = _STANDBY
        self._found: dict[str, int] = {}  # the timeline on which each place was when it was last asked
        self.refusal: str | None = None  # why the last connection was given up

    @property
    def conninfo(self) -> str:
        """Return where to connect: of several hosts those last that were found not to be the primary."""
        places = self._places()
        if len(places) < 2:
            return make_conninfo(**self._given)
        places.sort(key=lambda place: self._found.get(self._name(place), self._timeline), reverse=True)
        joined = {name: ",".join(place[name] for place in places) for name in places[0]}
        return make_conninfo(**{**self._given, **joined, "target_session_attrs": self._wanted})

    @property
    def each_host(self) -> list[str]:
        """Return each host by itself, where the URL names several and wants the one that can be written."""
        places = self._places()
        if len(places) < 2 or self._wanted in _READING:
            return []
        return [make_conninfo(**{**self._given, **place, "target_session_attrs": self._wanted}) for place in places]

    async def check(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Close and refuse a connection that does not lead to the primary. Raises: psycopg.OperationalError."""
        try:
            system, timeline = (await (await connection.execute(_WHO)).fetchall())[0]
        except _UNTOLD:
            return
        except BaseException:
            await connection.close()
            raise
        why = self._why_not(system, timeline)
        self.refusal = why
        self._found[f"{connection.info.host} {connection.info.port}"] = timeline
        if why is not None:
            await connection.close()
            raise psycopg.OperationalError(why)

    def _why_not(self, system: str, timeline: int) -> str | None:
        if system != self._system:  # another database altogether, where the address leads now
            self._system, self._timeline = system, timeline
        elif timeline == _STANDBY and self._timeline != _STANDBY:
            if self._given.get("target_session_attrs") not in _READING:
                return "it leads to a standby, and none has been promoted yet"
        elif timeline < self._timeline and timeline != _STANDBY:
            return (
                f"it leads to a server that another has taken over from (timeline {timeline}, and {self._timeline} was seen):"
                " stop it, or make it a standby of the new primary"
            )
        self._timeline = max(self._timeline, timeline)
        return None

    @property
    def _wanted(self) -> str:
        return str(self._given.get("target_session_attrs", "read-write"))

    def _places(self) -> list[dict[str, str]]:
        """Return what the URL says of each host, by the driver's rules: one port for all, or one for each."""
        lists = {name: str(self._given[name]).split(",") for name in ("host", "hostaddr") if self._given.get(name)}
        count = max((len(values) for values in lists.values()), default=1)
        ports = str(self._given.get("port") or "").split(",")
        lists["port"] = ports * count if len(ports) == 1 else ports
        if any(len(values) != count for values in lists.values()):
            return [{}]  # the driver says what is wrong with it
        return [{name: values[number] for name, values in lists.items()} for number in range(count)]

    def _name(self, place: dict[str, str]) -> str:
        return f"{place.get('host') or place.get('hostaddr', '')} {place.get('port') or '5432'}"
