"""Questions with right answers: ``question`` reads them from rows of files (``files``), and ``grading`` judges answers.

The benchmarks of an evaluation and the training on questions (``task=questions``) share them.
"""
