"""The command ``python -m recipe.spiral.report``."""

from runpy import run_module

if __name__ == "__main__":
    run_module("recipe.spiral.lab.report", run_name="__main__")
