"""What calls may do: rules, layers, and texts that look allowed but are not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kipu.errors import ConfigurationError
from kipu.ports.principal import Principal
from kipu.ports.tool import PolicyAnswer, ToolSpec
from kipu.runtime.policy.policy_rule import PolicyRule, parse_rules
from kipu.runtime.policy.tool_policy import LAYERS, STRICTNESS, LayerName, PolicyDecision, PolicyLayer, ToolPolicy
from kipu.runtime.tools.shell_commands import commands_of

ALICE = Principal("alice", tenant="acme", roles=frozenset({"developer"}))
GUEST = Principal("guest")


def spec(name: str = "shell", default: PolicyAnswer = "ask") -> ToolSpec:
    return ToolSpec(name, "", {"type": "object"}, default_policy=default)


def policy(rules: Any, *, layer: LayerName = "user", **kwargs: Any) -> ToolPolicy:
    return ToolPolicy([PolicyLayer(layer, parse_rules(rules))], splitters={"shell": commands_of}, **kwargs)


def answer(rules: Any, subject: str, tool: str = "shell", principal: Principal = ALICE) -> PolicyAnswer:
    return policy(rules).decide(spec(tool), subject, principal=principal).answer


ALLOWED = {
    "allow": ["shell(git status*)", "shell(ls *)", "shell(cat src/*)", "read_file(src/*)", "read_file(notes.txt)"]
}

ESCAPES = [
    ("shell", "git status; rm -rf /"),
    ("shell", "git status && rm -rf /"),
    ("shell", "git status || rm -rf /"),
    ("shell", "git status | sh"),
    ("shell", "git status & rm -rf /"),
    ("shell", "git status\nrm -rf /"),
    ("shell", "git status $(rm -rf /)"),
    ("shell", "git status `rm -rf /`"),
    ("shell", "git status <(rm -rf /)"),
    ("shell", 'git status "$(rm -rf /)"'),
    ("shell", "git status > /etc/passwd"),
    ("shell", "git status>/etc/passwd"),
    ("shell", "ls ${IFS}x"),
    ("shell", "PATH=/tmp/evil git status"),
    ("shell", "env PATH=/tmp/evil git status"),
    ("shell", "GIT_SSH_COMMAND='rm -rf /' git status"),
    ("shell", "/tmp/evil/git status"),
    ("shell", "./git status"),
    ("shell", "cat src/../../etc/passwd"),
    ("shell", "cat src/.."),
    ("shell", "ls -l ../secret"),
    ("shell", "cat 'src/../x'"),
    ("shell", "ｇｉｔ status"),
    ("shell", "gіt status"),  # the second letter is Cyrillic
    ("shell", "git status\u202e evil"),
    ("shell", "git status\u200b"),
    ("shell", "git status\x00"),
    ("shell", "GIT status"),
    ("shell", " ; "),
    ("shell", ""),
    ("read_file", "src/../notes.md"),
    ("read_file", "src/a/../../etc/passwd"),
    ("read_file", "src/.."),
    ("read_file", "src\\..\\..\\secret"),
    ("read_file", "./src/../../x"),
    ("read_file", "/etc/passwd"),
    ("read_file", "SRC/a"),
    ("read_file", "ｓｒｃ/a"),
    ("read_file", "notes.txt\u200d"),
    ("read_file", "notes.txt/../../x"),
    ("read_file", "notes.txt\n"),
]


@pytest.mark.parametrize(("tool", "subject"), ESCAPES)
def test_policy_asks_for_what_only_looks_allowed(tool: str, subject: str) -> None:
    """A pattern allows the very text it means: what hides more behind it, or is spelled otherwise, is asked about (A19)."""
    assert answer(ALLOWED, subject, tool) == "ask"


@pytest.mark.parametrize(
    ("tool", "subject"),
    [
        ("shell", "git status"),
        ("shell", "git status --short"),
        ("shell", "git status; ls -l"),
        ("shell", "git status && cat src/a.py | ls -"),
        ("shell", "ls 'a;b'"),
        ("shell", "ls a..b"),
        ("read_file", "src/a/b.py"),
        ("read_file", "notes.txt"),
    ],
)
def test_policy_allows_what_its_patterns_mean(tool: str, subject: str) -> None:
    """A command line is allowed when each of its commands is, a path when the pattern matches it whole (A19)."""
    assert answer(ALLOWED, subject, tool) == "allow"


DENIED = {"allow": ["shell", "read_file", "write_file"], "deny": ["shell(rm *)", "read_file(secret/*)", "*(.env)"]}


@pytest.mark.parametrize(
    ("tool", "subject"),
    [
        ("shell", "rm -rf /"),
        ("shell", "ls; rm -rf /"),
        ("shell", "ls | xargs rm -f"),
        ("shell", "FOO=1 rm -rf /"),
        ("shell", "FOO='a b' BAR=2 rm x"),
        ("shell", "sudo rm x"),
        ("shell", "sudo -u bob rm x"),
        ("shell", "env A=1 nohup /bin/rm x"),
        ("shell", "/bin/rm x"),
        ("shell", "'rm' x"),
        ("shell", "r\\m x"),
        ("shell", "RM x"),
        ("shell", "ｒｍ x"),
        ("shell", "r\u200bm x"),
        ("shell", "bash -c 'rm x'"),
        ("shell", "timeout 5 rm x"),
        ("read_file", "secret/key"),
        ("read_file", "./secret/key"),
        ("read_file", "a/../secret/key"),
        ("read_file", "secret//key"),
        ("read_file", "SECRET/key"),
        ("read_file", "secret\\key"),
        ("write_file", "x/../.env"),
        ("write_file", ".ENV"),
    ],
)
def test_policy_denies_every_spelling_of_what_is_denied(tool: str, subject: str) -> None:
    """What narrows is matched against every spelling of the subject, and beats the allow beside it (A19)."""
    assert answer(DENIED, subject, tool) == "deny"


def test_policy_denies_a_tool_that_is_not_known() -> None:
    """No rule lets a tool through that nobody declared (A19)."""
    decision = policy({"allow": ["*"]}).decide(None, "x", principal=ALICE, name="made_up")
    assert (decision.answer, decision.tool, decision.rule) == ("deny", "made_up", None)


def test_policy_takes_the_tools_default_where_no_rule_matches() -> None:
    """A tool that no rule names gets what it declares, and says so (A19)."""
    for default in STRICTNESS:
        decision = policy({"allow": ["other"]}).decide(spec("x", default), principal=ALICE)
        assert (decision.answer, decision.layer) == (default, "default")


def test_policy_asks_for_a_tool_without_its_sandbox() -> None:
    """Without a sandbox the tool's own allow becomes ask, and the reason says why (A19)."""
    decision = ToolPolicy(unsandboxed=frozenset({"shell"})).decide(spec("shell", "allow"), "ls", principal=ALICE)
    assert decision.answer == "ask"
    assert "sandbox" in decision.reason


