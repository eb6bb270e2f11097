"""Makes a Hugging Face folder from a checkpoint: ``python -m recipe.spiral.export CHECKPOINT TARGET``."""
