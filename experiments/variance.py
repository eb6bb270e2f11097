"""Measures what RAE does to the variance of the gradient: ``python -m experiments.variance [overrides]``.

The tiny model plays games in self-play. The exact policy gradient of each game gives the variance of a batch's estimate
under every kind of baseline (``estimates.py``). Each game with each seed is saved when it is done, so a stopped start
goes on. The experiment ends in ``variance.json`` and the pages made from it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from experiments.command import run_experiment
from experiments.estimates import SCHEMES, Estimator, Scores, expected_ratio, ratios
from experiments.result import Result, command_line, current_commit, weights_digest
from recipe.spiral.games import resolve
from recipe.spiral.players.records import GameRecord

if TYPE_CHECKING:
    from recipe.spiral.lab.models.measure import Reader

NAME = "variance"
MODULE = "experiments.variance"
TITLE = "The variance of the policy gradient under different baselines"


@dataclass(frozen=True)
class Measured:
    """The games of one kind with one seed: their scores, and counts.

    Attributes:
        scores: the games' outcomes and scores.
        wins: the numbers of wins of player 0, draws, and wins of player 1.
        random_wins: the same between players that move at random.
        legal: the share of turns that were legal.
        seconds: how long it took.
        commit: of the code that played.
        model: the digest of the model's weights; "" where it is not known.
    """

    scores: Scores
    wins: tuple[int, ...]
    random_wins: tuple[int, ...]
    legal: float
    seconds: float
    commit: str
    model: str = ""

    @property
    def games(self) -> int:
        return self.scores.rewards.shape[0] * self.scores.rewards.shape[1]

    def save(self, file: Path) -> None:
        """Write a file, whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        notes = asdict(self)
        arrays, whole = notes.pop("scores"), io.BytesIO()
        np.savez(whole, notes=np.array(json.dumps(notes)), **arrays)
        unfinished = file.with_name(f".{file.name}.{os.getpid()}")
        unfinished.write_bytes(whole.getvalue())
        unfinished.replace(file)

    @classmethod
    def load(cls, file: Path) -> Measured | None:
        """Read a file; None where it is missing or broken."""
        try:
            with np.load(file, allow_pickle=False) as data:
                arrays = {name: data[name] for name in data.files}
            notes = json.loads(str(arrays.pop("notes")))
            return cls(
                Scores(**arrays), **{**notes, "wins": tuple(notes["wins"]), "random_wins": tuple(notes["random_wins"])}
            )
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None


def row(game: str, by_seed: Sequence[Measured], config: Mapping[str, Any]) -> dict[str, Any]:
    """A game's figures over all seeds, and RAE's ratio for each seed alone."""
    scores = Scores.join([measured.scores for measured in by_seed])
    estimator = estimator_of(scores, config)
    variance, signal = estimator.all()["none"], estimator.signal()
    whole = ratios(estimator, len(scores.rewards), config["resamples"], seed=0)
    flat = scores.rewards.reshape(-1, 2)
    # only an illegal answer costs more than 1
    illegal = np.abs(scores.rewards).max(axis=-1) > 1
    squares = np.einsum("ukp,ukpq,ukq->uk", scores.rewards, scores.blocks(), scores.rewards)
    rae = [estimator_of(measured.scores, config).all() for measured in by_seed]
    return {
        "game": game,
        "policy": config["games"][game]["policy"],
        "games": len(flat),
        "legal": float(np.mean([measured.legal for measured in by_seed])),
        "advantage": float(flat[:, 0].mean()),
        "won_by_role": float(np.square(flat.mean(0)).sum() / np.square(flat).mean(0).sum()),
        "wins": _shares([measured.wins for measured in by_seed]),
        "random_wins": _shares([measured.random_wins for measured in by_seed]),
        "variance": variance,
        "signal": signal / (variance + signal),
        "score_mean": list(estimator.score_mean()),
        "illegal_games": float(illegal.mean()),
        "illegal_variance": float(squares[illegal].sum() / squares.sum()),
        "ratios": {scheme: list(values) for scheme, values in whole.items()},
        "expected_rae": expected_ratio(scores.rewards, config["decay"]),
        "rae_by_seed": [variances["rae"] / variances["none"] for variances in rae],
    }


def estimator_of(scores: Scores, config: Mapping[str, Any], handicap: float = 0.0) -> Estimator:
    """The estimator with the config's decay and batch."""
    return Estimator(scores, config["decay"], config["batch"], handicap)


