"""What a session's head may hold of what callers name: lists of many sessions stay quick, and what is kept can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from kipu.errors import InputError
from kipu.events.normalise import normalise
from kipu.ports.principal import Principal
from kipu.session.busy import SESSION_POLICY, BusyPolicy

TITLE_CHARACTERS = 200
TAG_CHARACTERS = 200
TAGS = 100
METADATA_BYTES = 64 * 1024
RESERVED = ("kipu.", "grant.")
_OWN_NAMES = ("title", "tags", "pinned")


def check_title(title: Any) -> None:
    """Return where a title, if there is one, is text and short enough. Raises: InputError."""
    if title is not None and not isinstance(title, str):
        raise InputError(reason=f"a title is text, not {type(title).__name__}")
    if title is not None and len(title) > TITLE_CHARACTERS:
        raise InputError(reason=f"the title has {len(title)} characters, and at most {TITLE_CHARACTERS} are kept")


def shortened_title(title: str, *, ending: str = "") -> str:
    """Return a title made by Kipu, with an ellipsis where it was too long; `ending` is kept whole."""
    room = TITLE_CHARACTERS - len(ending)
    return (title if len(title) <= room else title[: room - 1].rstrip() + "…") + ending


def check_settings(
    values: Mapping[str, Any], *, caller: Principal, before: Mapping[str, Any], unset: Sequence[str] = ()
) -> None:
    """Return where `caller` may give these settings, and they still fit into a head with those there are.

    Raises: InputError. Settings that were larger before may become smaller.
    InvalidBusyPolicyError: a policy is refused where it is given; every message after it would be refused instead.
    """
    names: tuple[Any, ...] = (*values, *unset)
    odd = next((name for name in names if not isinstance(name, str)), None)
    if odd is not None:
        raise InputError(reason=f"the name of a setting is text, not {odd!r}")
    own = next((name for name in names if name.startswith(RESERVED)), None)
    if own is not None and not (caller.is_local or caller.is_admin):
        # They say where tools work and what was allowed: who may use a session does not thereby decide that (A19).
        raise InputError(reason=f"the setting {own!r} is Kipu's own; settings of yours begin otherwise")
    title = values.get("title")
    if isinstance(title, str):  # as a setting anything else is kept as text
        check_title(title)
    _check_tags(values.get("tags"))
    BusyPolicy.resolve(session=values.get(SESSION_POLICY))
    free = {name: value for name, value in values.items() if name not in _OWN_NAMES}
    if not free:
        return
    after = {name: value for name, value in {**before, **free}.items() if name not in unset}
    size = _size(after)
    if size > METADATA_BYTES and size > _size(before):
        raise InputError(
            reason=f"the session's settings would take {size} bytes, and at most {METADATA_BYTES} are kept with it; "
            "put what is large into a blob (a tool result, or media) or into a note event"
        )


def _check_tags(tags: Any) -> None:
    each = tags if isinstance(tags, list | tuple) else [tags]
    if len(each) > TAGS:
        raise InputError(reason=f"{len(each)} tags are given, and at most {TAGS} are kept")
    for tag in each:
        if isinstance(tag, str) and len(tag) > TAG_CHARACTERS:
            raise InputError(reason=f"a tag has {len(tag)} characters, and at most {TAG_CHARACTERS} are kept")


def _size(values: Mapping[str, Any]) -> int:
    plain, _ = normalise(dict(values))
    return len(orjson.dumps(plain))
