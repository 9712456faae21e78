"""Which model answers: decided by a pure function, opened by a thin loader.

The first of these that is there: the name that was asked for, `KIPU_MODEL`, the configuration's `model`, a base URL of the
user's own, a provider's key, Ollama on this machine, a model file with the `local` extra, and the demo model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from kipu.errors import ModelNameError

OPENAI_HOST = "api.openai.com"
OLLAMA_URL = "http://127.0.0.1:11434"
NO_KEY = "no-key"
# Where a key is found, which model is asked for when no name is given; the first key wins.
KEY_DEFAULTS: tuple[tuple[str, str], ...] = (
    ("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-5-5"),
    ("OPENAI_API_KEY", "openai:gpt-6.1-terra"),
    ("GEMINI_API_KEY", "google:gemini-3.8-flash"),
    ("GOOGLE_API_KEY", "google:gemini-3.8-flash"),
    ("MISTRAL_API_KEY", "mistral:mistral-medium-latest"),
    ("DEEPSEEK_API_KEY", "deepseek:deepseek-v4-pro"),
    ("GROQ_API_KEY", "groq:openai/gpt-oss-120b"),
)
KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "openai-chat": "OPENAI_API_KEY", "openai-responses": "OPENAI_API_KEY"} | {
    name.partition(":")[0]: variable for variable, name in reversed(KEY_DEFAULTS)
}
# How a bare name is read: people write the model, not the provider.
FAMILIES: tuple[tuple[str, str], ...] = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "google"),
    ("mistral", "mistral"),
    ("deepseek", "deepseek"),
)

ChoiceKind = Literal["provider", "gguf", "demo"]


@dataclass(frozen=True, slots=True)
class ModelProbes:
    """Look around, each only when the decision comes to it.

    `ollama` gives the models of a local Ollama at a URL (empty when none answers); `served` those of an OpenAI-compatible
    URL with a key; `gguf` the path of a bundled model file that can be run here.
    """

    ollama: Callable[[str], tuple[str, ...]]
    served: Callable[[str, str | None], tuple[str, ...]]
    gguf: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Say which model to open and why. `api_key` is kept out of its text form."""

    kind: ChoiceKind
    name: str
    why: str
    base_url: str | None = None
    api_key: str | None = None
    key_variable: str = "the provider's key variable"

    def __repr__(self) -> str:
        """Return all but the key."""
        return f"ModelChoice({self.kind}, {self.name!r}, base_url={self.base_url!r}, why={self.why!r})"


def choose_model(
    name: str | None, *, environment: Mapping[str, str], config: Mapping[str, str], probes: ModelProbes
) -> ModelChoice:
    """Return the model for this name, environment and configuration. Deterministic: looks nowhere but at its arguments.

    `config` may hold `model`, `base_url` and `api_key`; the environment wins over it.

    Raises:
        ModelNameError: a name was given that names nothing, or a server of the user's own lists no model.
    """
    for given, why in (
        (name, "asked for"),
        (environment.get("KIPU_MODEL"), "KIPU_MODEL"),
        (config.get("model"), "the configuration"),
    ):
        if given and given.strip():
            return _named(given.strip(), why, environment, config, probes)
    return _found(environment, config, probes)


def _named(
    name: str, why: str, environment: Mapping[str, str], config: Mapping[str, str], probes: ModelProbes
) -> ModelChoice:
    prefix, colon, rest = name.partition(":")
    if name == "demo":
        return ModelChoice("demo", "demo", why)
    if name == "local" or (name == "gguf" and not colon):
        if path := probes.gguf():
            return ModelChoice("gguf", f"gguf:{path}", why)
        raise ModelNameError(model=name, reason="no model file is installed; give one as gguf:/path/to/model.gguf")
    if (prefix == "gguf" and rest) or name.lower().endswith(".gguf"):
        return ModelChoice("gguf", f"gguf:{rest}" if prefix == "gguf" else f"gguf:{name}", why)
    if not colon:
        prefix, rest = _family(name, environment, config), name
    if not rest.strip():
        raise ModelNameError(model=name, reason="the part after the colon is empty")
    return _provider(prefix, rest, why, environment, config)


