"""What the tests of a database's own vault and memory share: names of schemas, and machines with folders of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kipu.stores.postgres.address import Address


def schema_of(url: str) -> str:
    """Return the quoted name of a URL's schema."""
    return f'"{Address.parse(url).schema}"'


class Machine:
    """A machine of its own: a home folder that no other has, and commands run there."""

    def __init__(self, home: Path, **environment: str) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("KIPU_", "XDG_"))}
        models = {"KIPU_MODEL": "demo", "KIPU_MEMORY": "rules"}  # whatever models this computer has
        self.environment = {**kept, "HOME": str(home), **models, **environment}

    @property
    def servers(self) -> Path:
        """Return where it keeps what is its own for stores on servers."""
        return self.home / ".local/share/kipu/servers"

    async def kipu(self, *words: str, given: str = "", **environment: str) -> tuple[int, str, str]:
        """Run a command there, and return how it ended and what it said."""
        command = [str(Path(sys.executable).with_name("kipu")), *words]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env={**self.environment, **environment}, cwd=self.home
        )
        said = await process.communicate(given.encode())
        return process.returncode or 0, said[0].decode(), said[1].decode()

    @asynccontextmanager
    async def python(self, script: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a script there, and end it."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdin=pipe, stdout=pipe, env=self.environment, cwd=self.home
        )
        try:
            yield process
        finally:
            process.kill()
            await process.communicate()
