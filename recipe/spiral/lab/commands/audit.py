"""The command ``python -m recipe.spiral.audit``."""

from runpy import run_module

if __name__ == "__main__":
    run_module("recipe.spiral.lab.audit", run_name="__main__")
