"""The one root of every error: a message from the docstring, data as attributes, a stable code."""

from __future__ import annotations

from typing import Any, ClassVar


class KipuError(Exception):
    """Something in Kipu failed."""

    code: ClassVar[str] = "kipu"

    def __init__(self, **data: Any) -> None:
        self.data = data
        super().__init__(self._render())

    def _render(self) -> str:
        template = " ".join((type(self).__doc__ or type(self).__name__).split())
        try:
            return template.format(**self.data)
        except (KeyError, IndexError):
            return f"{template} {self.data}"

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data")
        if data is not None and name in data:
            return data[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.data))


def _rebuild(kind: type[KipuError], data: dict[str, Any]) -> KipuError:
    return kind(**data)
