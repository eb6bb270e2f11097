"""The evaluation of policies: ``python -m recipe.spiral.main_eval``. ``command`` starts it, ``settings`` are its config.

``evaluation`` does everything, and is read in the order in which it happens: ``policies`` (who is evaluated, and the
engines that serve them), ``matches`` (who plays whom, the folder, the games), then the figures: ``exploitability``
(from a policy's table of probabilities), ``ratings``, ``benchmarks`` (the paper's eight), ``outputs``. Weights are
vLLM's to serve, and other benchmarks lighteval's to ask.
"""
