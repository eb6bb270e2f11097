"""What a run will need, known before it starts: from the model's config and the run's settings.

``model_size`` counts parameters and widths, ``trainer_memory`` and ``engines`` estimate what each part takes of the
memory, ``estimate`` adds the parts up by the phases of a step, and ``memory_table`` prints the sums and says what to
change where they do not fit. ``dry_run`` prints all that is known of a run without starting it.
"""
