"""Run one contestant in a process of its own and print its result as one JSON line.

    python -m bench.worker bench.raw_jsonl:turns DIRECTORY '{"count": 300}'

Standard library only: the peers' environment runs it too.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    """Call `module:function(directory, **params)` and print what it returns."""
    target, directory, params = sys.argv[1:4]
    module_name, function_name = target.split(":")
    function = getattr(importlib.import_module(module_name), function_name)
    result = function(Path(directory), **json.loads(params))
    print("\n" + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
