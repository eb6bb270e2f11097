"""The page that ``--help`` prints: the settings that a first run needs, the presets, and where the rest stands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

_MORE = """\
+key=value adds a key that verl, vLLM or Ray know besides. --config-dir FOLDER: presets of your own, as in config/.
All settings with their defaults: docs/configuration.md, or --cfg job; Hydra's own flags: --hydra-help.
"""
_PAGES = {
    "spiral_trainer": """\
Train a language model by self-play:  python -m recipe.spiral.main_spiral [+experiment=PRESET] [key=value ...]

  games=[TicTacToe,KuhnPoker]           the games (docs/games.md)
  model=tiny|smollm2_135m|hf            the model; a folder or hub id: model=hf actor_rollout_ref.model.path=...
  trainer.total_training_steps=400      how long
  data.train_batch_size=128             games of a step, or turns with batch_unit=turns
  actor_rollout_ref.actor.optim.lr=1e-6 the learning rate
  trainer.n_gpus_per_node=8             the GPUs of a machine; hardware=cpu|gpu is detected
  fsp.enabled=true                      also play against past selves; opponents=[...]: against others
  seed=0                                decides the games, the opponents' moves and the sampling
  run_dir=outputs/...                   where everything is written; the same command goes on with a run
  dry_run=true                          check the run, estimate its memory, and start nothing

Presets, +experiment=NAME:
{experiment}
Sweeps, -m +sweep=NAME, or any key=value,value with -m:
{sweep}
""",
    "eval": """\
Play policies against opponents:  python -m recipe.spiral.main_eval [key=value ...]

  policies=[outputs/spiral/default]     runs, checkpoints, models or adapters (docs/evaluation.md)
  opponents=[random,perfect]            whom each of them plays
  games=[TicTacToe,KuhnPoker]           the games
  games_per_role=64                     for each pair, game and role
  match_ups=[cross]                     cross, round_robin, own_past
  exploitability.games=[KuhnPoker]      games whose NashConv is computed; optimality.games: shares of optimal moves
  benchmarks.names=[math500]            reasoning benchmarks, with benchmarks.path=FOLDER of their questions
  follow=30                             evaluate the checkpoints of a run as they are written; seconds between looks
  engine=cpu|gpu                        vLLM's settings; detected
  eval_dir=outputs/evaluation/default   where everything is written; the same command goes on with what is left

""",
}


def usage(program: str, folders: Sequence[Path]) -> str:
    """The page of a program, whose presets lie in config folders."""
    return _PAGES[program].format(**{group: _options(group, folders) for group in ("experiment", "sweep")}) + _MORE


def _options(group: str, folders: Sequence[Path]) -> str:
    names = sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})
    return textwrap.fill(", ".join(names), 112, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
