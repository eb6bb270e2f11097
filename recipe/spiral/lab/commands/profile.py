"""The command ``python -m recipe.spiral.profile``."""

from runpy import run_module

if __name__ == "__main__":
    run_module("recipe.spiral.lab.profile", run_name="__main__")
