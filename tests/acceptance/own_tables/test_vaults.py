"""Key vaults of both kinds, a file and a database's tables, as several processes and machines use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from kipu.errors import DataKeyMissingError, KeyRetiredError, KeysBusyError, KeyUnavailableError, SessionErasedError
from kipu.ports.vault import KeyVault, VaultPlace, WrappedKey
from kipu.sealing.rotating import Rotation
from kipu.security.key_file import create_key_file, file_keys
from kipu.security.key_finder import KeyFinder
from kipu.security.key_provider import LocalKeys
from kipu.security.key_vault import VaultFile
from kipu.security.keys import KeyRing, open_keys
from kipu.stores.host import SystemEntropy
from kipu.stores.postgres.store import PostgresStore
from kipu.stores.postgres.vault_tables import VaultTables
from kipu.testing.fakes import FakeLiveness
from tests.acceptance.own_tables.kit import schema_of
from tests.acceptance.postgres.kit import ask
from tests.servers import fresh_schema, postgres_url
from tests.unit.stores.encrypted.kit import KEY, OTHER_KEY, keys

ENTROPY = SystemEntropy()
Ring = Callable[..., Awaitable[KeyRing]]


@pytest.fixture(params=["file", "store's database", "other database"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> VaultPlace:
    """Return a place for a vault that nobody has made."""
    if request.param == "file":
        return VaultFile(tmp_path / "v")
    url = fresh_schema(postgres_url())
    if request.param == "other database":
        return VaultTables(url, is_apart=True)
    await (await PostgresStore.open(url, liveness=FakeLiveness())).close()
    return VaultTables(url)


@pytest.fixture
async def ring(place: VaultPlace) -> AsyncIterator[Ring]:
    """Return a function that opens the vault as another machine would."""
    made: list[KeyRing] = []

    async def opened(*given: bytes, source: LocalKeys | None = None, **how: object) -> KeyRing:
        made.append(
            await open_keys(place, source or keys(*given), entropy=ENTROPY, holds_sessions=bool(how.get("holds")))
        )
        return made[-1]

    yield opened
    for each in made:
        await each.close()


async def test_a_vault_is_made_by_opening_and_not_by_asking(place: VaultPlace, ring: Ring) -> None:
    """Whether a store is encrypted is told without making it so, and a vault that has keys is there (A50, C20)."""
    assert not await place.is_there()
    await ring()
    assert await place.is_there()


async def test_all_machines_that_begin_a_session_get_one_key(ring: Ring) -> None:
    """Beginning one session at once on several machines makes one data key, and each opens what the others sealed (C20, EN-6)."""
    rings = await asyncio.gather(*(ring() for _ in range(4)))
    ciphers = await asyncio.gather(*(each.begin("s1") for each in rings for _ in range(4)))
    sealed = [cipher.seal(b"x", b"c") for cipher in ciphers]
    assert {cipher.open(each, b"c") for cipher in ciphers for each in sealed} == {b"x"}
    assert await rings[0].status() == {keys().current: 2}


async def test_a_wrong_key_opens_nothing_and_changes_nothing(ring: Ring) -> None:
    """A machine with another key is told so, and the right one finds everything as it was (A50, EN-10)."""
    first = await ring()
    sealed = (await first.begin("s1")).seal(b"x", b"")
    with pytest.raises(KeyUnavailableError):
        await ring(OTHER_KEY)
    again = await ring(holds=True)
    assert (await again.cipher("s1")).open(sealed, b"") == b"x"


async def test_an_erasure_on_one_machine_counts_on_another_within_a_second(ring: Ring) -> None:
    """What was destroyed opens nowhere, is not made again, and whoever had it in memory loses it (C20, EN-8, EN-17, PG-52)."""
    here, there = await ring(), await ring()
    await here.begin("s1")
    await there.cipher("s1")
    await here.shred("s1")
    await here.shred("s1")
    there._look_at_s = 0.0  # a second later
    assert there.known("s1") is None
    with pytest.raises(DataKeyMissingError, match="destroyed"):
        await there.cipher("s1")
    for each in (here, there):
        with pytest.raises(SessionErasedError):
            await each.begin("s1")
    assert await here.vault.sizes() == (0, 0, 1)


async def test_a_key_comes_never_after_its_session_was_erased(ring: Ring) -> None:
    """Whoever had looked before the erasure adds no key after it (C20)."""
    one = await ring()
    await one.shred("s1")
    late = WrappedKey("s1", 1, keys().current, b"w" * 60)
    if "Postgres" in type(one.vault).__name__:
        with pytest.raises(SessionErasedError):
            await one.vault.add(late)
        assert await one.vault.keys("s1") == []


async def test_new_epochs_on_one_machine_are_opened_on_another(ring: Ring) -> None:
    """A fresh data key counts everywhere within a second, and what older ones sealed still opens (EN-9, EN-17)."""
    here, there = await ring(), await ring()
    old = (await here.begin("s1")).seal(b"old", b"")
    assert (await there.cipher("s1")).open(old, b"") == b"old"
    assert await here.new_epoch("s1") == 2
    new = (await here.cipher("s1")).seal(b"new", b"")
    there._look_at_s = 0.0  # a second later
    opens = await there.cipher("s1")
    assert (opens.open(old, b""), opens.open(new, b"")) == (b"old", b"new")


async def test_rotations_at_once_on_two_machines_exclude_each_other(ring: Ring) -> None:
    """While one rotates another is refused, on any machine; afterwards one key alone opens everything (C20, EN-16)."""
    one, two = await ring(KEY, OTHER_KEY), await ring(KEY, OTHER_KEY)
    sealed = {f"s{n}": (await one.begin(f"s{n}")).seal(b"x", b"") for n in range(30)}
    third = bytes(range(2, 34))
    to_third = await ring(KEY, OTHER_KEY, third)
    outcomes = await asyncio.gather(
        one.rewrap(batch=3), two.rewrap(batch=3), to_third.rewrap(batch=3), return_exceptions=True
    )
    assert all(isinstance(each, int | KeysBusyError) for each in outcomes), outcomes
    await to_third.rewrap()
    assert set(await one.status()) == {to_third.current}
    alone = await ring(third, holds=True)
    for name, data in sealed.items():
        assert (await alone.cipher(name)).open(data, b"") == b"x"


async def test_what_was_rotated_away_wraps_nothing_more_on_any_machine(ring: Ring) -> None:
    """A machine that was not told of the new key begins no session under the old one (C20, EN-16)."""
    old = await ring(KEY)
    await old.begin("s1")
    rotating = await ring(KEY, OTHER_KEY)
    await rotating.rewrap()
    with pytest.raises(KeyRetiredError):
        await old.begin("s2")
    assert set(await rotating.status()) == {rotating.current}


async def test_keys_added_while_another_machine_rotates_are_rotated_too(ring: Ring) -> None:
    """However additions and a rotation cross, the rotation ends with one key-encryption key (C20, EN-16, PG-50)."""
    old, rotating = await ring(KEY), await ring(KEY, OTHER_KEY)

    async def begin(number: int) -> bool:
        try:
            await old.begin(f"s{number}")
        except (KeyRetiredError, KeyUnavailableError):
            return False
        return True

    outcomes = await asyncio.gather(*(begin(n) for n in range(40)), rotating.rewrap(batch=2))
    assert set(await rotating.status()) == {rotating.current}
    alone = await ring(OTHER_KEY, holds=True)
    for number in (n for n, is_begun in enumerate(outcomes[:-1]) if is_begun):
        await alone.cipher(f"s{number}")


async def test_a_blob_stays_where_it_was_placed_first_unless_nothing_is_there(ring: Ring) -> None:
    """Two machines that keep one blob agree on its place; a place where nothing is any more is given up by its name (EN-7)."""
    here, there = await ring(), await ring()
    await here.place_blob("s1", "digest", place="first")
    await there.place_blob("s1", "digest", place="second")
    await there.place_blob("s1", "digest", place="third", instead_of="another")
    assert await here.blob_place("s1", "digest") == "first"
    await there.place_blob("s1", "digest", place="fourth", instead_of="first")
    await here.place_blob("s1", "digest", place="fifth", instead_of="first")
    assert await here.blob_places("s1") == {"digest": "fourth"}


async def test_settings_that_machines_change_at_once_are_all_kept(ring: Ring) -> None:
    """Changes of different settings lose none of each other (C20)."""
    rings = [await ring() for _ in range(3)]
    names = [f"name{n}" for n in range(9)]
    await asyncio.gather(*(rings[n % 3].vault.set_settings({name: n}) for n, name in enumerate(names)))
    assert await rings[0].vault.settings() == {name: n for n, name in enumerate(names)}
    await rings[1].vault.set_settings(dict.fromkeys(names[1:]))
    assert await rings[2].vault.settings() == {"name0": 0}


async def database_vault() -> tuple[str, VaultTables]:
    """Make a store's tables, and return their URL and the place of its vault."""
    url = fresh_schema(postgres_url())
    await (await PostgresStore.open(url, liveness=FakeLiveness())).close()
    return url, VaultTables(url)


