"""Proves from a run's records alone that it was trained on the games that it played: ``python -m recipe.spiral.audit``.

``replay`` plays each game again, ``recompute`` computes advantages anew, and ``accounting`` says where each game of a
run is; ``auditor`` goes through the steps. Whether a training goes well is for ``watching`` and for trackers to say.
"""
