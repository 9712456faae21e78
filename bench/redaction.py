"""What redaction costs on tool output, how many secrets it finds, and what it takes from programs and logs that is none.

python -m bench.redaction [--quick] [--json]
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from bench.arena import ROOT, Contestant
from bench.report import Bound, Figure, Metric, parser, run_figure

METRICS = [
    Metric("us_per_kb", "µs/kB tool output", "{:.1f}"),
    Metric("us_per_kb_real", "µs/kB programs and logs", "{:.1f}"),
    Metric("recall", "recall", "{:.4f}"),
    Metric("secrets", "secrets", "{:.0f}"),
    Metric("families", "families", "{:.0f}"),
    Metric("recall_later", "recall, families looked up later", "{:.4f}"),
    Metric("recall_invented", "recall, made-up makers", "{:.4f}"),
    Metric("false_per_mb", "false/MB", "{:.3f}"),
    Metric("real_mb", "MB read", "{:.1f}"),
]
ENDINGS = (".py", ".pyi", ".js", ".ts", ".c", ".h", ".pl", ".pm", ".sh", ".md", ".rst", ".txt", ".html", ".json", ".toml",
           ".yaml", ".yml", ".xml", ".ini", ".cfg", ".conf", ".css", ".log", ".vim", ".md5sums", ".list", ".symbols",
           "RECORD", "METADATA")  # fmt: skip
BIGGEST = 600_000


def measure(directory: Path, *, engine: str, megabytes: int) -> dict[str, float]:
    """Time tool output, count what is found of generated secrets, and what is replaced in real files."""
    from kipu.security.redaction.engine import FastEngine, PlainEngine
    from kipu.security.redaction.redactor import Redactor

    del directory
    redactor = Redactor(
        known=["known-Secret-77-of-this-host"], engine=FastEngine() if engine == "fast" else PlainEngine()
    )
    output = list(tool_output(random.Random(5)))
    redactor.redact(output[0])
    start_s = time.process_time()
    for text in output:
        redactor.redact(text)
    took_s = time.process_time() - start_s
    size = sum(len(text.encode()) for text in output)
    return {"us_per_kb": took_s * 1e9 / size, **_recall(redactor), **_real(redactor, megabytes)}


def _recall(redactor) -> dict[str, float]:
    sys.path.insert(0, str(ROOT))
    from tests.unit.security.redaction import holdout_samples, secret_samples

    made = secret_samples.samples(23, each=4)
    return {
        "recall": _found(redactor, made),
        "secrets": len(made),
        "families": len({family for family, _, _ in made}),
        "recall_later": _found(redactor, holdout_samples.samples(23, each=8)),
        "recall_invented": _found(redactor, holdout_samples.invented(23, count=1_000)),
    }


def _found(redactor, made) -> float:
    return sum(secret not in str(redactor.redact(text).value) for _, secret, text in made) / len(made)


def _real(redactor, megabytes: int) -> dict[str, float]:
    read = replaced = 0
    took_s = 0.0
    for text in real_texts(random.Random(2)):
        start_s = time.process_time()
        replaced += redactor.redact(text).count
        took_s += time.process_time() - start_s
        read += len(text.encode())
        if read > megabytes * 1_000_000:
            break
    return {"us_per_kb_real": took_s * 1e9 / read, "false_per_mb": replaced * 1e6 / read, "real_mb": read / 1e6}


def real_texts(chance: random.Random) -> Iterator[str]:
    """Yield programs, documents, logs and lists of hashes, those of this machine in an order that is always the same."""
    sys.path.insert(0, str(ROOT))
    from tests.unit.security.redaction.harmless_samples import harmless

    for _ in range(60):
        yield "\n".join(line for _ in range(40) for line in harmless(chance))
    paths = sysconfig.get_paths()
    roots = (
        paths["purelib"],
        paths["stdlib"],
        "/usr/share",
        "/usr/include",
        "/usr/lib/python3",
        "/var/log",
        "/var/lib/dpkg",
        "/etc",
    )
    files = {path for root in roots for path in _below(root)}
    order = sorted(files)
    chance.shuffle(order)
    for path in order:
        try:
            if os.path.getsize(path) <= BIGGEST:
                yield Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def _below(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        yield from (os.path.join(folder, name) for name in names if name.endswith(ENDINGS))


def tool_output(chance: random.Random) -> Iterator[str]:
    """Yield what tools return to coding agents: listings, logs, JSON, test runs, differences, with a secret in one of ten."""
    from tests.unit.security.redaction.secret_samples import samples

    secrets = [text for _, _, text in samples(29, each=1)]
    words = (
        "token",
        "user",
        "session",
        "request",
        "error",
        "value",
        "password",
        "key",
        "retry",
        "cache",
        "index",
        "config",
    )
    for number in range(300):
        lines = []
        for row in range(chance.randrange(20, 120)):
            name, count, digest = chance.choice(words), chance.randrange(9_999), f"{chance.getrandbits(160):040x}"
            lines.append(
                (
                    f"-rw-r--r-- 1 app app {count:6d} Nov 29 21:{row % 60:02d} {name}_{count}.py",
                    f"2026-11-29T21:{row % 60:02d}:07Z INFO {name}.service request_id={digest[:16]} took {count} ms",
                    f'  {{"id": {count}, "{name}": "{name}-{count}", "sha": "{digest}", "next_token": null}},',
                    f"tests/test_{name}.py::test_{name}_is_kept PASSED [{row % 100:3d}%]",
                    f"+    {name} = {chance.choice(words)}.get('{name}', default={count})",
                )[(number + row // 17) % 5]
            )
        if number % 10 == 0:
            lines.insert(len(lines) // 2, chance.choice(secrets))
        yield "\n".join(lines)


def figure(options: argparse.Namespace) -> Figure:
    """Return both engines and the bounds of issue 4."""
    megabytes = 2 if options.quick else 20
    contestants, bounds = [], []
    for engine in ("fast", "plain"):
        name = f"kipu, {engine} engine"
        params: dict[str, object] = {"engine": engine, "megabytes": megabytes}
        contestants.append(Contestant(name, "bench.redaction:measure", params, "kipu"))
        bounds += [
            Bound(f"{name}, recall", name, "recall", 0.98, at_least=True),
            Bound(f"{name}, false replacements per MB", name, "false_per_mb", 0.5),
        ]
    bounds.append(Bound("redaction, fast engine, µs/kB of tool output", "kipu, fast engine", "us_per_kb", 150.0))
    return Figure(
        "redaction",
        f"Redaction: tool output, generated secrets, {megabytes} MB of real files",
        contestants,
        METRICS,
        bounds,
    )


if __name__ == "__main__":
    sys.exit(run_figure(figure, parser(__doc__ or "").parse_args()))
