"""A person at the table: ``python -m recipe.spiral.play GAME [MODEL]``.

The person is a player like any other, so that the match is the one of training. The files:

- ``command_line``: options, errors in one line, exit statuses
- ``opponents``: whom the person plays, from a name or a path
- ``sampling``, ``vllm``: a model's responses by transformers, or by vLLM
- ``playing``: the person as a player, and what it may see of a game
- ``terminal``, ``web``: the two places to play; the page's own files are in ``page/``
- ``session``: games one after the other; ``threads``: the model's, beside the page's
- ``saved``: the folder of the games that were played
"""
