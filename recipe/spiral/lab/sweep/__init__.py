"""Runs a sweep: each job is a run of its own, in a process of its own with a Ray of its own.

Hydra composes all jobs first (``-m``), so that a typo ends the sweep before anything starts. ``jobs`` gives each job a
folder, which is named by what is swept, and ``runner`` runs the jobs. A job that fails does not end the others. A
table is written whenever a job starts or ends. A second start of the same sweep resumes unfinished jobs and skips
finished ones.
"""
