"""Makes the folder of a long run without a model: real games, played by a random player that writes as a tiny model.

    python benchmarks/synthetic_run.py RUN_DIR [--games 10000] [--games-per-step 128] [--seed 0]

The folder has a config, records with tokens, log-probabilities, baselines and advantages, and a checkpoint's state at
the last step, without weights. ``python -m recipe.spiral.audit RUN_DIR`` finds it to be in order. Ten thousand
games take about two seconds.
"""

from __future__ import annotations

import json
import random
import re
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.options import new_folder
from recipe.spiral.games import Game, make
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.prompts import boxed
from recipe.spiral.players.records import GameRecord, Tokens, to_line
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.processes.arguments import Arguments, within
from recipe.spiral.rae import RoleBaselines
from recipe.spiral.rollouts.schedule import parse_games, training_row
from recipe.spiral.storage.checkpoints import CONFIG, name_latest, write_state
from recipe.spiral.storage.record_folder import RecordFolder

#: How many token ids there are, how often a turn is not legal, and how many games are played from one state.
VOCABULARY, ILLEGAL, VARIANTS = 2_000, 0.02, 1_000
#: What differs between copies of a game: both players' advantages, and the weight versions.
MARKS = ("@0", "@1", "@2")
_WORDS = re.compile(r" ?\w+|\W")


def config(run_dir: Path, seed: int = 0, games_per_step: int = 128) -> Any:
    """The settings of a run that its records depend on."""
    return OmegaConf.create(
        {
            "run_dir": str(run_dir),
            "seed": seed,
            "games": ["TicTacToe", "KuhnPoker"],
            "rules": {"illegal_rewards": [-1.5, 0.5], "truncated": "illegal", "turn_cap": None},
            "draw_retry": {"enabled": False, "max_retries": 1},
            "algorithm": {
                "adv_estimator": "rae",
                "gamma": 1.0,
                "reward_scale": 1.0,
                "filter_draws": False,
                "filter_zero_advantages": False,
                "use_kl_in_reward": False,
                "norm_adv_by_std_in_grpo": True,
                "rae": {"baseline": True, "decay": 0.95, "initial": 0.0, "update": "game", "by_opponent": True},
                "rollout_correction": {"rollout_rs": None},
            },
            "batch_unit": "games",
            "branching": {"states": 0, "continuations": 1},
            "asynchronous": {"max_staleness": None, "on_stale": "drop"},
            "data": {"train_batch_size": games_per_step, "games_per_start": 1, "custom_cls": {"name": "GameDataset"}},
            "records": {"every": 1, "tokens": True},
            "trainer": {
                "v1": {"trainer_mode": "sync"},
                "default_local_dir": "${run_dir}/checkpoints",
                "resume_mode": "auto",
            },
        }
    )


class Writer:
    """Answers with a random legal action, and rarely with none, in a few tokens."""

    name = "policy"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def respond(self, position: Position) -> Response:
        rng = self._rng
        legal = rng.random() > ILLEGAL
        text = boxed(rng.choice(position.game.legal_actions())) if legal else "I pass."
        ids = _ids(text)
        # numbers of 32 bits, as an engine gives them
        log_probs = np.array([-(rng.random() ** 4) for _ in ids], np.float32).tolist()
        return Response(text, Tokens(_ids(position.observation), ids, log_probs, MARKS[2]))  # type: ignore


def _ids(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % VOCABULARY for word in _WORDS.findall(text)]


@dataclass
class Copy(GameRecord):
    """A game that was played before from the same state, under another key: only what differs is written anew.

    Attributes:
        text: the record as JSON, with ``MARKS`` in place of what differs.
    """

    text: str = ""

    def to_json(self) -> str:
        text = self.text.replace(MARKS[2], json.dumps([self.key.step - 1] * 2))
        for player, baseline in enumerate(self.baselines):
            advantage = np.float32(self.rewards[player] - (baseline or 0.0))
            text = text.replace(MARKS[player], repr(float(advantage)))
        own = f'{{"key":{to_line(vars(self.key))},"baselines":{json.dumps(self.baselines)},'
        return own + text


class Games:
    """Plays games, up to ``VARIANTS`` from each state, and then copies them."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._shares, self._rules = parse_games(settings.games), Rules.from_config(settings.rules)
        self._rng = random.Random(settings.seed)
        self._writer = Writer(self._rng)
        self._variants: dict[str, list[Copy]] = defaultdict(list)

    def step(self, step: int) -> list[GameRecord]:
        """A step's games."""
        number = int(self._settings.data.train_batch_size)
        return [self._game(number, place) for place in range((step - 1) * number, step * number)]

    def _game(self, number: int, place: int) -> GameRecord:
        row = training_row(self._shares, self._settings.seed, number, place)
        key = GameKey(**row["key"])
        game = make(row["data_source"], key.game_seed())
        variants = self._variants[f"{row['data_source']} {game.render()}"]
        if len(variants) < VARIANTS:
            variants.append(self._play(key, row["data_source"], game))
        return replace(self._rng.choice(variants), key=key)

    def _play(self, key: GameKey, name: str, game: Game) -> Copy:
        playing = play(key, name, game, (self._writer, self._writer), (0, 1), self._rules)
        try:
            playing.send(None)  # nobody in it waits for anything
        except StopIteration as ended:
            fields = vars(ended.value)
        turns = [{**vars(turn), "advantage": MARKS[turn.player]} for turn in fields["turns"]]
        rest = {name: value for name, value in fields.items() if name not in ("key", "baselines", "turns")}
        text = to_line({**rest, "turns": turns})[1:]
        for mark in MARKS:
            text = text.replace(json.dumps(mark), mark)
        return Copy(**fields, text=text)


def make_run(run_dir: Path, games: int, games_per_step: int = 128, seed: int = 0) -> int:
    """Make a run's folder, or add to one; returns its last step."""
    run_dir.mkdir(parents=True, exist_ok=True)
    settings = config(run_dir, seed, games_per_step)
    OmegaConf.save(settings, run_dir / CONFIG)
    made, moving, folder = Games(settings), RoleBaselines(), RecordFolder(run_dir / "games")
    steps = -(-games // games_per_step)
    for step in tqdm(range(1, steps + 1), unit="step", delay=2, leave=False, disable=None):
        records = made.step(step)
        for record in records:
            record.baselines = moving.of(record)
        folder.write("train", step, records)
        moving.update(records)
    state = {"step": steps, "seed": seed, "baselines": moving.state_dict()}
    write_state(run_dir / "checkpoints" / f"global_step_{steps}", state)
    name_latest(run_dir / "checkpoints", steps)
    return steps


if __name__ == "__main__":
    parser = Arguments(description=__doc__.split("\n\n")[0])
    parser.add_argument("run_dir", type=new_folder)
    parser.add_argument("--games", type=within(int, 1), default=10_000)
    parser.add_argument("--games-per-step", type=within(int, 1), default=128)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{make_run(options.run_dir, options.games, options.games_per_step, options.seed)} steps")
