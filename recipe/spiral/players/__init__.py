"""Who can sit at the table, what they see, and what is recorded of them.

A file holds a kind of player. Beside them: ``prompts`` (an observation becomes tokens), ``seats`` (who sits where),
``seeds`` (a game's key, and the randomness that follows from it), ``records`` (of turns and games), ``intervals``.
"""