def test_policy_does_not_depend_on_the_order_of_rules() -> None:
    """Deny beats ask beats allow in whatever order rules stand (A19)."""
    rules = parse_rules({"allow": ["shell(git *)"], "ask": ["shell(git push*)"], "deny": ["shell(git push --force*)"]})
    for order in permutations(rules):
        one = ToolPolicy([PolicyLayer("user", order)], splitters={"shell": commands_of})
        asked = ["git log", "git push", "git push --force"]
        assert [one.decide(spec(), line, principal=ALICE).answer for line in asked] == ["allow", "ask", "deny"]


def test_policy_says_which_rule_decided() -> None:
    """The decision names layer, rule and reason, for people and for the log (A73)."""
    one = policy([{"answer": "deny", "tool": "shell", "subject": "rm *", "role": "developer", "reason": "use trash"}])
    decision = one.decide(spec(), "ls; rm x", principal=ALICE)
    assert decision.rule is not None
    assert str(decision.rule) == "deny shell(rm *) for role developer"
    assert decision.to_json() == {
        "answer": "deny",
        "layer": "user",
        "rule": {"answer": "deny", "tool": "shell", "subject": "rm *", "role": "developer", "reason": "use trash"},
        "reason": "use trash",
        "tool": "shell",
        "subject": "ls; rm x",
    }


