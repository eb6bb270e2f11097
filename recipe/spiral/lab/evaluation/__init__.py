"""The evaluation of policies: ``python -m recipe.spiral.main_eval``.

``evaluation`` does everything, and is read in the order in which it happens: ``policies`` (who is evaluated, and the
engines that serve them), ``matches`` (who plays whom, the folder, the games), then the figures: ``exploitability``
(from a policy's table of probabilities), ``ratings``, ``benchmarks`` (the paper's eight), ``outputs``. ``command``
starts it, ``settings`` are its config. Other benchmarks are lighteval's to ask.
"""
