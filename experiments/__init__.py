"""Experiments: each is a Hydra config and a script, can be stopped and goes on, and ends in a result file.

A result file says how it came about (command, commit, seeds, games, minutes) and holds all figures; tables, plots and
the pages in ``docs/experiments`` are made from result files alone: nothing on them is typed by hand.

A new experiment on learning is ``config/<name>.yaml`` and its name in ``learning_page.EXPERIMENTS``; ``learn.sh`` runs
it. Another one, as ``variance``, has ``<name>.py`` that ends in a ``Result``, ``<name>_page.py`` with the body of its
page and its plots, an entry of each in ``pages.py``, and ``run_scripts/experiments/<name>.sh``.
"""