async def test_a_rotation_that_was_taken_for_dead_changes_nothing_more() -> None:
    """Frozen for longer than its time, a rotation finds another one going on and stops; no key is lost (C20, EN-16, PG-51)."""
    url, place = await database_vault()
    before_it = await open_keys(place, keys(KEY), entropy=ENTROPY, holds_sessions=False)
    await before_it.begin("s1")
    await before_it.close()
    frozen = await open_keys(place, keys(KEY, OTHER_KEY), entropy=ENTROPY, holds_sessions=True)
    async with frozen.vault.rotating():
        other = await place.open()
        with pytest.raises(KeysBusyError):
            async with other.rotating():
                pass
        await ask(url, f"UPDATE {schema_of(url)}.vault_rotation SET until = now() - interval '1 second'")
        before = await frozen.status()
        async with other.rotating():
            with pytest.raises(KeysBusyError):
                await frozen.rewrap_alone()
        assert await frozen.status() == before
        await other.close()
    await frozen.close()


async def test_a_killed_rotation_is_over_after_a_minute() -> None:
    """What a killed process left as its claim ends by the server's clock, and whoever comes then goes on (C16, EN-16)."""
    url, place = await database_vault()
    vault: KeyVault = await place.open()
    await ask(url, f"INSERT INTO {schema_of(url)}.vault_rotation VALUES ('keys', 'dead', now() + interval '1 minute')")
    with pytest.raises(KeysBusyError):
        async with vault.rotating():
            pass
    (left,) = (await ask(url, f"SELECT until - now() < interval '61 seconds' FROM {schema_of(url)}.vault_rotation"))[0]
    assert left
    await ask(url, f"UPDATE {schema_of(url)}.vault_rotation SET until = now()")
    async with vault.rotating():
        pass
    assert await ask(url, f"SELECT * FROM {schema_of(url)}.vault_rotation") == []
    await vault.close()


