"""A person at the table: ``python -m recipe.spiral.play GAME [MODEL]``.

The person is a player like any other, so that the match is the one of training. ``playing`` has the person as a player,
and what it may see of a game; ``table_terminal`` and ``web`` are the two places to play, and ``page/`` has the page's
own files.
"""
