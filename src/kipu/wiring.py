"""From URLs and settings to stores and managers. The only place with deferred imports: what is not used is not loaded."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kipu.errors import ConfigurationError, MissingExtraError, StoreUrlError
from kipu.ports.clock import Clock, SharedTime
from kipu.ports.owner import Liveness
from kipu.ports.principal import Principal
from kipu.ports.store import EventStore
from kipu.ports.tokens import TokenCounter
from kipu.store_parts import files_of, has_vault, keys_of, memory_of, refuse_remains, shown_url, vault_place
from kipu.store_url import SEALING, StoreUrl, archive_url, default_store_url, memory_path
from kipu.stores.host import SystemClock, SystemEntropy, SystemLiveness, this_process_owner
from kipu.stores.wrapper import innermost

if TYPE_CHECKING:
    from kipu.context.policy import WindowPolicy
    from kipu.manager.erasing.eraser import Surroundings
    from kipu.manager.lifecycle.retention import Retention
    from kipu.manager.manager import SessionManager
    from kipu.manager.redacting import RedactorSource
    from kipu.memory.memory import Memory
    from kipu.ports.erasure import ErasurePlace
    from kipu.ports.memory import MemoryStore
    from kipu.ports.model import ModelClient
    from kipu.runtime.agent_builder import AgentSettings, MoreTools, OpenModel
    from kipu.runtime.live.streams import LiveStreams
    from kipu.runtime.observer import LiveFeed, TurnObserver
    from kipu.runtime.runtime import Runtime
    from kipu.sealing.converting import StorePlace
    from kipu.security.key_finder import KeyFinder
    from kipu.security.key_provider import KeySource
    from kipu.security.redaction.policy import RedactionPolicy
    from kipu.security.redaction.redactor import Redactor

T = TypeVar("T")
TOKEN_COUNTERS = ("estimate", "exact")


async def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    liveness: Liveness | None = None,
    keys: KeySource | None = None,
    find_keys: KeyFinder | None = None,
    archive: str | None = None,
) -> EventStore:
    """Return the store at `url`, created if it is not there, with this machine's clock and processes unless others are given.

    It is encrypted with `keys`, or with what `encrypt=` in the URL names; `chain=on` adds the keyed chain of its events. A
    store that is encrypted already is opened with the key that `find_keys` finds: KIPU_KEY, what its vault remembers.
    `archive` is where archives are whose place nobody named, beside the store unless `archive=` in the URL says otherwise.

    Raises:
        StoreUrlError: the URL is not one. StoreError: the place cannot be opened, EncryptionError: not with these keys;
        nothing there was changed.
    """
    from kipu.stores.conversion_mark import refuse_while_converting

    parsed = StoreUrl.parse(url)
    if archive and "archive" not in parsed.settings:
        parsed = replace(parsed, settings={**parsed.settings, "archive": archive})
    liveness = liveness or SystemLiveness()
    refuse_while_converting(parsed.path, store=url)
    refuse_remains(parsed)
    # Where its database has the vault too, that is asked over the store's own connections.
    plain = await _open_plain(parsed, clock=clock, liveness=liveness) if parsed.keeps_its_own else None

    async def open_plain() -> EventStore:
        return plain or await _open_plain(parsed, clock=clock, liveness=liveness)

    try:
        store = await _open_as_it_is(parsed, open_plain, over=plain, keys=keys, find_keys=find_keys)
    except BaseException:
        if plain is not None:
            await plain.close()
        raise
    try:
        refuse_while_converting(parsed.path, store=url)  # now that this process is seen in the files
    except BaseException:
        await store.close()
        raise
    return store


async def _open_as_it_is(
    parsed: StoreUrl,
    open_plain: Callable[[], Awaitable[EventStore]],
    *,
    over: EventStore | None,
    keys: KeySource | None,
    find_keys: KeyFinder | None,
) -> EventStore:
    """Return the store, sealed where it has a vault or is to have one."""
    if keys is None and "encrypt" not in parsed.settings and not await has_vault(parsed, over=over):
        if SEALING & parsed.settings.keys():
            raise StoreUrlError(
                url=shown_url(parsed), reason="chain= and fields= need encrypt=, whose keys they are made with"
            )
        return await _open_unsealed(parsed, open_plain)
    from kipu.sealing.opening import open_sealed

    vault = vault_place(parsed, over=over)
    return await open_sealed(
        open_plain, url=parsed.text, settings=parsed.settings, vault=vault, keys=keys, find_keys=find_keys
    )


def store_place(url: str) -> StorePlace:
    """Return the store at `url` as files, to encrypt or decrypt it in place (`kipu.sealing.converting`).

    Raises: InputError: it has no files, or a fallback that may hold what is not merged.
    """
    from kipu.errors import InputError
    from kipu.sealing.converting import StorePlace

    parsed = StoreUrl.parse(url)
    if "fallback" in parsed.settings:
        raise InputError(reason="name the store without its fallback, after everything in that was merged")
    clock, liveness = SystemClock(), SystemLiveness()
    # Each copy is put on the medium as a whole before it takes the store's name.
    settings = {name: value for name, value in parsed.settings.items() if name not in SEALING} | {"durability": "os"}

    async def open_plain(path: Path) -> EventStore:
        elsewhere = StoreUrl(f"{parsed.kind}:///{path}", parsed.kind, path, settings)
        return await _open_plain(elsewhere, clock=clock, liveness=liveness)

    return StorePlace(
        url,
        parsed.kind,
        path=parsed.path,
        open_plain=open_plain,
        beside=_convert_memory_beside,
        archives_beside="archive" not in settings,
    )


async def look_inside(url: str, question: Callable[[EventStore], Awaitable[T]]) -> T:
    """Return what `question` makes of the store at `url` as somebody without keys sees it."""
    from kipu.stores.conversion_mark import refuse_while_converting

    parsed = StoreUrl.parse(url)
    refuse_while_converting(parsed.path, store=url)
    store = await _open_plain(parsed, clock=SystemClock(), liveness=SystemLiveness())
    try:
        return await question(store)
    finally:
        await store.close()


async def begin_encrypted(
    url: str, keys: KeySource, *, source: str, chain: bool = False, fields: str | None = None
) -> None:
    """Make the store at `url`, which holds nothing, an encrypted one that remembers `source` as the name of its key.

    Raises: StoreUrlError, EncryptionError, StoreError.
    """
    from kipu.sealing.converting import ring_of
    from kipu.sealing.opening import open_sealed
    from kipu.stores.conversion_mark import refuse_while_converting

    parsed = StoreUrl.parse(url)
    refuse_while_converting(parsed.path, store=url)
    settings = {**parsed.settings, **({"chain": "on"} if chain else {}), **({"fields": fields} if fields else {})}
    open_plain = partial(_open_plain, parsed, clock=SystemClock(), liveness=SystemLiveness())
    store = await open_sealed(
        open_plain, url=url, settings=settings, vault=vault_place(parsed), keys=keys, find_keys=None
    )
    try:
        await ring_of(store).vault.set_settings({"source": source})
    finally:
        await store.close()


async def _open_unsealed(parsed: StoreUrl, open_plain: Callable[[], Awaitable[EventStore]]) -> EventStore:
    """Return a store without keys. Raises: KeysMissingError where its events are sealed and the vault is gone."""
    from kipu.stores.sealed_mark import is_sealed

    store = await open_plain()
    if parsed.kind != "memory" and await is_sealed(store):
        from kipu.security.keys import keys_missing

        await store.close()
        raise keys_missing(vault_place(parsed).shown, sealed=True, store=shown_url(parsed))
    return store


async def _open_plain(parsed: StoreUrl, *, clock: Clock | None, liveness: Liveness) -> EventStore:
    from kipu.manager.lifecycle.archive_backed import ArchiveBackedStore

    kept = await _open_kept(parsed, clock=clock, liveness=liveness)
    is_local = parsed.is_on_server and not parsed.settings.get("archive")
    return ArchiveBackedStore(kept, default_url=archive_url(parsed), is_default_local=is_local)


async def _open_kept(parsed: StoreUrl, *, clock: Clock | None, liveness: Liveness) -> EventStore:
    url = parsed.text
    if parsed.kind == "valkey":
        try:
            from kipu.stores.valkey.store import ValkeyStore
        except ImportError as error:
            raise MissingExtraError(extra="valkey", feature="a Valkey store", package="valkey") from error
        return await ValkeyStore.open(url, clock=clock, liveness=liveness)  # without a clock, the server's
    if parsed.is_on_server:
        try:
            from kipu.stores.postgres.store import PostgresStore
        except ImportError as error:
            raise MissingExtraError(extra="postgres", feature="a PostgreSQL store", package="psycopg") from error
        return await PostgresStore.open(url, clock=clock, liveness=liveness)  # without a clock, the server's
    clock = clock or SystemClock()
    settings: dict[str, Any] = {
        name: value for name, value in parsed.settings.items() if name not in {"archive", *SEALING}
    }
    fallback = settings.pop("fallback", None)
    if parsed.kind == "memory":
        from kipu.stores.memory import MemoryStore

        return await MemoryStore.open(clock=clock, liveness=liveness)
    if parsed.kind == "jsonl":
        from kipu.stores.jsonl import JsonlStore

        if "segment_bytes" in settings:
            settings["segment_bytes"] = _positive(url, settings["segment_bytes"])
        return await JsonlStore.open(parsed.path, clock=clock, liveness=liveness, **settings)
    from kipu.stores.sqlite import SqliteStore

    if fallback is None:
        return await SqliteStore.open(parsed.path, clock=clock, liveness=liveness, **settings)
    from kipu.stores.fallback import FallbackStore
    from kipu.stores.sqlite.connection import holds_nothing

    spool = await _open_spool(fallback, clock=clock, liveness=liveness)

    async def primary() -> EventStore:
        return await SqliteStore.open(parsed.path, clock=clock, liveness=liveness, **settings)

    async def stand_in() -> EventStore | None:
        from kipu.stores.memory import MemoryStore

        return await MemoryStore.open(clock=clock, liveness=liveness) if holds_nothing(parsed.path) else None

    return await FallbackStore.open(primary, spool=spool, clock=clock, stand_in=stand_in)


async def _open_spool(url: str, *, clock: Clock, liveness: Liveness) -> EventStore:
    """Return the files of a pair as they are: what seals the pair seals what comes here too, and its keys are the pair's.

    Raises: StoreUrlError: it is another kind of store, or one with keys of its own, which the pair does not use.
    """
    from kipu.stores.conversion_mark import refuse_while_converting

    parsed = StoreUrl.parse(url)
    if parsed.kind != "jsonl":
        raise StoreUrlError(url=shown_url(parsed), reason="a fallback is a jsonl:// store")
    if SEALING & parsed.settings.keys() or await has_vault(parsed, over=None):
        raise StoreUrlError(url=url, reason="a fallback has no keys of its own; encrypt= before fallback= seals both")
    refuse_while_converting(parsed.path, store=url)
    return await _open_kept(parsed, clock=clock, liveness=liveness)


def _positive(url: str, text: str) -> int:
    if not text.isdigit() or int(text) < 4096:
        raise StoreUrlError(url=url, reason="segment_bytes is a whole number of at least 4096")
    return int(text)


def token_counter(name: str) -> TokenCounter | None:
    """Return the counter of a name in `TOKEN_COUNTERS`; None stands for the estimate, which a manager has by itself.

    Raises: MissingExtraError, ConfigurationError.
    """
    if name not in TOKEN_COUNTERS:
        raise ConfigurationError(reason=f"tokens are counted by one of {', '.join(TOKEN_COUNTERS)}, not {name!r}")
    if name == "estimate":
        return None
    from kipu.runtime.models.exact_tokens import exact_counter

    return exact_counter()


def open_redactor(
    environment: Mapping[str, str] | None = None,
    *,
    known: Iterable[str] = (),
    policy: RedactionPolicy | None = None,
    hash_key: bytes | None = None,
    seal: Callable[[str], str] | None = None,
) -> Redactor:
    """Return a redactor that also knows the secrets of `environment` (variables named like secrets) and those in `known`.

    It is fast with the extra `security` and finds the same without it. Raises: ConfigurationError.
    """
    from kipu.security.redaction.known import secrets_of_environment
    from kipu.security.redaction.redactor import Redactor

    every = [*secrets_of_environment(environment or {}), *known]
    return Redactor(policy=policy, known=every, hash_key=hash_key, seal=seal)


async def open_manager(
    url: str | None = None,
    *,
    principal: Principal | None = None,
    policy: WindowPolicy | None = None,
    counter: TokenCounter | str = "estimate",
    clock: Clock | None = None,
    redactor: RedactorSource = None,
    find_keys: KeyFinder | None = None,
    workspaces: Path | None = None,
    archive: str | None = None,
    **settings: Any,
) -> SessionManager:
    """Return a manager over the store at `url` (default: `default_store_url`). Close it, or use it as `async with`.

    An erasure that a kill cut off is finished first. `workspaces` is the folder of sessions' own directories, which erasures
    empty (default: that of `open_runtime`). Tokens are estimated, or counted with a tokenizer where `counter` is "exact" (extra
    `tokens`) or one of your own.
    With a `redactor` (see `open_redactor`) no secret that it finds is written anywhere; without one, events are kept as given.
    Raises: StoreUrlError, StoreError, MissingExtraError (exact counts without the extra), ConfigurationError.
    """
    from kipu.manager.manager import SessionManager

    counting = token_counter(counter) if isinstance(counter, str) else counter
    entropy = SystemEntropy()
    url = url or default_store_url(os.environ)
    store = await open_store(url, clock=clock, find_keys=find_keys, archive=archive)
    manager = SessionManager(
        store,
        clock=clock or clock_of(store),
        entropy=entropy,
        owner=this_process_owner(f"manager-{entropy.random_bytes(4).hex()}"),
        principal=principal,
        policy=policy,
        counter=counting,
        redactor=redactor,
        surroundings=_surroundings(url, lambda: manager, workspaces=workspaces),
        **settings,
    )
    await manager.finish_erasures()
    return manager


def clock_of(store: EventStore) -> Clock:
    """Return the clock that all who use a store go by, so that times mean the same on each machine; else this machine's."""
    kept = innermost(store)
    return kept.clock if isinstance(kept, SharedTime) else SystemClock()


