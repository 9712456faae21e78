"""Opening the model that discovery chose. Every model library is loaded here, and only the one that is needed."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from kipu.errors import MissingExtraError
from kipu.ports.home_path import home_path
from kipu.ports.model import ModelClient
from kipu.runtime.models.discovery import ModelChoice, ModelProbes, choose_model

PROBE_TIMEOUT_S = 0.3
LIST_TIMEOUT_S = 5.0
MAX_LIST_BYTES = 4_000_000


def find_model(name: str | None, *, environment: Mapping[str, str], config: Mapping[str, str]) -> ModelChoice:
    """Return the choice for this machine; asks Ollama on loopback or the user's own server when nothing else decides."""
    return choose_model(name, environment=environment, config=config, probes=machine_probes())


def open_model(choice: ModelChoice) -> ModelClient:
    """Return a client for the choice; nothing is sent and no model file is read yet.

    Raises:
        MissingExtraError: the library it needs is not installed.
        ConfigurationError: the provider's key is missing.
        ModelNameError: no such provider.
    """
    if choice.kind == "demo":
        from kipu.runtime.models.demo import DemoModelClient

        return DemoModelClient()
    if choice.kind == "gguf":
        from kipu.runtime.models.gguf import GgufModelClient

        return GgufModelClient(home_path(choice.name.removeprefix("gguf:")), name=choice.name)
    try:
        from kipu.runtime.models.pydantic_ai_client import open_provider_client
    except ImportError as error:
        raise MissingExtraError(
            feature=f"The model {choice.name}", package="pydantic-ai-slim", extra="agent"
        ) from error
    return open_provider_client(
        choice.name, base_url=choice.base_url, api_key=choice.api_key, key_variable=choice.key_variable
    )


def machine_probes() -> ModelProbes:
    """Return probes that really look around."""
    return ModelProbes(ollama=_ollama_models, served=_served_models, gguf=_runnable_gguf)


def _ollama_models(url: str) -> tuple[str, ...]:
    # Nobody asked for Ollama by name: only this machine is probed, never the network.
    if not _is_loopback(url):
        return ()
    found = _get_json(f"{url}/api/tags", None, PROBE_TIMEOUT_S).get("models")
    return tuple(model["name"] for model in found or () if isinstance(model, dict) and "name" in model)


def _served_models(url: str, key: str | None) -> tuple[str, ...]:
    found = _get_json(f"{url.rstrip('/')}/models", key, LIST_TIMEOUT_S).get("data")
    return tuple(model["id"] for model in found or () if isinstance(model, dict) and "id" in model)


def _runnable_gguf() -> str | None:
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    from kipu.runtime.models.gguf import bundled_gguf

    path = bundled_gguf()
    return str(path) if path else None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _get_json(url: str, key: str | None, timeout_s: float) -> dict[str, Any]:
    """Return the object at `url`, or an empty one when there is none to be had."""
    if urlsplit(url).scheme not in {"http", "https"}:
        return {}
    request = urllib.request.Request(url)  # noqa: S310
    if key:
        request.add_unredirected_header("authorization", f"Bearer {key}")
    # A proxy has no business between this process and a server on the same machine.
    handlers = [urllib.request.ProxyHandler({})] if _is_loopback(url) else []
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
            found = json.loads(response.read(MAX_LIST_BYTES))
    except (urllib.error.URLError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
