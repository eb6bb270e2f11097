"""SPIRAL (arXiv 2506.24119) for verl: a language model improves by playing two-player zero-sum text games against
itself. Importing this package imports nothing heavy: neither torch nor verl."""

import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.3.0"

if sys.argv[0] == "-m" and find_spec("omegaconf") is None:  # one of the programs, by another environment's Python
    print("spiral: its packages are not here: run_scripts/setup.sh, then source .venv/bin/activate", file=sys.stderr)
    sys.exit(2)

# ``python -m recipe.spiral.report`` runs ``lab/commands/report.py``.
__path__.append(str(Path(__file__).parent / "lab" / "commands"))
