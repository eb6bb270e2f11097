"""SPIRAL for verl: a language model improves by playing two-player zero-sum text games against itself.

The method is SPIRAL's (arXiv 2506.24119). Importing this package imports nothing heavy: neither torch nor verl.
"""

__version__ = "0.1.0"
