"""Makes the results of docs/results.md again: ``python -m experiments NAME``. The wheel leaves this folder out.

``config/NAME.yaml`` says what is trained, with which seeds and what is measured. ``__main__.py`` runs it, on the whole
stack (``main_spiral``) or in the quick loop (``quick.py``), and prints a table. Started again, it goes on.
"""
