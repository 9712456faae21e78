"""Run every figure: `python -m bench`, which `make bench` calls."""

import sys

from bench.run import main

sys.exit(main())
