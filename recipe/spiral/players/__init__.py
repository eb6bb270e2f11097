"""Who can sit at the table, what they see, and what is recorded of them.

``player`` (what a player is; a model and random play as one), ``prompts`` (an observation becomes tokens, a response
an answer), ``seats`` (who sits where), ``seeds`` (a game's key, and the randomness that follows), ``records``.
"""