def handicaps(scores: Scores, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The ratios of one game with every handicap."""
    swept = []
    for handicap in config["handicaps"]:
        by_scheme = ratios(estimator_of(scores, config, handicap), len(scores.rewards), config["resamples"], seed=0)
        swept.append(
            {
                "handicap": float(handicap),
                "advantage": float(scores.rewards[..., 0].mean()) + handicap,
                "expected_rae": expected_ratio(scores.rewards + handicap * np.array([1.0, -1.0]), config["decay"]),
                "ratios": {scheme: list(by_scheme[scheme]) for scheme in SCHEMES},
            }
        )
    return swept


def measure(game: str, seed: int, config: Mapping[str, Any], reader: Reader, bar: Any) -> Measured:
    """Play one game with one seed."""
    from experiments.scoring import play_and_score, random_outcomes

    started = time.monotonic()
    how = config["games"][game]
    temperature = None if how["policy"] == "free" else float(how["policy"])
    scores, records = play_and_score(
        reader, game, temperature, seed, how["groups"], config["group"], config["sketch"], bar.update
    )
    verdicts = Counter(turn.verdict for record in records for turn in record.turns)
    random_play = random_outcomes(game, config["random_games"] // len(config["seeds"]), seed)
    return Measured(
        scores,
        wins=_wins(records),
        random_wins=_wins(random_play),
        legal=verdicts["legal"] / verdicts.total(),
        seconds=time.monotonic() - started,
        commit=current_commit(),
        model=weights_digest(reader.model.name_or_path),
    )


def run(config: Mapping[str, Any], overrides: Sequence[str]) -> Result:
    """Measure what is not done yet, and put the result together.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    check(config)
    from tqdm import tqdm

    reader: Reader | None = None
    by_game: dict[str, list[Measured]] = {game: [] for game in config["games"]}
    total = sum(how["groups"] for how in config["games"].values()) * len(config["seeds"])
    with tqdm(total=total, unit="group", mininterval=0.2 if sys.stderr.isatty() else 10) as bar:
        for seed in config["seeds"]:
            for game in config["games"]:
                bar.set_description(f"{game}, seed {seed}", refresh=False)
                file = _file(game, seed, config)
                if (measured := Measured.load(file)) is None:
                    reader = reader or load_reader(config["model_games"])
                    measured = measure(game, seed, config, reader, bar)
                    measured.save(file)
                else:
                    bar.update(len(measured.scores.rewards))
                by_game[game].append(measured)
    every = [measured for by_seed in by_game.values() for measured in by_seed]
    swept = handicaps(Scores.join([measured.scores for measured in by_game[config["handicap_game"]]]), config)
    return Result(
        name=NAME,
        title=TITLE,
        command=command_line(MODULE, overrides),
        commit=", ".join(sorted({measured.commit for measured in every})),
        seeds=tuple(config["seeds"]),
        games=sum(measured.games for measured in every),
        minutes=round(sum(measured.seconds for measured in every) / 60, 1),
        settings={key: value for key, value in config.items() if key not in ("work", "output")},
        rows=[row(game, by_seed, config) for game, by_seed in by_game.items()],
        figures={"handicap": swept, "models": sorted({measured.model for measured in every})},
    )


def check(config: Mapping[str, Any]) -> None:
    """Check the config before anything is played.

    Raises:
        ValueError: a setting is wrong; the message names it.
    """
    for game, how in config["games"].items():
        if resolve(game) != game:
            raise ValueError(f"games.{game}: write {resolve(game)}")
        if how["policy"] != "free" and not (isinstance(how["policy"], int | float) and how["policy"] > 0):
            raise ValueError(f"games.{game}.policy={how['policy']}: must be free, or a temperature above 0")
        if how["groups"] < 2:
            raise ValueError(f"games.{game}.groups={how['groups']}: must be at least 2")
    if config["group"] < 2 or config["batch"] < 2:
        raise ValueError(f"group={config['group']}, batch={config['batch']}: must be at least 2")
    if not config["seeds"] or len(set(config["seeds"])) < len(config["seeds"]):
        raise ValueError(f"seeds={config['seeds']}: must name different seeds, at least one")
    if config["handicap_game"] not in config["games"]:
        raise ValueError(f"handicap_game={config['handicap_game']}: must be one of games")


def _file(game: str, seed: int, config: Mapping[str, Any]) -> Path:
    """Where a game with a seed is kept; other settings are another file."""
    shared = {key: config[key] for key in ("group", "model_games", "sketch", "random_games")}
    settings = {"game": game, "seed": seed, "seeds": len(config["seeds"]), **config["games"][game], **shared}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return Path(config["work"]) / f"{game}-{seed}-{digest}.npz"


def load_reader(games: Sequence[str]) -> Reader:
    """The tiny model for these games, made now if it is missing."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from recipe.spiral.lab.models import embedded
    from recipe.spiral.lab.models.measure import Reader
    from recipe.spiral.players.prompts import get_template

    folder = embedded("tiny", games, "chat")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Reader(model, AutoTokenizer.from_pretrained(folder), get_template("chat"))


def _wins(records: Sequence[GameRecord]) -> tuple[int, ...]:
    results = Counter(record.result(0) for record in records)
    return tuple(results[result] for result in ("win", "draw", "loss"))


def _shares(counts: Sequence[tuple[int, ...]]) -> list[float]:
    sums = np.sum(counts, axis=0)
    return [float(share) for share in sums / sums.sum()]


if __name__ == "__main__":
    run_experiment(NAME, run)
