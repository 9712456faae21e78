"""Which facts answer a message: by the words they share, how rare those are, how near the fact is, and how fresh. Pure (A4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from kipu.ports.memory import Candidate, Fact
from kipu.session.terms import terms_of

MOST_QUERY_CHARACTERS = 4_000
HALF_LIFE_DAYS = 90.0
LEAST_SHARE = 0.35  # of the best fact's relevance: less is a chance meeting of words
_NEARNESS = {"session": 1.2, "project": 1.1, "user": 1.0, "tenant": 0.9}
# Words that are in everything say nothing; rare languages lose nothing by a list that lacks theirs.
_COMMON_TEXT = """
a an and any are as at be but by can could did do does for from had has have he how i if in into is it its just like make me my
no not now of on one or our please she should so some than that the their them then there these they this to up us use want was
we were what when where which who why will with would you your das der die ein eine ich ist mit nicht und zu le la les de des du
un une et est pas que el los las en es y o ne se si
"""
_COMMON = frozenset(_COMMON_TEXT.split())


def query_terms(text: str) -> tuple[str, ...]:
    """Return what of a message is looked for, each once: no common words, and of scripts without spaces the pairs."""
    found = dict.fromkeys(terms_of(text[:MOST_QUERY_CHARACTERS]))
    telling = [term for term in found if term not in _COMMON and (len(term) > 1 or term.isdigit())]
    return tuple(telling or found)


def ranked(candidates: Sequence[Candidate], *, total: int, frequencies: Mapping[str, int], now: str) -> list[Fact]:
    """Return the facts that are relevant, best first; the same for the same facts, message and time."""
    relevance = {
        each.fact.fact_id: sum(math.log(1 + total / max(frequencies.get(term, 1), 1)) for term in each.terms)
        for each in candidates
    }
    best = max(relevance.values(), default=0.0)
    relevant = [each.fact for each in candidates if relevance[each.fact.fact_id] >= LEAST_SHARE * best]

    def order(fact: Fact) -> tuple[float, str]:
        return -round(relevance[fact.fact_id] * _worth(fact, now), 9), fact.fact_id

    return sorted(relevant, key=order)


def _worth(fact: Fact, now: str) -> float:
    """Return what a fact is worth whatever is asked: how near, how sure, how fresh; a clock that was set back makes none fresher."""
    fresh = 0.5 + 0.5 * math.pow(0.5, _age_days(fact.created_at, now) / HALF_LIFE_DAYS)
    return _NEARNESS[fact.space.scope] * (0.5 + 0.5 * fact.confidence) * fresh


def _age_days(created_at: str, now: str) -> float:
    try:
        age = datetime.fromisoformat(now) - datetime.fromisoformat(created_at)
    except (ValueError, TypeError):
        return 0.0
    return max(age.total_seconds(), 0.0) / 86_400
