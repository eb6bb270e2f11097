"""The command ``python -m recipe.spiral.report``."""

from recipe.spiral.lab.own_command import run_part

if __name__ == "__main__":
    run_part("report")
