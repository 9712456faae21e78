"""The policy for paths: patterns, Kipu's own places, and narrowing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kipu.errors import ConfigurationError
from kipu.runtime.workspaces.path_policy import PathPolicy, PathVerb


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        (".env", ".env", True),
        (".env", "deep/er/.env", True),
        (".env", ".env/below", True),
        (".env", ".envrc", False),
        ("*.pem", "a/b/key.pem", True),
        ("*.pem", "key.pem.txt", False),
        ("a/*.txt", "a/x.txt", True),
        ("a/*.txt", "a/b/x.txt", False),
        ("a/*.txt", "b/a/x.txt", False),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("/top", "top/below", True),
        ("/top", "not/top", False),
        ("build/", "x/build/y", True),
        ("Secret", "sEcReT", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("\u5bc6\u94a5", "\u9879\u76ee/\u5bc6\u94a5", True),
        ("[ab]x", "ax", True),
    ],
)
def test_policy_patterns_cover_what_they_say(pattern: str, path: str, covered: bool) -> None:
    """A pattern covers its path and all below it, in any case and Unicode form (A19)."""
    policy = PathPolicy(not_readable=(pattern,))
    assert (policy.refusal(path, verb="read") is not None) is covered
    assert (policy.refusal(path, verb="written") is not None) is covered


@pytest.mark.parametrize(
    "path", [".git", ".git/hooks/x", "sub/.git/config", ".GIT/config", ".g\u200cit/config", "git~1/x"]
)
def test_policy_keeps_git_internals_from_being_written(path: str) -> None:
    """What git runs or trusts may be read and not written, in every spelling that a volume takes for it (A19)."""
    assert PathPolicy().refusal(path, verb="written")
    assert PathPolicy().refusal(path, verb="read") is None
    assert PathPolicy().refusal(".gitignore", verb="written") is None
    assert PathPolicy().refusal("src/git.py", verb="written") is None


@pytest.mark.parametrize("verb", ["read", "written"])
def test_policy_closes_kipus_own_places(tmp_path: Path, verb: PathVerb) -> None:
    """A store that lies inside a workspace is neither read nor written there, its sidecar files included (A20)."""
    places = [tmp_path / "x/se[s]sions.db", tmp_path / "logs", tmp_path.parent / "elsewhere"]
    policy = PathPolicy().without(tmp_path, places=places)
    closed = ["x/se[s]sions.db", "x/se[s]sions.db-wal", "logs", "logs/s/000001.jsonl"]
    assert all(policy.refusal(path, verb=verb) for path in closed)
    assert not any(policy.refusal(path, verb=verb) for path in ("x/sessions.db", "x", "logs.txt", "y/logs"))
    with pytest.raises(ConfigurationError):
        PathPolicy().without(tmp_path, places=[tmp_path])


def test_policy_only_narrows() -> None:
    """What a session adds takes away and never gives (A19)."""
    policy = PathPolicy.from_settings({"writable": ["docs/**"], "not_writable": [".git", "*.lock"]})
    narrowed = policy.narrowed(not_writable=["docs/private"])
    assert policy.refusal("docs/a.md", verb="written") is None
    assert policy.refusal("src/a.py", verb="written") == "the policy for paths names only docs/**"
    assert policy.refusal("src/a.py", verb="read") is None
    assert narrowed.refusal("docs/private/x", verb="written") == "the policy for paths excludes docs/private"
    assert narrowed.refusal("src/a.py", verb="written")


@pytest.mark.parametrize("settings", [{"readible": ["x"]}, {"readable": "x"}, {"readable": [1]}])
def test_policy_refuses_settings_it_does_not_know(settings: dict[str, list[str]]) -> None:
    """A misspelt setting is an error and not a policy that lets everything through (A19)."""
    with pytest.raises(ConfigurationError):
        PathPolicy.from_settings(settings)