async def test_no_key_is_in_clear_in_the_tables() -> None:
    """Neither the key-encryption key nor a data key is in the database, only wrapped ones (C20, EN-6)."""
    url, place = await database_vault()
    ring = await open_keys(place, keys(), entropy=ENTROPY, holds_sessions=False)
    await ring.begin("s1")
    rows = await ask(url, f"SELECT encode(wrapped, 'hex') FROM {schema_of(url)}.vault_keys")
    assert len(rows) == 2
    assert not any(KEY.hex() in str(row[0]) for row in rows)
    await ring.close()


async def test_a_running_machine_follows_a_move_to_another_source(tmp_path: Path) -> None:
    """Once another machine moved the store to a key that lies on both, sessions not opened before open too (C20, EN-16)."""
    _, place = await database_vault()
    old, new = f"file:{tmp_path}/old", f"file:{tmp_path}/new"
    for each in ("old", "new"):
        create_key_file(tmp_path / each, entropy=ENTROPY)
    finder = KeyFinder({}, entropy=ENTROPY)
    first = await open_keys(place, finder.open(old), entropy=ENTROPY, holds_sessions=False)
    await first.vault.set_settings({"source": old})
    sealed = (await first.begin("s1")).seal(b"x", b"")
    find = partial(finder.find, None)
    running = await open_keys(place, finder.open(old), entropy=ENTROPY, holds_sessions=True, find_again=find)
    vault = await place.open()
    await Rotation(vault, finder).run(to=new)
    assert (await running.cipher("s1")).open(sealed, b"") == b"x"
    await running.begin("s2")
    assert set(await running.status()) == {file_keys(tmp_path / "new", entropy=ENTROPY).current}
    for one in (first, running, vault):
        await one.close()
