"""Paths as people write them, with `~` for a home folder."""

from __future__ import annotations

from pathlib import Path

from kipu.errors import ConfigurationError


def home_path(path: str | Path) -> Path:
    """Return the path with its `~` or `~name` filled in.

    Raises: ConfigurationError (nobody of that name has a home folder here, or this user has none, as in some containers).
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            reason=f"the home folder that {str(path)!r} begins with cannot be found: set HOME, or write the whole path"
        ) from error
