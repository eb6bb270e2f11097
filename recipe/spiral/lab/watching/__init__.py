"""Looks at a training while it goes on: ``watcher`` is asked after every step, and the run goes on, or stops.

``guard`` sees a training go wrong, ``game_metrics`` counts how old games are and what is spent, and ``shown`` has games
for Weights & Biases and the table at a run's end. Curves are for trackers to draw, traces for verl's ``rollout.trace``.
"""
