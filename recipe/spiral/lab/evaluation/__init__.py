"""The evaluation of policies: ``python -m recipe.spiral.main_eval``.

``settings`` reads the config, ``evaluation`` does everything in its order. The rooms:

- ``matches``: who plays whom in which game, and the store of games, policy tables and answers
- ``policies``: who is evaluated, where their weights are, and the engines that serve them
- ``ratings``: counts and ratings of the games' results
- ``exploitability``: metrics from a policy's table of probabilities
- ``benchmarks``: reasoning benchmarks, also those of a run's validation
- ``outputs``: results as JSON, CSV and text, and an evaluation beside a training
"""