def test_policy_keeps_rules_to_the_principals_they_name() -> None:
    """A rule for an id, a role or a tenant is for nobody else (A19)."""
    for who in ({"principal": "alice"}, {"role": "developer"}, {"tenant": "acme"}):
        rules = [{"answer": "allow", "tool": "shell", **who}]
        assert answer(rules, "ls", principal=ALICE) == "allow"
        assert answer(rules, "ls", principal=GUEST) == "ask"
    both = [{"answer": "allow", "tool": "shell", "principal": "alice", "tenant": "other"}]
    assert answer(both, "ls", principal=ALICE) == "ask"


def test_policy_of_a_lower_layer_never_widens_a_higher_one() -> None:
    """What the organisation asks about or denies stays so, whatever user, project and session allow (A19)."""
    allow = parse_rules({"allow": ["*"]})
    for strict in ("ask", "deny"):
        layers = [PolicyLayer("organisation", parse_rules({strict: ["shell"]}))]
        layers += [PolicyLayer(name, allow) for name in LAYERS[1:]]
        assert ToolPolicy(layers).decide(spec(), "ls", principal=ALICE).answer == strict


def test_policy_of_an_untrusted_project_only_narrows() -> None:
    """Rules that came with a project's files allow nothing until somebody trusts it, and may always deny (A19)."""
    rules = parse_rules({"allow": ["shell"], "deny": ["write_file"]})
    for narrows_only, expected in ((True, "ask"), (False, "allow")):
        one = ToolPolicy([PolicyLayer("project", rules, narrows_only=narrows_only)])
        assert one.decide(spec("shell"), "ls", principal=ALICE).answer == expected
        assert one.decide(spec("write_file", "allow"), "x", principal=ALICE).answer == "deny"


PATTERNS = st.sampled_from(["*", "git *", "rm *", "src/*", "a", "*x*", "git status*", "?"])
RULES = st.builds(
    PolicyRule,
    answer=st.sampled_from(["allow", "ask", "deny"]),
    tool=st.sampled_from(["*", "shell", "read_file", "mcp__*"]),
    subject=PATTERNS,
    role=st.sampled_from([None, "developer", "guest"]),
)
LAYER = st.builds(
    PolicyLayer, name=st.sampled_from(LAYERS), rules=st.lists(RULES, max_size=4).map(tuple), narrows_only=st.booleans()
)
SUBJECTS = st.one_of(
    st.sampled_from(["git status", "git status; rm x", "src/a", "src/../a", "rm x", "a", "", "x && git log", "`x`"]),
    st.text(max_size=12),
)


def quiet(one: ToolPolicy, tool: ToolSpec, subject: str) -> PolicyDecision:
    return one.decide(tool, subject, principal=ALICE)


@given(
    layers=st.lists(LAYER, max_size=4),
    session=st.lists(RULES, max_size=4),
    subject=SUBJECTS,
    tool=st.sampled_from(["shell", "read_file", "mcp__x__y"]),
    default=st.sampled_from(["allow", "ask", "deny"]),
)
def test_policy_of_a_session_only_narrows(
    layers: list[PolicyLayer], session: list[PolicyRule], subject: str, tool: str, default: PolicyAnswer
) -> None:
    """Whatever rules a session has, no call is decided wider than without them (A19)."""
    base = ToolPolicy(layers, splitters={"shell": commands_of})
    declared = spec(tool, default)
    without, with_ = quiet(base, declared, subject), quiet(base.narrowed(session), declared, subject)
    assert STRICTNESS[with_.answer] >= STRICTNESS[without.answer]
    as_layer = ToolPolicy([*layers, PolicyLayer("session", tuple(session))], splitters={"shell": commands_of})
    assert quiet(as_layer, declared, subject).answer == with_.answer


@given(layers=st.lists(LAYER, min_size=1, max_size=4), subject=SUBJECTS, tool=st.sampled_from(["shell", "read_file"]))
def test_policy_never_answers_wider_than_a_higher_layer_alone(
    layers: list[PolicyLayer], subject: str, tool: str
) -> None:
    """Each layer that a matching rule makes speak bounds the answer from above (A19)."""
    combined = quiet(ToolPolicy(layers, splitters={"shell": commands_of}), spec(tool, "allow"), subject)
    for layer in layers:
        if layer.name == "session" or layer.narrows_only:
            continue
        alone = quiet(ToolPolicy([layer], splitters={"shell": commands_of}), spec(tool, "allow"), subject)
        if alone.rule is not None and alone.answer != "allow":
            assert STRICTNESS[combined.answer] >= STRICTNESS[alone.answer]


