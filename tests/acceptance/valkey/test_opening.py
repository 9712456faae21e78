"""Opening a Valkey store: what would lose events is refused, what is wrong is said without a secret, and what to do next."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kipu.errors import (
    ConfigurationError,
    NewerFormatError,
    SearchUnavailableError,
    SessionExistsError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreUrlError,
)
from kipu.ports.store import SearchQuery, StoreMark
from kipu.stores.valkey.address import Address
from kipu.stores.valkey.store import ValkeyStore
from kipu.testing.fakes import FakeLiveness
from kipu.wiring import open_store
from tests.acceptance.valkey.kit import ask, begin, everything_said, keys_of, opened, proxied, record, texts
from tests.valkey_servers import fresh_prefix, own_server, valkey_url

SECRET = "s3cret/word"
AT_ONCE_S = 10.0


@pytest.mark.parametrize(
    "url",
    [
        f"valkey://me:{SECRET}@host",
        "valkey://me:s3cret@word@host",
        "redis://me:s3cret#word@host",
        "valkey://me\ud800:s3cret@host",
        "rediss://me:s3cret@host:port",
        "valkey://me:s3cret@[::1/0",
        "valkey://me:s3cret@host/0?prefix=NO",
        "valkey://me:s3cret@host?colour=s3cret",
        "valkey://me:s3cret@host?durability=os",
        "valkey://me:s3cret@host/one",
        "valkey://me:s3cret@host?ssl_ca_certs=x",
    ],
)
def test_url_that_is_wrong_is_refused_without_its_password(url: str) -> None:
    """A URL that is wrong, or whose password was not encoded, is refused by words without the password (VK-1, VK-2)."""
    with pytest.raises(StoreUrlError) as failure:
        Address.parse(url)
    assert "s3cret" not in everything_said(failure.value)


def test_url_has_what_clients_expect() -> None:
    """User, password, several hosts, database, TLS and the clients' own variable for a password are understood (VK-1)."""
    address = Address.parse("rediss://me:a%2Fb@one:1,[::1]/3?ssl_ca_certs=ca.pem&prefix=p-1&replicas=1")
    assert (address.user, address.password, address.db, address.prefix) == ("me", "a/b", 3, "p-1")
    assert (address.hosts, address.tls, address.replicas) == (
        (("one", 1), ("::1", 6379)),
        {"ssl_ca_certs": "ca.pem"},
        1,
    )
    assert address.shown.startswith("rediss://me@one:1,")
    assert "a/b" not in repr(address)
    assert Address.parse("valkey://host", environment={"REDISCLI_AUTH": "word"}).password == "word"


async def test_password_that_is_refused_is_told_without_it() -> None:
    """A password that the server refuses, or that is lacking, is StoreUnavailableError that does not hold it (B54, VK-2)."""
    with own_server() as server:
        await ask(server.url, "CONFIG", "SET", "requirepass", "right")
        for named in ("me:s3cret%2Fword@", "", ":right%2F@"):
            url = server.url.replace("//", f"//{named}")
            with pytest.raises(StoreUnavailableError) as failure:
                await ValkeyStore.open(url, liveness=FakeLiveness())
            assert "s3cret" not in everything_said(failure.value)
        async with opened(server.url.replace("//", "//:right@")) as store:
            assert "right" not in str(store.describe())


async def test_server_that_is_not_there_is_told_at_once() -> None:
    """A server that is not there is StoreUnavailableError within seconds, without the URL's password (VK-2)."""
    async with asyncio.timeout(AT_ONCE_S):
        with pytest.raises(StoreUnavailableError) as failure:
            await ValkeyStore.open("valkey://me:s3cret@127.0.0.1:1", liveness=FakeLiveness())
    assert "s3cret" not in everything_said(failure.value)


