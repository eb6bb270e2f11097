"""Simulates runs on more devices than there are here, event by event, in verl's three trainer modes.

Games are chains of turns, each of which passes a rollout worker, the load balancer and an engine; the learner takes
batches of finished games. ``run.simulate`` takes a run's settings, what its parts cost, and the lengths of its games.
"""
