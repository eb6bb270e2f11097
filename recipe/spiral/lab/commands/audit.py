"""The command ``python -m recipe.spiral.audit``."""

from recipe.spiral.lab.own_command import run_part

if __name__ == "__main__":
    run_part("audit")
