"""Which model answers: the decision, and looking around on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from kipu.errors import ConfigurationError, ModelNameError
from kipu.runtime.models.discovery import ModelChoice, ModelProbes, choose_model
from kipu.runtime.models.loader import find_model, machine_probes, open_model
from kipu.testing.fake_provider import FakeProvider

LOCAL_SERVER = "http://localhost:8000/v1"


def choose(
    name: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
    ollama: tuple[str, ...] = (),
    served: tuple[str, ...] = (),
    gguf: str | None = None,
) -> ModelChoice:
    probes = ModelProbes(ollama=lambda _: ollama, served=lambda _url, _key: served, gguf=lambda: gguf)
    return choose_model(name, environment=environment or {}, config=config or {}, probes=probes)


def refuse(*_: object) -> tuple[str, ...]:
    raise AssertionError


NO_LOOKING = ModelProbes(ollama=refuse, served=refuse, gguf=lambda: None)


def test_discovery_falls_back_step_by_step_to_the_demo_model() -> None:
    """Taking away what was found leads to the next: name, KIPU_MODEL, config, own URL, key, Ollama, file, demo."""
    name: str | None = "ollama:qwen3"
    environment = {"KIPU_MODEL": "groq:a", "OPENAI_BASE_URL": LOCAL_SERVER, "ANTHROPIC_API_KEY": "k"}
    config = {"model": "mistral:b"}
    found = []
    for gone in ("name", "KIPU_MODEL", "model", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ollama", "gguf"):
        ollama = () if gone == "gguf" else ("llama3.2",)
        choice = choose(name, environment=environment, config=config, ollama=ollama, served=("own",), gguf="/m.gguf")
        found.append(choice.name)
        name = None
        environment.pop("KIPU_MODEL" if gone == "KIPU_MODEL" else gone, None)
        config.pop(gone, None)
    assert found == [
        "ollama:qwen3",
        "groq:a",
        "mistral:b",
        "openai-chat:own",
        "anthropic:claude-sonnet-5-5",
        "ollama:llama3.2",
        "gguf:/m.gguf",
    ]
    assert choose().kind == "demo"


@pytest.mark.parametrize(
    ("name", "environment", "chosen", "base_url"),
    [
        ("openai:gpt-6-luna", {"OPENAI_API_KEY": "k"}, "openai:gpt-6-luna", None),
        ("openai:qwen", {"OPENAI_BASE_URL": LOCAL_SERVER}, "openai-chat:qwen", LOCAL_SERVER),
        ("openai-responses:qwen", {"OPENAI_BASE_URL": LOCAL_SERVER}, "openai-responses:qwen", LOCAL_SERVER),
        ("openai:x", {"OPENAI_BASE_URL": "https://api.openai.com/v1"}, "openai:x", "https://api.openai.com/v1"),
        ("qwen", {"OPENAI_BASE_URL": LOCAL_SERVER}, "openai-chat:qwen", LOCAL_SERVER),
        ("claude-haiku-5-5", {}, "anthropic:claude-haiku-5-5", None),
        ("gpt-6-luna", {}, "openai:gpt-6-luna", None),
        ("ollama:llama3.2:1b", {}, "ollama:llama3.2:1b", "http://127.0.0.1:11434/v1"),
        ("ollama:a", {"OLLAMA_HOST": "0.0.0.0:99"}, "ollama:a", "http://127.0.0.1:99/v1"),
        ("openrouter:a/b", {}, "openrouter:a/b", None),
        ("/models/tiny.gguf", {}, "gguf:/models/tiny.gguf", None),
        ("gguf:~/tiny.bin", {}, "gguf:~/tiny.bin", None),
        ("local", {}, "gguf:/bundled.gguf", None),
        ("demo", {"OPENAI_API_KEY": "k"}, "demo", None),
    ],
)
def test_discovery_reads_a_name(name: str, environment: dict[str, str], chosen: str, base_url: str | None) -> None:
    """A name leads to its provider, and a server of one's own is spoken to in the format that all of them know."""
    choice = choose(name, environment=environment, gguf="/bundled.gguf")
    assert (choice.name, choice.base_url) == (chosen, base_url)