@given(rules=st.lists(RULES, max_size=6), shuffled=st.randoms(use_true_random=False), subject=SUBJECTS)
def test_policy_answers_the_same_in_any_order(rules: list[PolicyRule], shuffled: Any, subject: str) -> None:
    """The answer depends on which rules there are and not on where they stand (A19)."""
    other = list(rules)
    shuffled.shuffle(other)
    one, two = (
        ToolPolicy([PolicyLayer("user", tuple(each))], splitters={"shell": commands_of}) for each in (rules, other)
    )
    assert quiet(one, spec(), subject).answer == quiet(two, spec(), subject).answer


@pytest.mark.parametrize(
    "wrong",
    [
        "allow",
        {"allow": "shell"},
        {"permit": ["shell"]},
        {"allow": [1]},
        {"allow": ["shell()"]},
        {"allow": ["shell(ls"]},
        {"rules": [{"tool": "shell"}]},
        {"rules": [{"answer": "maybe"}]},
        {"rules": [{"answer": "allow", "toll": "shell"}]},
        {"rules": [{"answer": "allow", "tool": ""}]},
        {"rules": [{"answer": "allow", "subject": 3}]},
        {"rules": [{"answer": "allow", "role": ["a"]}]},
        {"rules": ["allow"]},
        {"allow": ["x"] * 1_001},
    ],
)
def test_rules_that_cannot_be_read_are_refused(wrong: Any) -> None:
    """A rule that is not understood is an error that names it, never left out (A19)."""
    with pytest.raises(ConfigurationError):
        parse_rules(wrong)


def test_policy_shows_its_layers_as_they_can_be_written_again() -> None:
    """`to_json` names every layer, strongest first, in the form that `parse_rules` reads (A73)."""
    rules = parse_rules({"allow": ["shell(git *)"], "rules": [{"answer": "deny", "tool": "x", "principal": "bob"}]})
    shown = ToolPolicy([PolicyLayer("session", rules), PolicyLayer("organisation", rules)]).to_json()
    assert [layer["layer"] for layer in shown["layers"]] == ["organisation", "session"]
    assert [layer["narrows_only"] for layer in shown["layers"]] == [False, True]
    assert all(parse_rules(layer["rules"]) == rules for layer in shown["layers"])


def test_policy_survives_a_splitter_that_fails() -> None:
    """A line that the splitter cannot read is asked about, and what denies it still does (A19)."""

    def broken(_line: str) -> Sequence[str] | None:
        raise ValueError("no closing quotation")

    one = ToolPolicy(policy({"allow": ["shell(ls*)"], "deny": ["shell(rm *)"]}).layers, splitters={"shell": broken})
    assert one.decide(spec(), "ls '", principal=ALICE).answer == "ask"
    assert one.decide(spec(), "rm 'x", principal=ALICE).answer == "deny"


def test_policy_decides_in_microseconds() -> None:
    """A decision under twenty rules takes far less than a step of the loop, also on a long hostile subject (A19)."""
    rules = parse_rules(
        {"allow": [f"shell(tool{n} *)" for n in range(17)], "deny": ["shell(rm *)", "read_file(*.env)"]}
    )
    one = ToolPolicy([PolicyLayer("user", rules)], splitters={"shell": lambda line: [line]})
    tool = spec()
    best = min(_seconds(one, tool, "git status --short") for _ in range(5))
    assert best < 100e-6  # 20 µs on a quiet machine; what is bounded here is the order of magnitude
    slow = ToolPolicy([PolicyLayer("user", parse_rules({"deny": ["shell(*a*a*a*a*a*b)"]}))])
    started = time.process_time()
    assert slow.decide(replace(tool, name="shell"), "a" * 20_000, principal=ALICE).answer == "ask"
    assert time.process_time() - started < 2


def _seconds(one: ToolPolicy, tool: ToolSpec, subject: str) -> float:
    started = time.process_time()
    for _ in range(200):
        one.decide(tool, subject, principal=ALICE)
    return (time.process_time() - started) / 200
