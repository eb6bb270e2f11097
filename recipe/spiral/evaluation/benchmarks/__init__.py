"""Reasoning benchmarks, as SPIRAL reports them.

``catalog`` lists the benchmarks, ``data`` loads their questions, ``answers`` and ``asking`` have policies answer them,
``grading`` judges the answers, ``metrics`` counts and ``table`` shows. The same questions in a run's validation, beside
its games: ``entries`` (the config), ``checks``, ``rows``, ``agent_loop`` and ``in_training``.
"""
