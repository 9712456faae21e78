"""Counting tokens with a real tokenizer, for whom an estimate is not enough (extra `tokens`)."""

from __future__ import annotations

from typing import Protocol, cast

from kipu.errors import ConfigurationError, MissingExtraError
from kipu.ports.tokens import TokenCounter

DEFAULT_VOCABULARY = "o200k_base"


class _Tokenizer(Protocol):
    def encode_ordinary(self, text: str) -> list[int]:
        """Return the tokens of `text`, in which markers such as <|endoftext|> are plain text."""
        ...


def exact_counter(vocabulary: str = DEFAULT_VOCABULARY) -> TokenCounter:
    """Return a counter with the tables of `vocabulary`, which come with the package: nothing is downloaded.

    Vocabularies: o200k_base, cl100k_base, llama3, mistral_v3, deepseek_v3 and others that splintr brings.
    Raises: MissingExtraError (`splintr-rs` is not installed), ConfigurationError (there is no such vocabulary).
    """
    try:
        import splintr
    except ImportError as error:
        raise MissingExtraError(feature="exact token counts", package="splintr-rs", extra="tokens") from error
    try:
        tokenizer = splintr.Tokenizer.from_pretrained(vocabulary)
    except Exception as error:
        raise ConfigurationError(reason=f"there is no token vocabulary {vocabulary!r}: {error}") from error
    return ExactCounter(vocabulary, cast("_Tokenizer", tokenizer))


class ExactCounter:
    """Count as the model of a vocabulary does. What people wrote never counts as a marker, as providers encode it."""

    def __init__(self, vocabulary: str, tokenizer: _Tokenizer) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer

    @property
    def name(self) -> str:
        """Return the vocabulary, such as "o200k_base"."""
        return self._vocabulary

    def count(self, text: str) -> int:
        """Return the tokens of `text`; a lone surrogate counts as the character that stands for it when it is stored."""
        if not text:
            return 0
        return len(self._tokenizer.encode_ordinary(text.encode("utf-8", "replace").decode()))
