"""Names of servers' tools: taken by every provider, stable, and never another's."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from kipu.runtime.mcp.tool_names import tool_name

TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES = st.text(max_size=80) | st.text("ab_-", max_size=8)


@given(server=NAMES, tool=NAMES)
def test_mcp_names_are_such_that_providers_take_them(server: str, tool: str) -> None:
    """Whatever server and tool are called, the name is 1 to 64 plain characters and always the same (C29)."""
    assert TAKEN.fullmatch(tool_name(server, tool))
    assert tool_name(server, tool) == tool_name(server, tool)


@given(one=st.tuples(NAMES, NAMES), other=st.tuples(NAMES, NAMES))
def test_mcp_names_of_different_tools_differ(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two tools never share a name, also where separators or odd characters make them look alike (C29, A19)."""
    assert (tool_name(*one) == tool_name(*other)) == (one == other)


def test_mcp_names_of_lookalikes_differ() -> None:
    """The pairs that a plain joining would confuse have names of their own (C29)."""
    pairs = [
        ("a", "b__c"),
        ("a__b", "c"),
        ("a_", "b"),
        ("a", "_b"),
        ("a.b", "c"),
        ("a_b", "c"),
        ("a", "b c"),
        ("a", "b_c"),
    ]
    pairs += [("x" * 70, "a"), ("x" * 70, "b"), ("x", "a" * 70), ("x", "a" * 71)]
    assert len({tool_name(*pair) for pair in pairs}) == len(pairs)
    assert tool_name("github", "get_issue") == "mcp__github__get_issue"


def test_mcp_names_cannot_be_taken_from_another_server() -> None:
    """A server that calls its tool by the name another one's got does not get that name (A19)."""
    victim = tool_name("x.y", "send money")
    stolen = victim.removeprefix("mcp__x_y__")
    assert tool_name("x_y", stolen) != victim
