"""Predicts how fast a run is on more devices than there are here, in verl's three trainer modes, and what holds it up.

``python -m benchmarks.scaling`` simulates runs event by event: games are chains of turns, each of which passes a
rollout worker and an engine; the learner takes batches of finished games. What each part costs is
measured here, or assumed of an H100 (``figures.py``). The results in docs/scaling.json make docs/scaling.md.
"""
