"""RAE's effect where it is: ``python -m experiments.variance [overrides]``.

Plays games in self-play with the tiny model, takes the exact policy gradient of each, and measures the variance of the
batch's estimate under every kind of baseline (``estimates.py``). Every game and seed is a part that is kept; a start
that was stopped goes on. Ends in ``variance.json`` and the pages made from it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
import numpy as np
from omegaconf import DictConfig, OmegaConf

from experiments.commits import commit
from experiments.estimates import SCHEMES, Estimator, Scores, expected_ratio, ratios
from experiments.parts import Parts
from experiments.result import Result, command_line
from recipe.spiral.games import resolve
from recipe.spiral.play.records import GameRecord

if TYPE_CHECKING:
    from recipe.spiral.models.measure import Reader

NAME = "variance"
MODULE = "experiments.variance"
TITLE = "The variance of the policy gradient under different baselines"
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Part:
    """One game with one seed: its scores, and counts.

    Attributes:
        scores: the games' outcomes and scores.
        wins: of player 0, draws, and wins of player 1.
        random_wins: the same between players that move at random.
        legal: the share of turns that were legal.
        seconds: what it took.
        commit: of the code that played.
    """

    scores: Scores
    wins: tuple[int, ...]
    random_wins: tuple[int, ...]
    legal: float
    seconds: float
    commit: str

    @property
    def games(self) -> int:
        return self.scores.rewards.shape[0] * self.scores.rewards.shape[1]


def row(game: str, parts: Sequence[Part], config: Mapping[str, Any]) -> dict[str, Any]:
    """A game's figures over all seeds, and RAE's ratio for each seed alone."""
    scores = Scores.join([part.scores for part in parts])
    estimator = estimator_of(scores, config)
    variance, signal = estimator.all()["none"], estimator.signal()
    whole = ratios(estimator, len(scores.rewards), config["resamples"], seed=0)
    flat = scores.rewards.reshape(-1, 2)
    # nothing but an illegal answer costs more than 1
    illegal = np.abs(scores.rewards).max(axis=-1) > 1
    squares = np.einsum("ukp,ukpq,ukq->uk", scores.rewards, scores.blocks(), scores.rewards)
    rae = [estimator_of(part.scores, config).all() for part in parts]
    return {
        "game": game,
        "policy": config["games"][game]["policy"],
        "games": len(flat),
        "legal": float(np.mean([part.legal for part in parts])),
        "advantage": float(flat[:, 0].mean()),
        "won_by_role": float(np.square(flat.mean(0)).sum() / np.square(flat).mean(0).sum()),
        "wins": _shares([part.wins for part in parts]),
        "random_wins": _shares([part.random_wins for part in parts]),
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
    """One game's ratios with every handicap."""
    swept = []
    for handicap in config["handicaps"]:
        found = ratios(estimator_of(scores, config, handicap), len(scores.rewards), config["resamples"], seed=0)
        swept.append(
            {
                "handicap": float(handicap),
                "advantage": float(scores.rewards[..., 0].mean()) + handicap,
                "expected_rae": expected_ratio(scores.rewards + handicap * np.array([1.0, -1.0]), config["decay"]),
                "ratios": {scheme: list(found[scheme]) for scheme in SCHEMES},
            }
        )
    return swept