async def test_fsync_is_refused_where_the_server_does_not_do_it() -> None:
    """`durability=fsync` is refused unless the server appends and syncs always, by an error that says what to set (B54, VK-13)."""
    with own_server(appendonly="yes", appendfsync="everysec") as server:
        url = fresh_prefix(server.url, durability="fsync")
        with pytest.raises(ConfigurationError, match="appendfsync always"):
            await ValkeyStore.open(url, liveness=FakeLiveness())
        await ask(server.url, "CONFIG", "SET", "appendfsync", "always")
        async with opened(url) as store:
            assert store.describe().durability == "fsync"
            assert store.describe().notes == ()


async def test_server_that_throws_keys_away_is_refused() -> None:
    """A maxmemory-policy that evicts, also only keys with an end, is refused by an error that says what to set (B54, VK-12)."""
    for policy in ("allkeys-lru", "volatile-ttl"):
        with (
            own_server(**{"maxmemory-policy": policy}) as server,
            pytest.raises(ConfigurationError, match="noeviction"),
        ):
            await ValkeyStore.open(server.url, liveness=FakeLiveness())


async def test_server_that_tells_nothing_is_called_unknown() -> None:
    """Where CONFIG and INFO are forbidden durability is unknown, and `durability=fsync` is refused (B54, VK-13)."""
    with own_server(appendonly="yes", appendfsync="always") as server:
        await ask(server.url, "ACL", "SETUSER", "quiet", "on", ">word", "~{*", "&*", "+@all", "-config", "-info")
        url = server.url.replace("//", "//quiet:word@")
        async with opened(url) as store:
            assert store.describe().durability == "unknown"
            await begin(store, "one")
        with pytest.raises(ConfigurationError, match="does not tell"):
            await ValkeyStore.open(f"{url}?durability=fsync", liveness=FakeLiveness())


async def test_user_who_may_not_write_is_told_before_anything_is_half_done() -> None:
    """A user without one of the commands is StoreReadOnlyError that names it; without the channel it works by looking (VK-4)."""
    with own_server() as server:
        await ask(server.url, "ACL", "SETUSER", "weak", "on", ">word", "~*", "+@all", "-zadd")
        with pytest.raises(StoreReadOnlyError, match="ZADD"):
            await ValkeyStore.open(server.url.replace("//", "//weak:word@"), liveness=FakeLiveness())
        await ask(server.url, "ACL", "SETUSER", "mute", "on", ">word", "~*", "resetchannels", "+@all")
        async with opened(server.url.replace("//", "//mute:word@")) as store, opened(server.url) as other:
            await begin(store, "one")
            follower = store.follow("one", after=1)
            waiting = asyncio.ensure_future(anext(follower))
            await other.append("one", [record("heard by looking")])
            async with asyncio.timeout(60):
                assert (await waiting).seq == 2
            assert any("looked for" in note for note in store.describe().notes)


async def fill_up(store: ValkeyStore) -> None:
    """Append more than there is room for."""
    for _ in range(40):
        await store.append("one", [record("x" * 1_000_000)])


async def test_full_memory_is_told_and_leaves_what_was() -> None:
    """At maxmemory an append is StoreFullError, nothing of it is there, and it goes on when there is room (A52, VK-11)."""
    with own_server(maxmemory="20mb") as server:
        async with opened(server.url) as store:
            await begin(store, "one")
            with pytest.raises(StoreFullError, match="maxmemory"):
                await fill_up(store)
            head = await store.head("one")
            assert head is not None
            assert len(await texts(store, "one")) == head.last_seq
            assert await store.verify() == []
            await ask(server.url, "CONFIG", "SET", "maxmemory", "100mb")
            assert (await store.append("one", [record("after")])).first_seq == head.last_seq + 1


