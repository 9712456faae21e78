"""The model gave no usable answer; what it gave is kept."""

from __future__ import annotations

from typing import ClassVar

from kipu.errors.kipu_error import KipuError


class ModelError(KipuError):
    """{model} failed: {reason}. The message is kept; send it again, or choose another model with /model."""

    code = "model"
    retryable: ClassVar[bool] = False


class ModelNameError(ModelError):
    """{model!r} is not a model: {reason}. Name one as provider:model, such as openai:gpt-6-luna, ollama:llama3.2 or demo."""

    code = "model_name"


class ModelRefusedError(ModelError):
    """{model} refused the request (HTTP {status}): {reason}. Sending it again changes nothing: send a stricter window."""

    code = "model_refused"


class ModelContextOverflowError(ModelRefusedError):
    """The window is longer than {model} takes: {reason}. Undo turns or begin a new session, or choose a model with a longer one."""

    code = "model_context_overflow"


class ModelAuthError(ModelError):
    """{model} does not accept the key (HTTP {status}): {reason}. Set the right one in {key_variable}; the session is untouched."""

    code = "model_auth"


class ModelNotFoundError(ModelError):
    """{model} is not known at {endpoint}: {reason}. Check the name, and the base URL if you set one."""

    code = "model_not_found"


class ModelQuotaError(ModelError):
    """The account's quota for {model} is used up: {reason}. Waiting does not help: top it up, or choose another model."""

    code = "model_quota"


class ModelRateLimitedError(ModelError):
    """{model} asks to wait: {reason}. Try again after {retry_after_s} seconds (None: it did not say)."""

    code = "model_rate_limited"
    retryable = True


class ModelUnavailableError(ModelError):
    """{model} cannot answer now (HTTP {status}): {reason}. Nothing is wrong with the request: try again in a while."""

    code = "model_unavailable"
    retryable = True


class ModelUnreachableError(ModelError):
    """{model} cannot be reached at {endpoint}: {reason}. Check the network and the base URL, then try again."""

    code = "model_unreachable"
    retryable = True


class ModelStreamCutError(ModelUnreachableError):
    """The answer of {model} broke off: {reason}. What had arrived is kept as an interrupted answer; ask again."""

    code = "model_stream_cut"
    retryable = True


class ModelAnswerError(ModelError):
    """The answer of {model} cannot be read: {reason}. Try again; if it stays so, the endpoint does not speak this format."""

    code = "model_answer"
    retryable = True


class ModelLoadError(ModelError):
    """The model file {path} cannot be loaded: {reason}. Give a GGUF file that fits into memory, or choose another model."""

    code = "model_load"