def _family(name: str, environment: Mapping[str, str], config: Mapping[str, str]) -> str:
    if _own_url(environment, config):
        return "openai-chat"
    for beginning, provider in FAMILIES:
        if name.casefold().startswith(beginning):
            return provider
    raise ModelNameError(model=name, reason="it does not say whose model it is")


def _provider(
    prefix: str, model: str, why: str, environment: Mapping[str, str], config: Mapping[str, str]
) -> ModelChoice:
    variable = KEY_VARIABLES.get(prefix, f"{prefix.upper().replace('-', '_')}_API_KEY")
    if prefix in {"openai", "openai-chat", "openai-responses"}:
        url = environment.get("OPENAI_BASE_URL") or config.get("base_url")
        own = _own_url(environment, config)
        key = environment.get("OPENAI_API_KEY") or config.get("api_key") or (NO_KEY if own else None)
        # Servers that speak OpenAI's format speak Chat Completions; the newer Responses must be asked for by name.
        prefix = "openai-chat" if prefix == "openai" and own else prefix
        return ModelChoice("provider", f"{prefix}:{model}", why, url or None, key, variable)
    if prefix == "anthropic":
        url, key = environment.get("ANTHROPIC_BASE_URL"), environment.get("ANTHROPIC_API_KEY")
        return ModelChoice("provider", f"anthropic:{model}", why, url or None, key or None, variable)
    if prefix == "ollama":
        url = f"{_ollama_url(environment)}/v1"
        return ModelChoice(
            "provider", f"ollama:{model}", why, url, environment.get("OLLAMA_API_KEY") or NO_KEY, variable
        )
    return ModelChoice("provider", f"{prefix}:{model}", why, key_variable=variable)


def _found(environment: Mapping[str, str], config: Mapping[str, str], probes: ModelProbes) -> ModelChoice:
    if url := _own_url(environment, config):
        return _own_server(url, environment, config, probes)
    for variable, name in KEY_DEFAULTS:
        if environment.get(variable):
            prefix, _, model = name.partition(":")
            return _provider(prefix, model, variable, environment, config)
    if config.get("api_key"):
        return _provider(
            "openai", dict(KEY_DEFAULTS)["OPENAI_API_KEY"].partition(":")[2], "api_key", environment, config
        )
    url = _ollama_url(environment)
    if models := probes.ollama(url):
        return _provider("ollama", models[0], f"Ollama at {url}", environment, config)
    if path := probes.gguf():
        return ModelChoice("gguf", f"gguf:{path}", "a local model file")
    return ModelChoice("demo", "demo", "no key, no server and no model file were found")


def _own_server(
    url: str, environment: Mapping[str, str], config: Mapping[str, str], probes: ModelProbes
) -> ModelChoice:
    key = environment.get("OPENAI_API_KEY") or config.get("api_key")
    model = environment.get("OPENAI_MODEL") or next(iter(probes.served(url, key)), None)
    if model is None:
        raise ModelNameError(model="(none)", reason=f"{url} lists no model; name one with --model or OPENAI_MODEL")
    return _provider("openai", model, f"the server at {url}", environment, config)


def _own_url(environment: Mapping[str, str], config: Mapping[str, str]) -> str | None:
    url = environment.get("OPENAI_BASE_URL") or config.get("base_url")
    return url if url and urlsplit(url).hostname != OPENAI_HOST else None


def _ollama_url(environment: Mapping[str, str]) -> str:
    url = environment.get("OLLAMA_BASE_URL") or environment.get("OLLAMA_HOST") or OLLAMA_URL
    url = url if "://" in url else f"http://{url}"
    # A server listens on every address; a client has to name one.
    return url.rstrip("/").removesuffix("/v1").replace("//0.0.0.0", "//127.0.0.1")
