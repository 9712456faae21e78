"""What is the matter with a store's key, said without opening the store: which key it wants, and what was given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kipu.errors import KipuError, StoreError
from kipu.ports.vault import KeyVault, VaultPlace
from kipu.security.key_finder import KeyFinder
from kipu.security.keys import INDEX, KeyRing
from kipu.stores.host import SystemEntropy

# Stable words for programs.
PLAIN, OPENS, WRONG, UNNAMED, UNUSABLE, ROTATING, EMPTY, UNREADABLE, LOST = (
    "plain", "opens", "wrong_key", "no_key_named", "key_unusable", "rotation_unfinished", "vault_empty",
    "vault_unreadable", "vault_missing",
)  # fmt: skip
_ADVICE = {
    PLAIN: "the store is not encrypted; `kipu encrypt` encrypts it",
    OPENS: "the key opens the store",
    WRONG: "this key is not the one that the vault was made with; give that one, or the passphrase as it was typed then",
    UNNAMED: "name the key: KIPU_KEY=file:PATH, KIPU_PASSPHRASE, or encrypt= in the URL",
    UNUSABLE: "the key that is named cannot be read",
    ROTATING: "a rotation was begun and not finished: run `kipu key rotate` again, with the old key and the new one",
    EMPTY: "the vault holds no keys: put it back from a backup; the store's sessions cannot be read without it",
    UNREADABLE: "the vault cannot be read: put it back from a backup; nothing was changed",
    LOST: "the store's sessions are sealed and its vault is gone: put it back, from where the store came or from a backup",
}


@dataclass(frozen=True, slots=True)
class KeyState:
    """What stands in a vault, and what the key found does with it. No field tells a key."""

    state: str
    vault: str
    source: str | None = None  # what names the key now
    remembered: str | None = None  # what the vault remembers
    current: str | None = None  # the name of the key that was found
    wraps: dict[str, int] = field(default_factory=dict)  # how many data keys are under which key
    sessions: int = 0
    epochs: int = 0  # data keys that older events need
    erased: int = 0
    chained: bool = False
    fields: tuple[str, ...] = ()
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether the store opens, or needs no key."""
        return self.state in {PLAIN, OPENS}

    @property
    def advice(self) -> str:
        """Return what to do."""
        return f"{_ADVICE[self.state]}{f' ({self.detail})' if self.detail else ''}"


async def key_state(vault: VaultPlace, finder: KeyFinder, *, named: str | None, sealed: bool) -> KeyState:
    """Return how it stands. `sealed` says that the store without its vault holds sealed events."""
    try:
        opened = await vault.open() if await vault.is_there() else None
    except StoreError as error:
        return KeyState(UNREADABLE, vault.shown, detail=str(error))
    if opened is None:
        return KeyState(LOST if sealed else PLAIN, vault.shown)
    try:
        known = await _standing(opened, finder, named=named)
        return await _tried(opened, finder, known, named=named) if await opened.keys(INDEX) else known
    except StoreError as error:
        return KeyState(UNREADABLE, vault.shown, detail=str(error))
    finally:
        await opened.close()


async def _standing(vault: KeyVault, finder: KeyFinder, *, named: str | None) -> KeyState:
    settings, (sessions, keys, erased) = await vault.settings(), await vault.sizes()
    return KeyState(
        EMPTY,
        vault.place,
        source=finder.name_of(named, settings),
        remembered=settings.get("source"),
        wraps=await vault.counts(),
        sessions=sessions,
        epochs=keys - sessions,
        erased=erased,
        chained=bool(settings.get("chain")),
        fields=tuple(settings.get("fields") or ()),
    )


async def _tried(vault: KeyVault, finder: KeyFinder, known: KeyState, *, named: str | None) -> KeyState:
    """Return what the key that is found does."""
    if known.source is None:
        return _with(known, UNNAMED)
    try:
        source = finder.find(named, await vault.settings())
    except KipuError as error:
        return _with(known, UNUSABLE, detail=str(error))
    if source is None:
        return _with(known, UNNAMED)
    try:
        ring = await KeyRing.open(vault, source, entropy=SystemEntropy())
    except KipuError as error:
        return _with(known, UNUSABLE if error.code in {"key_service", "key_source"} else WRONG, detail=str(error))
    unfinished = len(known.wraps) > 1 or bool((await vault.settings()).get("older"))
    return _with(known, ROTATING if unfinished else OPENS, current=ring.current)


def _with(known: KeyState, state: str, *, detail: str = "", current: str | None = None) -> KeyState:
    return replace(known, state=state, detail=detail, current=current)