def _surroundings(url: str, manager: Callable[[], SessionManager], *, workspaces: Path | None) -> Surroundings:
    """Return where an erasure has to look beside the store; nothing of it is loaded before one begins."""
    from kipu.manager.erasing.eraser import Surroundings

    parsed = StoreUrl.parse(url)

    def memory() -> MemoryStore | None:
        path = memory_path(parsed)
        is_there = parsed.keeps_its_own or (path is not None and path.exists())
        return memory_of(url, manager().store) if is_there else None

    def places() -> Sequence[ErasurePlace]:
        from kipu.runtime.erasing.places import outside_places
        from kipu.sealing.conversion_place import ConversionPlace

        outside = outside_places(manager(), os.environ, workspaces=workspaces, clock=SystemClock(), memory=memory)
        if parsed.kind not in {"sqlite", "jsonl"}:
            return outside
        return (*outside, ConversionPlace(parsed.kind, parsed.path, url=url))

    return Surroundings(places, partial(files_of, parsed))


def memory_store_of(url: str, store: EventStore) -> MemoryStore:
    """Return what keeps the memory of the store at `url`: sealed with the store's keys where it is encrypted."""
    return memory_of(url, store)


async def _convert_memory_beside(old: EventStore, new: EventStore, *, path: Path, new_path: Path) -> None:
    """Seal the memory of a store that is being encrypted, beside its copy; of one that is being decrypted, unseal it."""
    from kipu.memory.moving import convert_memory

    memory, new_memory = (place.with_name(f"{place.name}.memory") for place in (path, new_path))
    await convert_memory(memory, new_memory, keys=keys_of(old), new_keys=keys_of(new))


