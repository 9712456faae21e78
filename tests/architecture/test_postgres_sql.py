"""The PostgreSQL store keeps to the SQL that engines which spread rows over machines have too."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.source import python_files

BANNED = {
    "sequences": r"\b(big|small)?serial\b|\bnextval\b|\bCREATE SEQUENCE\b|\bGENERATED\b.*\bIDENTITY\b",
    "triggers and procedures": r"\bCREATE (OR REPLACE )?(TRIGGER|FUNCTION|PROCEDURE|RULE)\b|\bplpgsql\b|\bDO \$",
    "rows held by a SELECT": r"\bFOR (NO KEY )?(UPDATE|SHARE)\b",
    "advisory locks": r"\bpg_(try_)?advisory",
    "locks of tables": r"\bLOCK TABLE\b",
    "temporary tables": r"\bCREATE (LOCAL |GLOBAL )?TEMP",
    "foreign keys": r"\bREFERENCES\b|\bFOREIGN KEY\b",
    "what a pooler cannot keep": r"\bDECLARE\b.*\bCURSOR\b|\bWITH HOLD\b",
}
TABLES = {"heads", "events", "blobs", "bindings", "idempotency", "members", "docs"}


def _texts() -> list[tuple[str, str]]:
    """Return the texts of the store that are no docstrings, with their file; parts of one expression count together."""
    found: list[tuple[str, str]] = []
    for file in python_files("src/kipu/stores/postgres"):
        docstrings = set(file.docstrings())
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in docstrings:
                found.append((file.name, node.value))
    return found


@pytest.mark.parametrize("what", BANNED)
def test_postgres_uses_nothing_that_is_banned(what: str) -> None:
    """No statement of the store uses sequences, triggers, procedures, held rows, locks by hand or foreign keys (PG-16)."""
    strays = [f"{name}: {text[:80]}" for name, text in _texts() if re.search(BANNED[what], text, re.IGNORECASE)]
    assert not strays, "\n".join(strays)


def test_postgres_keeps_rows_by_session() -> None:
    """Every table but `meta` holds the session's id, and those with many rows begin their key with it (PG-17)."""
    made = [text for _, text in _texts() if "CREATE TABLE" in text]
    text = "\n".join(made)
    for table in TABLES:
        body = re.search(rf"\.{table}\((.*?)\)(?:;|\s*$|\s*WITH|\s*CREATE)", text, re.DOTALL)
        assert body is not None, table
        assert 'session_id text COLLATE "C"' in body[1], table
    for table in ("events", "blobs", "members", "docs"):
        assert re.search(rf"\.{table}\(.*?PRIMARY KEY \(session_id", text, re.DOTALL), table


def test_banned_words_are_found() -> None:
    """The search finds what it bans."""
    samples = (
        "id bigserial", "CREATE TRIGGER t", "select 1 FOR UPDATE", "pg_advisory_lock(1)", "lock table x",
        "CREATE TEMP TABLE t", "x text REFERENCES y", "DECLARE c CURSOR",
    )  # fmt: skip
    for pattern, sample in zip(BANNED.values(), samples, strict=True):
        assert re.search(pattern, sample, re.IGNORECASE), sample
