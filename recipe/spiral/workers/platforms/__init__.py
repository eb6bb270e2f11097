"""A CPU as a platform of verl's and vLLM's. On GPUs nothing of this is imported."""