def open_memory(
    manager: SessionManager, url: str | None = None, *, clock: Clock | None = None, **options: Any
) -> Memory:
    """Return the memory of `manager`'s store, which is at `url`; close its `store` with the manager's.

    `options` are those of `Memory`: model_for, policy, recall_policy. What it is asked raises EncryptionError where the memory is
    sealed and the store is not, or the other way round.
    """
    from kipu.memory.memory import Memory
    from kipu.proposals.habits import HabitProposals
    from kipu.proposals.inbox import ProposalInbox
    from kipu.proposals.learned import LearnedSource
    from kipu.proposals.ledger import Ledgers

    store, ledgers = memory_of(url or default_store_url(os.environ), manager.store), Ledgers(manager)
    options.setdefault("policies", LearnedSource(ledgers))  # what people approved counts, whoever takes in or recalls
    memory = Memory(manager, store, clock=clock or SystemClock(), **options)
    memory.worker.tell(HabitProposals(ledgers, ProposalInbox(ledgers, mint=manager.mint)).take)
    return memory


def open_runtime(
    manager: SessionManager,
    *,
    settings: AgentSettings | None = None,
    open_model: OpenModel | None = None,
    more_tools: MoreTools | None = None,
    memory: Memory | None = None,
    memory_by_model: bool = True,
    retention: Retention | None = None,
    live: str | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Runtime:
    """Return what runs the turns of `manager`'s sessions; use it as `async with`. Without `open_model`, models are found by name.

    With a `memory` (see `open_memory`), agents recall from it, and sessions that are idle, long or over are taken into it: by the
    session's own model, or by rules where that is none or `memory_by_model` is False. It is closed with the runtime.
    Sessions are looked over now and then: what `retention` says is due is done (without one: expiry after 30 days), erasing apart.
    `live` says what carries the pieces of answers to other processes: `auto` (the store's own way), `off`, or the URL of a Valkey or
    Redis server; without it, KIPU_LIVE.
    `options` are those of `Runtime`: max_turns, max_agents, accepts, channel_policies, default_policy, delivering …
    """
    from kipu.manager.lifecycle.keeper import LifecycleKeeper
    from kipu.manager.lifecycle.retention import Retention
    from kipu.runtime.agent_builder import AgentSettings, CodingAgentBuilder
    from kipu.runtime.instructions import default_workspaces_folder
    from kipu.runtime.live.opening import open_relay
    from kipu.runtime.live.streams import LiveStreams
    from kipu.runtime.models.loader import find_model
    from kipu.runtime.models.loader import open_model as open_choice
    from kipu.runtime.observer import LiveFeed
    from kipu.runtime.runtime import Runtime

    def find_and_open(name: str | None) -> ModelClient:
        return open_choice(find_model(name, environment=os.environ, config={}))

    if settings is None:
        folder = default_workspaces_folder(os.environ.get("XDG_DATA_HOME"), os.environ.get("HOME"))
        settings = AgentSettings(folder)
    options.setdefault("lifecycle", LifecycleKeeper(manager, retention or Retention()))
    feed, streams = LiveFeed(), LiveStreams(manager.mint("live"))
    relay = open_relay(streams, manager.store, choice=live or os.environ.get("KIPU_LIVE"))
    builder = CodingAgentBuilder(
        manager,
        settings,
        open_model=open_model or find_and_open,
        clock=clock or SystemClock(),
        observer=_observer(manager, feed, streams),
        more_tools=more_tools,
        memory=memory,
    )
    if memory is not None:
        from kipu.memory.keeper import MemoryKeeper

        if memory_by_model:
            memory.worker.ask(builder.model_of)
        options = {"keeper": MemoryKeeper(manager, memory), **options, "memory": memory}
    return Runtime(manager, builder, feed=feed, streams=streams, relay=relay, **options)


def _observer(manager: SessionManager, feed: LiveFeed, streams: LiveStreams) -> TurnObserver:
    """Return what both hear the turns by, in whole characters, and without secrets where the manager leaves them out."""
    from kipu.runtime.observer import Observers
    from kipu.runtime.whole_news import WholeNews

    observer: TurnObserver = Observers(feed, streams)
    if manager.redactor is not None:
        from kipu.runtime.redacted_news import RedactedNews

        observer = RedactedNews(observer, manager.redactor)
    return WholeNews(observer)
