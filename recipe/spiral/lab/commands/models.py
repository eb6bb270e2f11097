"""The command ``python -m recipe.spiral.models``."""

from recipe.spiral.lab.own_command import run_part

if __name__ == "__main__":
    run_part("models")
