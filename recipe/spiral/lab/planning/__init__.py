"""What a run will need, known before it starts: ``memory`` estimates it from the model's config and the run's settings,
``dry_run`` prints it with what differs from the defaults. Nothing here refuses a run: vLLM and torch know better."""
