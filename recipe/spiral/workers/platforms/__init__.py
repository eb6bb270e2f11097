"""Hardware that verl does not know by itself. On GPUs nothing of this package is imported."""
