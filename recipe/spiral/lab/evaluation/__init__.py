"""The evaluation of policies: ``python -m recipe.spiral.main_eval``, which ``command`` starts with ``settings``.

``evaluation`` does everything, and is read in the order in which it happens. Who plays: ``policies``,
``policy_entries``, ``policy_weights``. The games: ``matches``, ``engines``, ``evaluation_folder``. The figures:
``tabulation``, ``ratings``, ``measuring`` (with ``exploitability``), ``benchmarks`` (the paper's eight; others are
lighteval's to ask), ``results``.
"""
