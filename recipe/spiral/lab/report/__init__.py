"""A run as pages: ``python -m recipe.spiral.report RUN_DIR``."""
