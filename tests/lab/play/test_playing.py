"""A person at the table: slips cost nothing, the opponent follows the match's rules, and nothing hidden is shown; in a
terminal and by the server of the page."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.play import __main__ as command_line
from recipe.spiral.lab.play import table_opponent
from recipe.spiral.lab.play.playing import Finished, Move, Sitting, response_of
from recipe.spiral.lab.play.web import WebPage, application
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Player, Position, RandomPlayer
from recipe.spiral.players.prompts import boxed, extract_answer
from recipe.spiral.players.records import GameRecord
from tests.games.playouts import OWN_GAMES
from tests.made import Scripted


class Face:
    """Enters what a function of the position says, and keeps everything that it was shown."""

    def __init__(self, enter: Callable[[Position], str]) -> None:
        self.enter = enter
        self.observations: list[str] = []
        self.complaints: list[str] = []
        self.moves: list[Move] = []

    async def ask(self, position: Position, complaint: str) -> str:
        self.observations.append(position.observation)
        self.complaints += [complaint] if complaint else []
        return self.enter(position)

    def moved(self, move: Move, table: object) -> None:
        self.moves.append(move)


def entering(*entries: str) -> Face:
    given = iter(entries)
    return Face(lambda position: next(given))


@pytest.fixture
def played(tmp_path: Path) -> Callable[..., tuple[Finished, GameRecord]]:
    """Plays a game; what the face is told of its end, and its record."""

    def run(
        face: Face, opponent: Player, game: str = "TicTacToe", role: int = 0, rules: Rules | None = None
    ) -> tuple[Finished, GameRecord]:
        sitting = Sitting(game, opponent, rules or Rules(), 5, tmp_path, role)
        finished = asyncio.run(sitting.play(face))
        [record] = RecordFolder(tmp_path / "games").read("human")
        return finished, record

    return run


Played = Callable[..., tuple[Finished, GameRecord]]


@pytest.mark.parametrize("entry", ["4", "[4]", " [ 4 ] ", "4.", "\\boxed{[4]}", "{4}", "I take \\boxed{4}"])
def test_an_action_is_read_with_and_without_its_brackets(entry: str) -> None:
    game = make("TicTacToe", 0)
    assert game.parse(extract_answer(response_of(game, entry)) or "") == "[4]"


def test_typing_slips_cost_nothing(played: Played) -> None:
    face = entering("ten", "", "0", "0", "[3]", "\ud800", "1", "2")
    finished, record = played(face, Scripted(boxed("[3]"), boxed("[4]")))
    assert finished.headline == "You won." and record.termination == "rules"
    assert len(face.complaints) == 5 and "Possible: [" in face.complaints[0]
    assert [turn.action for turn in record.turns] == ["[0]", "[3]", "[1]", "[4]", "[2]"]


@pytest.mark.parametrize("game_id", OWN_GAMES)
@pytest.mark.parametrize("role", [0, 1])
def test_every_game_can_be_played_to_its_end_in_both_roles(game_id: str, role: int, played: Played) -> None:
    draw = random.Random(3)
    slips = ["?!"] * 3

    def enter(position: Position) -> str:
        if slips and draw.random() < 0.3 and position.game.actions:
            return slips.pop()
        return position.game.random_action(draw)

    face = Face(enter)
    finished, record = played(face, RandomPlayer(), game_id, role)
    assert record.termination == "rules"
    assert record.trainable == (1 - role,)
    assert record.players[role] == record.opponent == "human"
    hides = not make(game_id, 0).perfect_information
    assert len(finished.revealed) == hides * len(record.turns) and len(face.moves) == len(record.turns)
    assert differences(record, replay(record, Rules())) == []


@pytest.mark.parametrize(
    ("response", "rules", "rewards", "why"),
    [
        (boxed("[0]"), Rules((-1.0, 1.0)), (1.0, -1.0), "[0] (its action is against the rules)"),
        ("I give up", Rules(), (0.5, -1.5), "no legal move (its response has no \\boxed{} with an answer)"),
    ],
)
def test_an_illegal_answer_of_the_opponent_follows_the_rules_and_is_said(
    response: str, rules: Rules, rewards: tuple[float, float], why: str, played: Played
) -> None:
    face = entering("0")
    finished, record = played(face, Scripted(response), rules=rules)
    assert record.rewards == finished.rewards == rewards
    assert finished.headline == "You won." and "scripted made no legal move" in finished.why
    assert (face.moves[-1].said, face.moves[-1].response) == (why, response)


def test_nothing_that_is_hidden_is_shown_before_the_end(played: Played) -> None:
    """The opponent's words would give its card away."""
    opponent = Scripted("I have the card SECRET: " + boxed("[bet]"), "still the SECRET card " + boxed("[call]"))
    face = entering("call")
    finished, record = played(face, opponent, "KuhnPoker", role=1)
    assert "SECRET" not in repr((face.observations, face.moves))
    assert face.moves[0].said == "has moved"
    game = make("KuhnPoker", record.key.game_seed())
    assert f"Your card: {game.cards[1]}" in face.observations[0]  # type: ignore[attr-defined]
    assert "SECRET" in finished.revealed[0].response
    assert f"player 0 has {game.cards[0]}" in finished.board  # type: ignore[attr-defined]


# -- the command, through stdin, with everything that goes wrong, and with hostile words -------------------------------

