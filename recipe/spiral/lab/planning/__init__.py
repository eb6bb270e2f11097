"""What a run would be, before it is one: ``dry_run`` prints its settings and what they need, ``memory`` estimates it.

The memory is a table and a warning, and refuses nothing. What a run really takes is for ``nvidia-smi`` and verl's own
metrics to say; hours and costs are not estimated.
"""
