"""Reasoning benchmarks, as SPIRAL reports them.

``catalog`` lists the benchmarks, ``data`` loads their questions, ``answers`` and ``asking`` have policies answer them,
``benchmark_metrics`` counts what ``recipe.spiral.lab.graders`` judges, and shows it. The same questions in a run's
validation, beside its games: ``validation_benchmarks`` and ``question_loop``.
"""
