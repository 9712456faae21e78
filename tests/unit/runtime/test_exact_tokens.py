"""Counting with a real tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kipu.context.tokens import MESSAGE_TOKENS, EstimateCounter
from kipu.errors import ConfigurationError, MissingExtraError
from kipu.events.conversation import UserMessageEvent
from kipu.ports.tokens import TokenCounter
from kipu.runtime.models.exact_tokens import exact_counter
from kipu.wiring import open_manager

TEXTS = {
    "english": "The session ended before the tool had answered, so the turn was taken over by another worker. " * 20,
    "code": "def append(self, records: Sequence[Record]) -> Appended:\n    return self._store.append(records)\n" * 20,
    "chinese": "会话在工具回答之前就结束了，所以由另一个工作进程接管了这一轮。" * 20,
    "json": json.dumps([{"id": number, "path": f"/srv/app/{number}.py", "ok": True, "size": number * 37} for number in range(60)]),
    "log": "2026-01-02T03:04:05.678Z WARN store: retry 3 of 5 after EIO on fd 17 (0x7f3a)\n" * 30,
}  # fmt: skip


def test_exact_counter_counts_known_texts() -> None:
    """The counts are those of the published vocabulary, and nothing costs nothing."""
    pytest.importorskip("splintr")
    counter = exact_counter()
    assert counter.name == "o200k_base"
    assert [counter.count(text) for text in ("", "hello world", "日本")] == [0, 2, 1]
    assert exact_counter("cl100k_base").count("hello world") == 2


@pytest.mark.parametrize("kind", TEXTS)
def test_estimate_stays_near_the_exact_count(kind: str) -> None:
    """The estimate is at most a fifth under the exact count, for JSON of short numbers, and a third over it (B36)."""
    pytest.importorskip("splintr")
    exact, estimate = exact_counter().count(TEXTS[kind]), EstimateCounter().count(TEXTS[kind])
    assert 0.8 * exact <= estimate <= 1.34 * exact, (exact, estimate)


def test_markers_in_text_are_text() -> None:
    """What a person writes is never counted as one of the model's own markers, and lone surrogates do not fail."""
    pytest.importorskip("splintr")
    counter = exact_counter()
    assert counter.count("<|endoftext|>") > 1
    assert counter.count("a\ud800b") == counter.count("a?b")


def test_unknown_vocabulary_is_a_configuration_error() -> None:
    """A vocabulary that is not there is named in the error."""
    pytest.importorskip("splintr")
    with pytest.raises(ConfigurationError, match="no-such-vocabulary"):
        exact_counter("no-such-vocabulary")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says how to install it."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(MissingExtraError, match=r"kipu\[tokens\]"):
        exact_counter()


async def test_open_manager_counts_as_it_is_told() -> None:
    """An event's tokens are those of the estimate, of the tokenizer, or of a counter of one's own (B36)."""
    pytest.importorskip("splintr")

    class Words:
        name = "words"

        def count(self, text: str) -> int:
            return len(text.split())

    text = TEXTS["json"]
    expected: list[tuple[TokenCounter | str, int]] = [
        ("estimate", EstimateCounter().count(text)),
        ("exact", exact_counter().count(text)),
        (Words(), len(text.split())),
    ]
    for counter, tokens in expected:
        async with await open_manager("memory://", counter=counter) as manager:
            session = await manager.get_or_create("cli:tokens")
            await session.add_event(UserMessageEvent(content=text))
            head = await manager.store.head(session.session_id)
            assert head is not None
            assert head.token_count == tokens + MESSAGE_TOKENS
    with pytest.raises(ConfigurationError, match="guess"):
        await open_manager("memory://", counter="guess")


async def test_open_manager_says_what_exact_counts_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the extra, exact counts are refused before a store is opened or made."""
    monkeypatch.setitem(sys.modules, "splintr", None)
    with pytest.raises(MissingExtraError, match=r"kipu\[tokens\]"):
        await open_manager(f"sqlite:///{tmp_path}/a.db", counter="exact")
    assert list(tmp_path.iterdir()) == []