@pytest.mark.parametrize("name", ["unheard-of", "openai:", "local", ": "])
def test_discovery_of_a_name_that_names_nothing_is_an_error(name: str) -> None:
    """A name that was asked for is never quietly replaced by another model."""
    with pytest.raises(ModelNameError, match="provider:model"):
        choose(name, environment={"ANTHROPIC_API_KEY": "k"})


def test_discovery_of_an_own_server_without_models_is_an_error() -> None:
    """A base URL was set on purpose: the demo model does not stand in for it."""
    with pytest.raises(ModelNameError, match="OPENAI_MODEL"):
        choose(environment={"OPENAI_BASE_URL": LOCAL_SERVER})


def test_discovery_looks_nowhere_when_a_name_or_a_key_decides() -> None:
    """No probe runs unless nothing else decides."""
    for name, environment in (("openai:a", {}), (None, {"OPENAI_API_KEY": "k"}), (None, {"KIPU_MODEL": "demo"})):
        choose_model(name, environment=environment, config={}, probes=NO_LOOKING)


def test_discovery_never_shows_a_key() -> None:
    """The choice can be printed."""
    choice = choose("openai:a", environment={"OPENAI_API_KEY": "sk-very-secret"})
    assert choice.api_key == "sk-very-secret"
    assert "sk-very-secret" not in f"{choice} {choice!r}"


def test_discovery_finds_ollama_and_own_servers_by_asking_them() -> None:
    """A server on this machine is asked for its models, with its key."""
    with FakeProvider(served_models=["tiny", "big"]) as provider:
        ollama = find_model(None, environment={"OLLAMA_HOST": provider.root_url}, config={})
        environment = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k1"}
        own = find_model(None, environment=environment, config={})
        asked = provider.requests[-1]
    assert (ollama.name, ollama.base_url) == ("ollama:tiny", f"{provider.root_url}/v1")
    assert own.name == "openai-chat:tiny"
    assert (asked.path, asked.headers["authorization"]) == ("/v1/models", "Bearer k1")


def test_discovery_probes_for_ollama_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address beyond loopback is not asked unless Ollama was named."""
    probes = machine_probes()
    with monkeypatch.context() as patch:
        patch.setattr("urllib.request.build_opener", refuse)
        for url in ("http://192.0.2.1:11434", "http://ollama.example", "file:///etc"):
            assert probes.ollama(url) == ()
    with FakeProvider(served_models=["tiny"]) as provider:
        assert probes.ollama(provider.root_url) == ("tiny",)
        gone = provider.root_url
    assert probes.ollama(gone) == ()


def test_discovery_opens_what_it_chose_without_asking_anybody() -> None:
    """Each kind of choice opens to a client of its name."""
    for name in ("demo", "gguf:/nowhere.gguf", "openai:gpt-6-luna", "anthropic:claude-haiku-5-5", "ollama:tiny"):
        choice = choose(name, environment={"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})
        assert open_model(choice).name == name


def test_discovery_without_the_key_of_the_named_provider_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key and an unknown provider are told before the first message."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        open_model(choose("openai:gpt-6-luna"))
    with pytest.raises((ConfigurationError, ModelNameError), match="nobodys"):
        open_model(choose("nobodys:model"))


def test_discovery_and_the_demo_model_load_no_model_library() -> None:
    """Choosing costs no import of a provider's library; only opening such a model does."""
    code = (
        "import sys; from kipu.runtime.models.loader import find_model, open_model;"
        "open_model(find_model('demo', environment={}, config={}));"
        "print([m for m in ('pydantic_ai', 'openai', 'anthropic', 'xllamacpp') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
