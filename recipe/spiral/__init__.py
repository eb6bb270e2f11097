"""SPIRAL for verl: a language model improves by playing two-player zero-sum text games against itself.

The method is SPIRAL's (arXiv 2506.24119). Importing this package imports nothing heavy: neither torch nor verl.
"""

from pathlib import Path

__version__ = "0.2.0"

# The lab's commands are found here, too: ``python -m recipe.spiral.report`` runs ``lab/commands/report.py``.
__path__.append(str(Path(__file__).parent / "lab" / "commands"))