Play = Callable[..., tuple[int, str, str]]
HOSTILE = "\x1b]0;title\x07\x1b[2J\u202eevil\u2066 <script>alert(1)</script> " + "long " * 300_000


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Runs the command in this process with an input; returns status, stdout and stderr."""

    def run(*arguments: str, entries: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(entries.encode()), encoding="utf-8"))
        try:
            status = command_line.main([*arguments, "--save", str(tmp_path / "played")])
        except SystemExit as exit_:  # argparse's, or the person's
            status = int(exit_.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def saved(tmp_path: Path) -> list[GameRecord]:
    return list(RecordFolder(tmp_path / "played" / "games").read("human"))


@pytest.mark.parametrize(
    ("game", "opponent", "role", "entries"),
    [
        ("TicTacToe", "perfect", 1, "".join(f"[{square}]\n" for square in range(9)) * 3),
        ("KuhnPoker", "random", 0, "\nbet\ncall\n"),
        ("ConnectFour", "alphabeta", 0, "".join(f"column {column}\n" for column in range(7)) * 12),
    ],
)
def test_a_game_from_stdin_is_played_to_its_end_and_saved(
    game: str, opponent: str, role: int, entries: str, play: Play, tmp_path: Path
) -> None:
    """Entries that are not legal at the moment are among them."""
    status, out, err = play(game, opponent, "--role", str(role), "--seed", "3", entries=entries)
    assert (status, err) == (0, "")
    [record] = saved(tmp_path)
    assert record.game == game
    assert record.termination == "rules"
    assert record.players[role] == "human"
    mine, others = record.rewards[role], record.rewards[1 - role]
    won = "You won." if mine > others else "You lost." if mine < others else "A draw."
    assert f"\n{won} Rewards: you {mine:+g}, {record.players[1 - role]} {others:+g}." in out
    assert f"Saved: {tmp_path}/played/games/human_step_000001" in out


def test_who_leaves_a_game_does_not_save_it(play: Play, tmp_path: Path) -> None:
    status, _, err = play("TicTacToe", "random", entries="4\n/quit\n")
    assert (status, err, saved(tmp_path)) == (0, "", [])


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["TicTacTo"], 2, "TicTacTo"),
        (["TicTacToe", "/no/such/folder"], 2, "/no/such/folder"),
        (["LiarsDice", "perfect"], 2, "LiarsDice"),
        (["TicTacToe", "tiny", "--template", "chatt"], 2, "chatt"),
        (["TicTacToe", "random"], 1, "not saved"),
        (["TicTacToe", "random", "--temperature", "1"], 2, "--temperature"),
    ],
)
def test_what_goes_wrong_is_one_line(arguments: list[str], status: int, line: str, play: Play) -> None:
    found, _, err = play(*arguments)
    assert found == status
    assert err.startswith("spiral: ")
    assert err.count("\n") == 1
    assert line in err


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize(
    ("game", "role", "action", "entries"), [("TicTacToe", 0, "[4]", "0\n1\n"), ("KuhnPoker", 1, "[bet]", "call\n")]
)
def test_hostile_words_do_nothing_to_a_terminal(
    game: str, role: int, action: str, entries: str, hidden: bool, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    opponent = Scripted(HOSTILE + boxed(action), "no box")
    monkeypatch.setattr(table_opponent, "make_player", lambda kind: opponent)
    options = ["--role", str(role), *["--hide-responses"] * hidden]
    status, out, _ = play(game, "random", *options, entries=entries)
    assert status == 0
    assert all(character.isprintable() or character == "\n" for character in out)
    assert ("\\x1b[2J\\u202eevil\\u2066 <script>" in out) != hidden
    assert len(out) < 20_000


# -- the table's server: who may reach it, what it takes, and what it tells --------------------------------------------

TOKEN = "the-token"
Client = Any


def visit(work: Callable[[Client], Awaitable[None]], folder: Path, *responses: str) -> None:
    """Let ``work`` ask a table whose opponent answers with these responses."""
    httpx = pytest.importorskip("httpx", reason="needs the extra cpu")
    pytest.importorskip("starlette", reason="needs the extra web")

    async def run() -> None:
        page = WebPage(Sitting("TicTacToe", Scripted(*responses), Rules(), 5, folder))
        playing = asyncio.create_task(page.play())
        transport = httpx.ASGITransport(application(page, TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1:8000/{TOKEN}/") as client:
            await work(client)
        playing.cancel()

    asyncio.run(run())


async def until(client: Client, phase: str) -> dict[str, Any]:
    while (state := (await client.get("state")).json())["phase"] != phase:
        await asyncio.sleep(0.01)
    return state


async def enter(client: Client, entry: str, phase: str = "yours") -> None:
    """Once, although it is sent twice."""
    body = {"question": (await until(client, phase))["question"], "entry": entry}
    assert (await client.post("enter", json=body)).status_code == 200
    assert (await client.post("enter", json=body)).status_code == 409


WRONG = ("/", "/wrong/", "/wrong/state", "/page.js", "/the-token2/", "/the-toke", "/%74he-token%00/", "//the-token/")


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_wrong_token_is_refused(path: str, method: str, tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        answer = await client.request(method, f"http://127.0.0.1:8000{path}")
        assert answer.status_code == 403
        assert TOKEN not in answer.text

    visit(work, tmp_path)


def test_a_game_with_a_slip_is_played_saved_and_another_begun(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        for entry in ("0", "0", "ten", "1", "2"):
            await enter(client, entry)
        end = await until(client, "over")
        assert end["end"]["headline"] == "You won."
        assert end["end"]["rewards"] == [1.0, -1.0]
        assert "human_step_000001" in end["end"]["saved"]
        assert [move["said"] for move in end["moves"]] == ["[0]", "[3]", "[1]", "[4]", "[2]"]
        await enter(client, "1", phase="over")
        state = await until(client, "yours")
        assert state["role"] == 1
        assert [move["name"] for move in state["moves"]] == ["scripted"]

    visit(work, tmp_path, boxed("[3]"), boxed("[4]"))
    [record] = RecordFolder(tmp_path / "games").read("human")
    assert record.rewards == (1.0, -1.0)
