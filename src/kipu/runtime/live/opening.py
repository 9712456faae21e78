"""Which channel carries live pieces for a store: what the settings name, else what the store itself has."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from kipu.errors import ConfigurationError
from kipu.ports.home_path import home_path
from kipu.ports.live import LiveChannel
from kipu.ports.store import EventStore
from kipu.runtime.live.relay import LiveRelay, LiveSeal
from kipu.runtime.live.streams import LiveStreams
from kipu.stores.encrypted import EncryptedStore
from kipu.stores.wrapper import WrappedStore, innermost

AUTO, OFF = "auto", "off"


def open_relay(streams: LiveStreams, store: EventStore, *, choice: str | None = None) -> LiveRelay | None:
    """Return what connects this process's streams with those of others over the same store; None where nothing does.

    `choice` is `auto` (the default), `off`, or the URL of a Valkey or Redis server. Raises: ConfigurationError.
    """
    channel = _channel(streams.name, store, choice or AUTO)
    return None if channel is None else LiveRelay(streams, channel, seal=_seal(store))


def _channel(name: str, store: EventStore, choice: str) -> LiveChannel | None:
    if choice == OFF:
        return None
    if choice != AUTO:
        return _by_url(choice)
    kept = innermost(store)
    kind = kept.describe().kind
    if kind in {"postgresql", "valkey"}:
        return _of_server(kept, kind)
    if kind not in {"sqlite", "jsonl"} or not hasattr(os, "getuid"):
        return None
    from kipu.runtime.live.socket_channel import SocketChannel, socket_folder

    return SocketChannel(socket_folder(_place(kept.describe().url)), name)


def _of_server(store: EventStore, kind: str) -> LiveChannel | None:
    """Return what the store's own server has. Where its notices do not get through nothing would be heard: that spares a line."""
    if kind == "postgresql":
        from kipu.runtime.live.notify_channel import NotifyChannel
        from kipu.stores.postgres.store import PostgresStore

        return NotifyChannel(store.address) if isinstance(store, PostgresStore) and store.address.notify else None
    from kipu.runtime.live.valkey_channel import ValkeyChannel
    from kipu.stores.valkey.store import ValkeyStore

    is_notified = isinstance(store, ValkeyStore) and store.address.notify
    return ValkeyChannel(store.address.client_url) if isinstance(store, ValkeyStore) and is_notified else None


def _by_url(url: str) -> LiveChannel:
    from kipu.runtime.live.valkey_channel import SCHEMES, ValkeyChannel

    if urlsplit(url).scheme not in SCHEMES:
        raise ConfigurationError(reason="live is auto, off, or a URL such as valkey://host:6379/0")
    return ValkeyChannel(url)


def _place(url: str) -> str:
    """Return where a store has its files, the same for every way to write it."""
    return str(home_path(unquote(url.partition("?")[0].partition(":///")[2])).resolve())


def _seal(store: EventStore) -> LiveSeal | None:
    while isinstance(store, WrappedStore):
        if isinstance(store, EncryptedStore):
            from kipu.runtime.live.store_seal import StoreSeal

            return StoreSeal(store.store_keys)
        store = store.inner
    return None