def measure(game: str, seed: int, config: Mapping[str, Any], reader: Reader, code: str, bar: Any) -> Part:
    """Play one game with one seed; ``code`` is the commit that does."""
    from experiments.scoring import play_and_score, random_outcomes

    started = time.monotonic()
    how = config["games"][game]
    temperature = None if how["policy"] == "free" else float(how["policy"])
    scores, records = play_and_score(
        reader, game, temperature, seed, how["groups"], config["group"], config["sketch"], bar.update
    )
    verdicts = Counter(turn.verdict for record in records for turn in record.turns)
    chance = random_outcomes(game, config["random_games"] // len(config["seeds"]), seed)
    legal = verdicts["legal"] / verdicts.total()
    return Part(scores, _wins(records), _wins(chance), legal, time.monotonic() - started, code)


def run(config: Mapping[str, Any], overrides: Sequence[str]) -> Result:
    """Measure what is not done yet, and put the result together.

    Raises:
        ValueError: something in the config is wrong.
    """
    check(config)
    from tqdm import tqdm

    parts, code = Parts(Path(config["work"])), commit(ROOT)
    reader: Reader | None = None
    done: dict[str, list[Part]] = {game: [] for game in config["games"]}
    total = sum(how["groups"] for how in config["games"].values()) * len(config["seeds"])
    with tqdm(total=total, unit="group", mininterval=0.2 if sys.stderr.isatty() else 10) as bar:
        for seed in config["seeds"]:
            for game in config["games"]:
                bar.set_description(f"{game}, seed {seed}", refresh=False)
                file = parts.file(f"{game}-{seed}", decided_by(game, seed, config))
                if (part := _load(parts, file)) is None:
                    reader = reader or load_reader(config["model_games"])
                    part = measure(game, seed, config, reader, code, bar)
                    _save(parts, file, part)
                else:
                    bar.update(len(part.scores.rewards))
                done[game].append(part)
    every = [part for game in done.values() for part in game]
    swept = handicaps(Scores.join([part.scores for part in done[config["handicap_game"]]]), config)
    return Result(
        name=NAME,
        title=TITLE,
        command=command_line(MODULE, overrides),
        commit=", ".join(sorted({part.commit for part in every})),
        seeds=tuple(config["seeds"]),
        games=sum(part.games for part in every),
        minutes=round(sum(part.seconds for part in every) / 60, 1),
        settings={key: value for key, value in config.items() if key not in ("work", "output")},
        rows=[row(game, parts_of, config) for game, parts_of in done.items()],
        figures={"handicap": swept},
    )


def check(config: Mapping[str, Any]) -> None:
    """Find what is wrong with the config before anything is played."""
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


def decided_by(game: str, seed: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that a part depends on."""
    shared = {key: config[key] for key in ("group", "model_games", "sketch", "random_games")}
    return {"game": game, "seed": seed, "seeds": len(config["seeds"]), **config["games"][game], **shared}


def load_reader(games: Sequence[str]) -> Reader:
    """The tiny model that was made for these games."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from recipe.spiral.models import embedded
    from recipe.spiral.models.measure import Reader
    from recipe.spiral.play.prompts import get_template

    folder = embedded("tiny", games, "chat")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Reader(model, AutoTokenizer.from_pretrained(folder), get_template("chat"))


def _wins(records: Sequence[GameRecord]) -> tuple[int, ...]:
    results = Counter(record.result(0) for record in records)
    return tuple(results[result] for result in ("win", "draw", "loss"))


def _shares(counts: Sequence[tuple[int, ...]]) -> list[float]:
    sums = np.sum(counts, axis=0)
    return [float(share) for share in sums / sums.sum()]


def _save(parts: Parts, file: Path, part: Part) -> None:
    notes = asdict(part)
    parts.save(file, notes.pop("scores"), notes)


def _load(parts: Parts, file: Path) -> Part | None:
    found = parts.load(file)
    return None if found is None else Part(Scores(**found[0]), **found[1])


@hydra.main(config_path="config", config_name="variance", version_base=None)
def main(config: DictConfig) -> None:
    """The entry."""
    from hydra.core.hydra_config import HydraConfig

    from . import pages

    settings: Any = OmegaConf.to_container(config, resolve=True)
    overrides = list(HydraConfig.get().overrides.task)
    try:
        files = pages.publish(run(settings, overrides), settings, overrides)
    except (ValueError, ImportError) as error:
        sys.exit(f"{NAME}: {error}")
    for file in files:
        print(file)


if __name__ == "__main__":
    main()
