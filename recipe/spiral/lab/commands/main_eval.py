"""The command ``python -m recipe.spiral.main_eval``."""

from recipe.spiral.lab.evaluation.command import main

if __name__ == "__main__":
    main()
