"""Where the time of a training step goes, in every process of a run."""
