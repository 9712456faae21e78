"""Search terms: what is indexed is found, and what is not there is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kipu.session.terms import MAX_TERM_CHARACTERS, phrases_of, terms_of


def found(text: str, query: str) -> bool:
    """Judge like a store: every phrase's terms stand next to one another somewhere."""
    terms = terms_of(text)
    phrases = phrases_of(query)
    return bool(phrases) and all(
        any(
            _matches(terms[start : start + len(phrase.terms)], phrase.terms, phrase.prefix)
            for start in range(len(terms))
        )
        for phrase in phrases
    )


def _matches(there: tuple[str, ...], wanted: tuple[str, ...], prefix: bool) -> bool:
    if len(there) != len(wanted):
        return False
    last = there[-1].startswith(wanted[-1]) if prefix else there[-1] == wanted[-1]
    return last and there[:-1] == wanted[:-1]


MIXED = "重跑gen-itgc后50条悬空引用清零"


def test_two_character_words_and_latin_words_are_found_in_mixed_text() -> None:
    """Short Chinese words and words glued to them are found, and the reversed word is not (B60)."""
    for query in (
        "悬空",
        "itgc",
        "gen",
        "gen-itgc",
        "重跑gen",
        "后50",
        "引用清零",
        "空",
        "零",
        "重",
        "悬空 itgc",
        "Gen",
    ):
        assert found(MIXED, query), query
    for query in ("空悬", "跑重", "ge", "tgc", "清引", "悬空 没有", "51"):
        assert not found(MIXED, query), query


def test_punctuation_in_a_query_only_separates() -> None:
    """Any punctuation in a query is harmless, and a query of nothing else asks for nothing (B60)."""
    for query in ('"悬空"', "悬空!", "(itgc)", "gen*", "-itgc", "悬空'; DROP", "NEAR(悬空)"):
        assert isinstance(phrases_of(query), tuple)
    assert found(MIXED, '"悬空"')
    assert found(MIXED, "^itgc:")
    assert found("generator", "gene*")
    assert phrases_of("") == phrases_of(" \t\n") == phrases_of("!?…。，*") == ()


def test_words_fold_case_and_width() -> None:
    """Case and full-width forms do not matter (B60)."""
    assert found("The PARSER Failed", "parser failed")
    assert found("ＡＢＣ", "abc")
    assert found("Straße", "STRASSE")
    assert found("русский Текст", "текст")


@given(st.text(st.sampled_from("测试会话边界清零 ab1-"), min_size=1, max_size=30), st.data())
def test_every_stretch_of_a_chinese_run_is_found(text: str, data: st.DataObject) -> None:
    """Whatever stretch of a run is asked for, its text is found (B60)."""
    start = data.draw(st.integers(0, len(text) - 1))
    query = text[start : start + data.draw(st.integers(1, 6))]
    words = "".join(char if char in "测试会话边界清零" else " " for char in query).split()
    if words:
        assert found(text, words[0])


@given(st.lists(st.integers(1, 200), max_size=8), st.sampled_from([" ", "-", "\n", "_ "]))
def test_long_words_are_cut_wherever_they_stand(lengths: list[int], between: str) -> None:
    """No term is longer than the bound, and a shorter one is whole."""
    words = [chr(97 + index) * length for index, length in enumerate(lengths)]
    assert terms_of(between.join(words)) == tuple(word[:MAX_TERM_CHARACTERS] for word in words)
