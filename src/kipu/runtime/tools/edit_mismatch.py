"""Why a text to be replaced was not found, or found too often, in words that help a model to correct itself."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence

MAX_LINES_SHOWN = 12
MAX_LINE_CHARACTERS = 300
_MAX_CANDIDATES = 40
_MAX_COMPARED_CHARACTERS = 400
_MAX_LINES_SEARCHED = 100_000
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u00a0\u202f\u3000", "''\"\"--   ")


def found_often(text: str, places: Sequence[int]) -> str:
    """Return where a text stands that was to be there once."""
    numbers = [text.count("\n", 0, at) + 1 for at in places[:20]]
    more = f" and {len(places) - 20} more" if len(places) > 20 else ""
    return (
        f"old_text is there {len(places)} times, at lines {', '.join(map(str, numbers))}{more}. "
        "Give more of the lines around the one you mean, or set replace_all."
    )


def nearest(text: str, old: str, *, new: str) -> str:
    """Return that `old` is not in `text`, the lines most like it, and what differs."""
    said = ["old_text is not in the file."]
    if _NUMBERED.search(old) and _NUMBERED.sub("", old) in text:
        return "old_text is not in the file: it has the line numbers of read_file in it. Leave number and tab out."
    if new.strip() and new in text:
        said.append(
            f"new_text is there already, at line {text.count(chr(10), 0, text.index(new)) + 1}: was it made before?"
        )
    lines, wanted = text.split("\n")[:_MAX_LINES_SEARCHED], old.strip("\n").split("\n")
    at, difference = _same_but_for(lines, wanted)
    if at is None:
        at = _most_alike(lines, wanted)
        difference = None if at is None else _first_difference(lines[at : at + len(wanted)], wanted, first=at + 1)
    if at is None:
        said.append("No lines in it are like it. Read the file again.")
        return " ".join(said)
    end = min(at + len(wanted), len(lines))
    said.append(f"The closest lines are {at + 1}-{end}" + (f"; {difference}" if difference else "") + ":")
    return " ".join(said) + "\n" + _numbered(lines, at, end)


def _numbered(lines: Sequence[str], start: int, end: int) -> str:
    shown = [
        f"{number + 1:>6}\t{lines[number][:MAX_LINE_CHARACTERS]}"
        for number in range(start, min(end, start + MAX_LINES_SHOWN))
    ]
    return "\n".join(shown)


def _same_but_for(lines: Sequence[str], wanted: Sequence[str]) -> tuple[int | None, str | None]:
    """Return where the lines stand if only white space or the look of characters differs, and in what."""
    ways = (("only white space differs", _without_space), ("only look-alike characters differ", _plain_characters))
    for difference, way in ways:
        keys = [way(line) for line in wanted]
        if not any(keys):
            continue
        folded = [way(line) for line in lines]
        for at in _occurrences(folded, keys):
            detail = _first_difference(lines[at : at + len(wanted)], wanted, first=at + 1)
            return at, f"{difference}: {detail}" if detail else difference
    return None, None


def _occurrences(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return where all of `wanted` stands; its first and last line may be parts of lines."""
    last = len(wanted) - 1
    if last == 0:
        return [at for at, line in enumerate(lines) if wanted[0] in line][:1]
    inner = list(wanted[1:last])
    for at in range(len(lines) - last):
        if (
            lines[at].endswith(wanted[0])
            and lines[at + last].startswith(wanted[last])
            and list(lines[at + 1 : at + last]) == inner
        ):
            return [at]
    return []


def _without_space(line: str) -> str:
    return "".join(line.split())


def _plain_characters(line: str) -> str:
    return _without_space(unicodedata.normalize("NFKC", line.translate(_QUOTES)))


def _most_alike(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return where the lines begin that are most like the wanted ones; bounded, so a huge file costs no minutes."""
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    line = wanted[anchor].strip()[:_MAX_COMPARED_CHARACTERS]
    words = set(re.findall(r"\w+", line))
    if not words:
        return None
    scored = []
    for number, candidate in enumerate(lines):
        cut = candidate[:_MAX_COMPARED_CHARACTERS]
        shared = len(words.intersection(re.findall(r"\w+", cut)))
        if shared or len(words) < 3:
            scored.append((-shared, abs(len(cut) - len(line)), number))
    best, place = 0.5, None
    for _, _, number in sorted(scored)[:_MAX_CANDIDATES]:
        ratio = difflib.SequenceMatcher(None, line, lines[number].strip()[:_MAX_COMPARED_CHARACTERS]).ratio()
        if ratio > best:
            best, place = ratio, max(number - anchor, 0)
    return place


def _first_difference(found: Sequence[str], wanted: Sequence[str], *, first: int) -> str | None:
    """Return where two runs of lines begin to differ and how, the ends of a part of a line left alone."""
    for index, line in enumerate(wanted):
        if index >= len(found):
            return f"the file ends before line {index + 1} of old_text"
        there = found[index]
        if there == line or (len(wanted) == 1 and line in there):
            continue
        return f"line {first + index} {_how(there, line)}"
    return None


def _how(there: str, wanted: str) -> str:
    in_file, in_old = _indent(there), _indent(wanted)
    if in_file != in_old and there.strip() == wanted.strip() and there.rstrip() != wanted.rstrip():
        return f"is indented by {_spaces(in_file)} in the file and by {_spaces(in_old)} in old_text"
    if there.rstrip() == wanted.rstrip():
        in_file, in_old = there[len(there.rstrip()) :], wanted[len(wanted.rstrip()) :]
        return f"ends with {_spaces(in_file)} in the file and with {_spaces(in_old)} in old_text"
    at = next((i for i, (a, b) in enumerate(zip(there, wanted, strict=False)) if a != b), min(len(there), len(wanted)))
    start = max(0, at - 20)
    return f"differs at character {at + 1}: {_excerpt(there, start, at)} in the file, {_excerpt(wanted, start, at)} in old_text"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _spaces(text: str) -> str:
    names = {" ": "space", "\t": "tab", "\r": "carriage return", "\u00a0": "no-break space"}
    if not text:
        return "nothing"
    counts: dict[str, int] = {}
    for character in text:
        name = names.get(character, f"U+{ord(character):04X}")
        counts[name] = counts.get(name, 0) + 1
    return " and ".join(f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items())


def _excerpt(line: str, start: int, at: int) -> str:
    show = ascii if any(ord(character) > 0x2000 or character == "\xa0" for character in line[at : at + 1]) else repr
    return show(line[start : at + 20])
