"""Ids, aliases and errors; what importing the games loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recipe.spiral.games import resolve

USED_BY_SPIRAL = {
    "TicTacToe-v0": "TicTacToe",
    "KuhnPoker-v1": "KuhnPoker-5",
    "SimpleNegotiation-v1": "SimpleNegotiation",
    "SimpleNegotiation-v2": "SimpleNegotiation-5",
    "LiarsDice-v1": "LiarsDice",
    "PigDice-v1": "PigDice",
    "TruthAndDeception-v1": "TruthAndDeception",
    "ConnectFour-v0": "ConnectFour",
    "SimpleBlindAuction-v1": "SimpleBlindAuction",
    "WordChains-v1": "WordChains",
    "SpellingBee-v1": "SpellingBee",
    "DontSayIt-v0": "DontSayIt",
    "Nim-v0": "Nim",
    "Snake-v0": "Snake",
    "Breakthrough-v0": "Breakthrough",
}


@pytest.mark.parametrize("alias", USED_BY_SPIRAL)
def test_the_ids_of_spirals_users(alias: str) -> None:
    assert resolve(alias) == resolve(f"{alias}-train") == resolve(f"{alias}-raw") == USED_BY_SPIRAL[alias]


IMPORT = """
import sys
import recipe.spiral.games
from recipe.spiral.games import make, known_games
for game_id in known_games():
    try:
        make(game_id, 0)
    except ImportError as error:
        assert "pip install pyspellchecker" in str(error), error
print(*sorted({"torch", "verl", "ray", "vllm", "nltk", "textarena", "numpy"} & {*sys.modules}))
"""


def test_importing_the_games_loads_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


WITHOUT_EXTRAS = """
import sys
for name in ("spellchecker", "textarena", "nltk"):
    sys.modules[name] = None
from recipe.spiral.games import make
for game_id in ("WordChains", "SpellingBee", "textarena:Nim-v0"):
    try:
        make(game_id, 0)
    except ImportError as error:
        print(error)
"""


def test_a_missing_package_is_named_with_what_brings_it() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert ["pip install pyspellchecker" in line for line in lines] == [True, True, False]
    assert "textarena:Nim-v0 needs TextArena: pip install textarena==0.7.4" in lines[2]