async def test_replica_is_unavailable_until_another_takes_the_writes() -> None:
    """A server that became a replica is StoreUnavailableError; with several hosts the one that takes writes is found (B61, VK-11)."""
    with own_server() as first, own_server() as second:
        port = second.port
        await ask(first.url, "REPLICAOF", "127.0.0.1", port)
        both = f"{first.url},127.0.0.1:{port}"
        async with opened(both) as store, opened(fresh_prefix(second.url)) as single:
            await begin(store, "one")
            await begin(single, "one")
            async with asyncio.timeout(60):
                while not await ask(first.url, "EXISTS", keys_of(both).of("one").head):
                    pass
            await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
            await ask(first.url, "REPLICAOF", "NO", "ONE")
            with pytest.raises(StoreUnavailableError, match="replica"):
                await single.append("one", [record("nowhere")])
            async with asyncio.timeout(60):
                while True:
                    try:
                        assert (await store.append("one", [record("over there")])).first_seq == 2
                    except StoreUnavailableError:
                        continue
                    break


async def test_replicas_are_waited_for() -> None:
    """With `replicas=1` an append returns when a replica has it, and is StoreUnavailableError where none has (B54, VK-15)."""
    with own_server() as first, own_server() as second:
        url = fresh_prefix(first.url, replicas="1", timeout_s="2")
        with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
            async with opened(url) as store:
                await begin(store, "one")
        await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
        async with asyncio.timeout(60), opened(url) as store:
            while True:
                with suppress(StoreUnavailableError, SessionExistsError):
                    await begin(store, "two")
                with suppress(StoreUnavailableError):
                    await store.append("two", [record("kept twice")], idempotency_key="k")
                    assert await ask(second.url, "HLEN", keys_of(url).of("two").events) == 2
                    break


async def test_change_whose_answer_was_lost_is_acknowledged_by_replicas_too() -> None:
    """With `replicas=1` an append that is found to stand, though its answer was lost, is not acknowledged before one has it (C2, VK-15)."""
    with own_server() as first, own_server() as second:
        await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
        async with proxied(first.url) as proxy:
            url = fresh_prefix(proxy.url, replicas="1", timeout_s="2")
            async with asyncio.timeout(60), opened(url) as store:
                while True:  # until the replica has it, and the store knows the head
                    with suppress(StoreUnavailableError, SessionExistsError):
                        await begin(store, "one")
                    with suppress(StoreUnavailableError):
                        await store.append("one", [record("on two servers")])
                        break
                second.kill()
                while b"connected_slaves:0" not in await ask(first.url, "INFO", "replication"):
                    pass
                proxy.swallows_answers = 1
                with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                    await store.append("one", [record("on one server only")])
                assert proxy.swallowed.is_set()


async def test_retry_is_acknowledged_by_replicas_too() -> None:
    """With `replicas=1` an append that no replica has is no success when it is tried again, whatever else it asks for (C2, VK-15)."""
    with own_server() as first, own_server() as second:
        url = fresh_prefix(first.url, replicas="1", timeout_s="2")
        await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
        async with asyncio.timeout(60), opened(url) as store, opened(url) as other:
            while True:
                with suppress(StoreUnavailableError, SessionExistsError):
                    await begin(store, "one")
                with suppress(StoreUnavailableError):
                    stood = (await store.append("one", [record("on two servers")])).last_seq
                    break
            second.kill()
            while b"connected_slaves:0" not in await ask(first.url, "INFO", "replication"):
                pass
            once: dict[str, Any] = {"idempotency_key": "k", "expected_seq": stood}
            for each in (store, store, other):
                with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                    await each.append("one", [record("on one server only")], **once)
            second.start()
            await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
            while True:
                with suppress(StoreUnavailableError):
                    assert (await other.append("one", [record("on one server only")], **once)).duplicate
                    break
            assert await ask(second.url, "HLEN", keys_of(url).of("one").events) == stood + 1


