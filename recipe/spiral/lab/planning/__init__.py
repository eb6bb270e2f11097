"""What a run will need, known before it starts: from the model's config and the run's settings.

``model`` counts parameters and widths, ``training`` and ``engines`` estimate what each part takes of the memory,
``estimate`` adds the parts up by the phases of a step, and ``report`` prints the table and says what to change where it
does not fit. ``dry_run`` prints all that is known of a run without starting it.
"""
