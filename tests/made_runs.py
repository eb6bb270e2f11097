"""Run folders made for tests: real games by random players with made-up words, metrics counted from them, a config."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from recipe.spiral.games import make
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.records import SELF_PLAY, GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.run_files import MetricsFile
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.made import boxed

GAMES = ("TicTacToe", "KuhnPoker")


class Talker:
    """Plays at random, and says so; some of its answers are not legal.

    Args:
        name: whose.
        version: of the weights; None: no model's.
        illegal: the share of its answers that are not legal.
        words: before the answer.
    """

    def __init__(self, name: str, version: int | None, illegal: float = 0.02, words: str = "I think.") -> None:
        self.name, self.version, self.illegal, self.words = name, version, illegal, words

    async def respond(self, position: Position) -> Response:
        draw = random.Random(position.key.seed("sample", position.player, position.turn))
        action = position.game.random_action(draw)
        wrong = draw.choice(["[99]", "[fly]", ""])
        answer = boxed(wrong) if draw.random() < self.illegal else boxed(action)
        text = f"{self.words} {answer}"
        length = max(2, len(text) // 4)
        versions = None if self.version is None else (self.version, self.version)
        tokens = Tokens(list(range(60)), list(range(length)), [-draw.random()] * length, versions)
        return Response(text, None if self.name == "random" else tokens)


def finished(game: Coroutine[Any, Any, GameRecord]) -> GameRecord:
    """Nobody here waits for anything, so that no event loop is needed; while a browser is open, none can be started."""
    try:
        game.send(None)
    except StopIteration as end:
        record: GameRecord = end.value
        return record
    raise AssertionError("a player waits")


def games(
    split: str, step: int, count: int, words: str = "I think.", opponents: Sequence[str] = (SELF_PLAY,)
) -> list[GameRecord]:
    """Games of a step; opponents take turns, and so do the roles against them."""
    records = []
    for index in range(count):
        opponent, role = opponents[index % len(opponents)], index // len(opponents) % 2
        policy = Talker("policy", step - 1, illegal=0.2 / (1 + step), words=words)
        other = Talker(opponent, None, 0.0, words="")
        players = (policy, policy) if opponent == SELF_PLAY else (policy, other) if role == 0 else (other, policy)
        trainable = (0, 1) if opponent == SELF_PLAY else (role,)
        kind = "pool" if opponent.startswith("step_") else opponent
        key = GameKey(split, 7, 0 if split == "val" else step, index)
        game = GAMES[index // 2 % len(GAMES)]
        record = finished(play(key, game, make(game, key.game_seed()), players, trainable, Rules()))
        record.key, record.opponent = key.at_step(step), kind
        if split == "train":
            record.baselines = (0.1, -0.1) if len(trainable) == 2 else (0.05, None) if role == 0 else (None, 0.05)
            for turn in record.turns:
                if turn.player in trainable:
                    turn.advantage = record.rewards[turn.player] - (record.baselines[turn.player] or 0.0)
        records.append(record)
    return records


def write_run(
    run_dir: Path,
    steps: int = 6,
    per_step: int = 16,
    first: int = 1,
    every: int = 3,
    words: Callable[[int], str] = lambda step: f"At step {step} I think.",
    opponents: Sequence[str] = (SELF_PLAY,),
    total: int | None = None,
) -> Path:
    """A run's folder with steps ``first`` to ``steps``; a validation at step 0 and every so many."""
    run_dir.mkdir(parents=True, exist_ok=True)
    config = ["seed: 7", f"run_dir: {run_dir}", f"games: [{', '.join(GAMES)}]"]
    trainer = (
        f"trainer: {{project_name: spiral, experiment_name: {run_dir.name}, total_training_steps: {total or steps}}}"
    )
    (run_dir / "config.yaml").write_text("\n".join([*config, trainer, ""]))
    records, metrics = RecordFolder(run_dir / "games"), MetricsFile(run_dir, clock=lambda: 1_767_225_600.0)
    for step in range(0 if first == 1 else first, steps + 1):
        logged: dict[str, float] = {}
        if step:
            played = games("train", step, per_step, words(step), opponents)
            records.write("train", step, played)
            logged |= training_metrics(played, [])
            logged |= {"actor/grad_norm": 0.2 + 1 / (step + 1), "perf/games_per_second": 12.0, "actor/lr": 1e-4}
            logged |= {"timing_s/gen": 4.0, "timing_s/update_actor": 5.0, "timing_s/step": 9.5}
            logged["games/TicTacToe/p0/entropy"] = 0.5 * math.exp(-step / 50)
        if step % every == 0:
            validated = games("val", step, 16, words(step), ("random",))
            records.write("val", step, validated)
            logged |= validation_metrics(validated)
        metrics.log(logged, step)
    return run_dir
