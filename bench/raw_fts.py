"""The raw side of W4's search: bare contentless FTS5 over terms made beforehand, newest first."""

from __future__ import annotations

import random
import re
import statistics
import time
from pathlib import Path

import apsw

from bench.workload import message_text

# What people type: a rare word, a common one, two words, a two-character Chinese word, a longer phrase, a prefix.
QUERIES = {
    "rare": "ticket{rare}",
    "common": "session",
    "two words": "refund latency",
    "chinese": "检索",
    "chinese long": "窗口预算错误",
    "prefix": "ticket{prefix}*",
}
LIMIT = 50
REPEATS = 15
_CJK = re.compile(r"([\u4e00-\u9fff]+)")


def query_texts(messages: int) -> dict[str, str]:
    """Return the queries for a corpus of so many messages."""
    return {name: text.format(rare=messages // 2, prefix=str(messages // 3)[:4]) for name, text in QUERIES.items()}


def terms(text: str) -> list[str]:
    """Return words and, for Chinese, overlapping pairs of characters."""
    found: list[str] = []
    for part in re.findall(r"[\u4e00-\u9fff]+|[a-z0-9]+", text.lower()):
        if _CJK.match(part):
            found += [part[at : at + 2] for at in range(max(1, len(part) - 1))]
        else:
            found.append(part)
    return found


def corpus(messages: int) -> list[str]:
    """Return the texts of all messages."""
    rng = random.Random(11)
    return [message_text(number, rng) for number in range(messages)]


def build(directory: Path, *, messages: int) -> dict[str, float]:
    """Index the corpus; report milliseconds a thousand messages."""
    prepared = [" ".join(terms(text)) for text in corpus(messages)]
    connection = apsw.Connection(str(directory / "fts.sqlite"))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE VIRTUAL TABLE fts USING fts5(terms, content='', tokenize='unicode61')")
    connection.execute("CREATE TABLE at(id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, seq INTEGER NOT NULL)")
    start_s = time.perf_counter()
    connection.execute("BEGIN")
    numbered = list(enumerate(prepared, start=1))
    connection.executemany("INSERT INTO fts(rowid, terms) VALUES (?, ?)", numbered)
    connection.executemany("INSERT INTO at VALUES (?, ?, ?)", [(n, f"sess_{n % 1000}", n // 1000) for n, _ in numbered])
    connection.execute("COMMIT")
    wall_s = time.perf_counter() - start_s
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return {"ms_per_1000": wall_s * 1e6 / messages, "bytes": (directory / "fts.sqlite").stat().st_size}


def match_of(query: str) -> str:
    """Return the FTS5 expression of a typed query."""
    words = []
    for word in query.split():
        made = terms(word)
        words.append('"' + " ".join(made) + '"' + ("*" if word.endswith("*") else ""))
    return " ".join(words)


def search(directory: Path, *, fixture: str, messages: int) -> dict[str, float]:
    """Time each query: the newest fifty hits with their places."""
    del directory
    connection = apsw.Connection(str(Path(fixture) / "fts.sqlite"))
    sql = (
        "SELECT at.session_id, at.seq FROM (SELECT rowid AS id FROM fts WHERE fts MATCH ? ORDER BY rowid DESC LIMIT ?)"
        " JOIN at USING (id)"
    )
    report = {}
    for name, query in query_texts(messages).items():
        expression = match_of(query)
        laps_ms = []
        hits = 0
        for _ in range(REPEATS):
            start_s = time.perf_counter()
            hits = len(connection.execute(sql, (expression, LIMIT)).fetchall())
            laps_ms.append((time.perf_counter() - start_s) * 1000)
        report[f"{name} ms"] = statistics.median(laps_ms)
        report[f"{name} hits"] = hits
    report["search_ms"] = sum(value for name, value in report.items() if name.endswith(" ms"))
    return report
