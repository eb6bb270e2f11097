"""A person at the table: ``python -m recipe.spiral.play GAME [MODEL]``."""
