"""The command ``python -m recipe.spiral.play``."""

from runpy import run_module

if __name__ == "__main__":
    run_module("recipe.spiral.lab.play", run_name="__main__")
