"""Ids, aliases and errors; games of users' own packages; what importing the games loads."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recipe.spiral.games import UnknownGame, make, registry, resolve
from recipe.spiral.players.player import check_random_play
from recipe.spiral.rollouts.schedule import parse_games
from tests.games.playouts import PENNIES

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


Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module of a user's package ``mine``."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").touch()  # goes before other tests' mine.py
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("mine", None)

    def write(module: str, code: str) -> None:
        (tmp_path / "mine" / f"{module}.py").write_text(code, encoding="utf-8")
        importlib.invalidate_caches()

    write("pennies", PENNIES)
    yield write
    registry.game_class.cache_clear()
    registry.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def test_a_class_of_a_users_package_is_a_game(write: Write) -> None:
    assert resolve("mine.pennies:Pennies") == "mine.pennies:Pennies"
    game = make("mine.pennies:Pennies", 3)
    game.step("[heads]")
    game.step("[tails]")
    assert game.seed == 3 and game.rewards() == (-1.0, 1.0)
    assert [share.id for share in parse_games(["mine.pennies:Pennies", "Nim"])] == ["mine.pennies:Pennies", "Nim"]
    check_random_play("mine.pennies:Pennies")


def test_an_installed_package_names_its_games(write: Write, tmp_path: Path) -> None:
    package = tmp_path / "mine-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[verl_spiral.games]\nPennies = mine.pennies:Pennies\na/b = mine.pennies:Pennies\n"
    )
    registry.installed.cache_clear()
    assert resolve("Pennies") == "Pennies" and make("Pennies", 0).actions == ("[heads]", "[tails]")
    with pytest.raises(UnknownGame, match=r"Known games: .*TicTacToe.*Pennies"):
        resolve("Penies")
    with pytest.raises(UnknownGame, match="'a/b': a game's name may have letters"):
        resolve("a/b")


@pytest.mark.parametrize(
    ("game_id", "why"),
    [
        ("nobodys.game:Pennies", "No module named 'nobodys'; install its package, start where it lies"),
        ("mine.needy:Pennies", "No module named 'not_installed'; install its package"),
        ("mine.pennies:Penny", r"AttributeError: .*mine\.pennies.* 'Penny'"),
        ("mine.pennies:", "AttributeError"),
        ("mine.broken:Pennies", "SyntaxError"),
        ("mine.pennies:SIDES", r"is no subclass of recipe\.spiral\.games\.Game"),
        ("mine.pennies:Game", "TypeError: .*abstract.*current_player, is_terminal, legal_actions"),
        ("mine.more:Greedy", "Greedy: .*TypeError: .*rounds"),
        ("mine.more:Method", "Method: .*is_terminal is <bound method .*must be True"),
        ("mine.more:Fails", r"Fails: .*ZeroDivisionError: .* \(.*more\.py, line \d+: return 1 / 0\)"),
        ("mine.more:Generous", r"Generous: .*rewards\(\) are \(1\.0, 1\.0\)"),
    ],
)
def test_what_is_no_game_is_refused_in_a_line(write: Write, game_id: str, why: str) -> None:
    write("broken", "class Pennies(:\n")
    write("needy", "import not_installed\n")
    write(
        "more",
        "from mine.pennies import Pennies\n\n"
        "class Greedy(Pennies):\n    def __init__(self, seed, rounds):\n        super().__init__(seed)\n\n"
        "class Method(Pennies):\n    def is_terminal(self):\n        return len(self.choices) == 2\n\n"
        "class Fails(Pennies):\n    def step(self, action):\n        return 1 / 0\n\n"
        "class Generous(Pennies):\n    def rewards(self):\n        return (1.0, 1.0)\n",
    )
    with pytest.raises((UnknownGame, ImportError), match=why) as raised:
        resolve(game_id)
    assert "\n" not in str(raised.value)