@pytest.mark.parametrize("what", ["a key", "the mark"])
async def test_what_is_found_to_stand_is_acknowledged_by_replicas_too(what: str) -> None:
    """With `replicas=1` a key or a mark whose answer was lost is no success while the replica stands still (C2, VK-15)."""
    with own_server() as first, own_server() as second:
        await ask(second.url, "REPLICAOF", "127.0.0.1", first.port)
        told = await ask(second.url, "INFO", "server")
        mark = StoreMark("leaving", "m", "the://other")
        process = int(told.partition(b"process_id:")[2].split()[0])
        async with proxied(first.url) as proxy:
            url = fresh_prefix(proxy.url, replicas="1", timeout_s="2")
            async with asyncio.timeout(60), opened(url) as store:
                while True:
                    with suppress(SessionExistsError, StoreUnavailableError):
                        await begin(store, "one")
                    with suppress(StoreUnavailableError):
                        await store.append("one", [record("on two servers")])
                        break
                os.kill(process, signal.SIGSTOP)
                try:
                    proxy.swallows_change = True
                    with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
                        await (store.bind("k", "one") if what == "a key" else store.set_mark(mark))
                    assert proxy.swallowed.is_set()
                finally:
                    os.kill(process, signal.SIGCONT)


async def test_data_of_a_newer_release_and_of_others_is_left_alone() -> None:
    """Data whose `oldest` is newer is NewerFormatError, and keys that are not Kipu's are StoreUrlError; nothing is changed (VK-3)."""
    url = fresh_prefix(valkey_url())
    async with opened(url) as store:
        await begin(store, "one")
    meta = keys_of(url).meta
    await ask(url, "HSET", meta, "format", "2")
    async with opened(url) as store:  # a newer release has written what this one may pass over
        await store.append("one", [record("still")])
    await ask(url, "HSET", meta, "oldest", "2")
    with pytest.raises(NewerFormatError):
        await ValkeyStore.open(url, liveness=FakeLiveness())
    await ask(url, "HSET", meta, "kind", "other")
    with pytest.raises(StoreUrlError, match="not Kipu's"):
        await ValkeyStore.open(url, liveness=FakeLiveness())


async def test_search_is_said_to_be_missing() -> None:
    """There is no search: `describe` says so, and whoever asks is told what to do (B54, B60, VK-21)."""
    store = await open_store(fresh_prefix(valkey_url()))
    assert store.describe().search is False
    for call in (store.search(SearchQuery(())), store.index([], indexed={}), store.drop_index()):
        with pytest.raises(SearchUnavailableError, match="kipu copy"):
            await call
    await store.close()


def certificate_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Return a certificate of a host's name and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


async def test_tls_is_used_and_the_server_is_who_it_says(tmp_path: Path) -> None:
    """Over `valkeys://` a store works; a certificate of nobody known, or of another name, is refused (B54, VK-1)."""
    certificate, key = certificate_for("localhost", tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    async with proxied(valkey_url(), context=context) as proxy:
        port, known = proxy.url.rpartition(":")[2], f"ssl_ca_certs={quote(str(certificate), safe='')}"
        url = fresh_prefix(f"valkeys://localhost:{port}?{known}")
        async with opened(url) as store:
            await begin(store, "one")
            assert not any("looked for" in note for note in store.describe().notes)
        for wrong in (f"rediss://127.0.0.1:{port}?{known}", f"valkeys://localhost:{port}"):
            with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
                await ValkeyStore.open(fresh_prefix(wrong), liveness=FakeLiveness())


async def test_each_prefix_is_a_store_of_its_own() -> None:
    """Two stores at one server see nothing of each other, and every key of a store begins with its hash tag (VK-6)."""
    with own_server() as server:
        async with opened(f"{server.url}?prefix=a") as one, opened(f"{server.url}?prefix=b") as two:
            await begin(one, "s", owner="o", tags=["t"])
            lease = await one.claim("s", owner="me", ttl_s=9)
            assert lease is not None
            await one.append("s", [record("x")], idempotency_key="k")
            await one.bind("key", "s")
            await one.put_blob("s", b"b")
            assert await two.head("s") is None
            assert await two.resolve("key") is None
            names = {name.decode() for name in await ask(server.url, "KEYS", "*")}
            assert {name.partition(":")[0] for name in names} == {"{a}", "{b}"}
            await one.erase("s", lease=lease)
            left = {name.decode() for name in await ask(server.url, "KEYS", "{a}*")}
            assert left == {"{a}:meta", "{a}:commits", "{a}:head:s", "{a}:tombstones"}
