"""Reasoning benchmarks, as SPIRAL reports them.

``catalog`` lists the benchmarks, ``data`` loads their questions, ``answers`` and ``asking`` have policies answer them,
``benchmark_metrics`` counts what ``recipe.spiral.lab.graders`` judges, and shows it.
"""
