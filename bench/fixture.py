"""Build big test data once, outside what is measured, and find it again."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from bench.arena import ROOT, WORK, Contestant, run_worker


@dataclass(frozen=True)
class Fixture:
    """Name data that `module:function(directory, **params)` writes."""

    name: str
    target: str
    params: dict[str, object] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Return where it stands, by name, parameters and the script that wrote it.

        Kipu's own code is left out: its files are read by every later version, or `--fresh` builds them anew.
        """
        digest = hashlib.sha256(repr((self.target, sorted(self.params.items()))).encode())
        for source in self._sources():
            digest.update(source.read_bytes())
        return WORK / "fixtures" / f"{self.name}-{digest.hexdigest()[:12]}"

    def _sources(self) -> list[Path]:
        module = ROOT / (self.target.split(":")[0].replace(".", "/") + ".py")
        sources = [module, ROOT / "bench" / "workload.py"]
        return [source for source in sources if source.exists()]


def ensure(fixture: Fixture, *, console: Console, fresh: bool = False) -> str | None:
    """Build the fixture where it is missing; return why it could not be built, else None."""
    if fixture.path.exists() and not fresh:
        return None
    (WORK / "fixtures").mkdir(parents=True, exist_ok=True)
    for old in (WORK / "fixtures").glob(f"{fixture.name}-*"):
        shutil.rmtree(old, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix="building-", dir=WORK))
    with console.status(f"building {fixture.name}: once, not measured"):
        try:
            run_worker(Contestant(fixture.name, fixture.target, fixture.params, role="fixture"), directory)
        except Exception as error:  # noqa: BLE001 - reported beside the figures, whatever it was
            shutil.rmtree(directory, ignore_errors=True)
            stderr = getattr(error, "stderr", "") or ""
            return (stderr.strip().splitlines() or [str(error)])[-1]
    directory.rename(fixture.path)
    return None
