"""Experiments: what self-play learns, measured. No user of the recipe needs them, and the wheel leaves them out.

Each experiment is a Hydra config and a script. It can be stopped and goes on, and it ends in a result file (JSON) that
holds all figures and how they came about: command, commits, seeds, games, minutes. The pages in ``docs/experiments``
are made from the result files alone.

A new experiment on learning needs ``config/<name>.yaml`` and its name in ``learning_page.EXPERIMENTS``; ``learn.sh``
runs it. An experiment of another kind has ``<name>.py``, which ends in a ``Result``, ``<name>_page.py`` with the body
of its page and its plots, an entry for each in ``pages.py``, and a script ``run_scripts/experiments/<name>.sh``.
"""
