"""The command ``python -m recipe.spiral.models``."""

from runpy import run_module

if __name__ == "__main__":
    run_module("recipe.spiral.lab.models", run_name="__main__")
