"""The evaluation on a real vLLM: who answers is who was asked, what was killed goes on, and exact metrics in a run are
those of the checkpoint of the same step."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from recipe.spiral.games import make
from recipe.spiral.lab.evaluation.evaluation_folder import TABLES, read_games
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.policy_table import PolicyTable, read_scores, ways
from recipe.spiral.lab.evaluation.exploitability.tabulated import renormalised
from recipe.spiral.lab.evaluation.matches import GameId
from recipe.spiral.lab.evaluation.policy_weights import Scorer, load, of_model
from recipe.spiral.players.prompts import encoder
from recipe.spiral.rollouts.end_tokens import end_tokens
from tests.e2e.conftest import LIMIT, Runs, logged, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
#: What each engine needs here; the config's own would be four times as much.
SMALL = ["engine.max_num_seqs=64", "engine.vllm.kv_cache_memory_bytes=67108864"]


@pytest.fixture(scope="module")
def policies(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path | None]]:
    """A model, two others of its architecture, and an adapter of the first: (model, adapter) by name."""
    import peft
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("policies")
    found: dict[str, tuple[Path, Path | None]] = {"first": (model, None)}
    for seed, name in enumerate(("second", "third"), start=1):
        torch.manual_seed(seed)
        other = AutoModelForCausalLM.from_pretrained(model)
        with torch.no_grad():
            other.lm_head.weight += 0.2 * torch.randn_like(other.lm_head.weight)
        other.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(model).save_pretrained(folder / name)
        found[name] = (folder / name, None)
    torch.manual_seed(9)
    settings = peft.LoraConfig(
        r=8, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False
    )
    peft.get_peft_model(AutoModelForCausalLM.from_pretrained(model), settings).save_pretrained(folder / "lora")
    found["lora"] = (model, folder / "lora")
    return found


def scored(model: Path, adapter: Path | None = None) -> PolicyTable:
    """How a policy plays Kuhn poker, by transformers."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    encode = encoder(tokenizer, "chat", "state")
    scores = of_model(load(model, adapter, "float32"), tuple(end_tokens(model)), 1.0, 16)
    score = Scorer(tokenizer, encode, scores)
    return read_scores(game_tree("KuhnPoker"), score)


def plainly(model: Path) -> np.ndarray[Any, Any]:
    """The same without anything of the evaluation's: each answer by one pass of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    encode, tree, game = encoder(tokenizer, "chat", "state"), game_tree("KuhnPoker"), make("KuhnPoker", 0)
    table = np.zeros(tree.legal.shape)
    for row, found in enumerate(tree.information_sets):
        prompt = encode(found.observation, ())
        for column, action in enumerate(found.actions):
            for text in ways(game, action):
                answer = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
                with torch.inference_mode():
                    log_p = torch.log_softmax(loaded(torch.tensor([[*prompt, *answer]])).logits[0].double(), dim=-1)
                places = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
                table[row, column] += float(log_p[list(places), answer].sum().exp())
    return table


def test_the_exploitability_is_that_of_the_models_own_probabilities(tmp_path: Path, model: Path, runs: Runs) -> None:
    overrides = [f"policies=[{{path: {model}, name: mine}}]", "games_per_role=4", "optimality.games=[]"]
    run = runs.train(tmp_path / "eval", *SMALL, *overrides, program="main_eval")
    results = json.loads((tmp_path / "eval" / "results.json").read_text())
    figures = {row["policy"]: row for row in results["exploitability"]}
    tree = game_tree("KuhnPoker")
    expected = nash_conv(tree, renormalised(tree, plainly(model)))
    assert figures["mine"]["nash_conv"] == pytest.approx(expected, abs=1e-4)
    assert figures["(uniform play)"]["nash_conv"] == pytest.approx(11 / 12)
    assert len(list(read_games(tmp_path / "eval"))) == 32
    assert "mine in KuhnPoker: " in run.output


def games_in(folder: Path) -> int:
    """The number of games so far."""
    try:
        return len(list(read_games(folder)))
    except FileNotFoundError:
        return 0


def test_whoever_is_asked_answers_and_a_kill_loses_nothing(
    tmp_path: Path, policies: dict[str, tuple[Path, Path | None]], runs: Runs
) -> None:
    entries = [
        f"{{name: {name}, path: {adapter or model}, base: {model}}}" if adapter else f"{{name: {name}, path: {model}}}"
        for name, (model, adapter) in policies.items()
    ]
    overrides = [f"policies=[{', '.join(entries)}]", "opponents=[]", "match_ups=[round_robin]", "games=[KuhnPoker]"]
    overrides += ["games_per_role=20", "optimality.games=[]"]
    overrides += ["exploitability.by=samples", "exploitability.samples=200"]
    folder = tmp_path / "eval"
    # few at a time, so that it is not done before it is killed
    first = runs.start(folder, *SMALL, *overrides, "concurrency=4", program="main_eval")
    end = time.monotonic() + LIMIT
    while games_in(folder) < 3:
        assert first.process.poll() is None and time.monotonic() < end, first.output[-4000:]
        time.sleep(0.05)
    children = first.descendants()
    assert children, "vLLM runs in processes of its own"
    first.signal(signal.SIGTERM)
    assert first.wait() == 130, first.output[-4000:]
    assert "the same command goes on" in first.output
    assert not psutil.wait_procs(children, 10)[1], "none of its processes is left"
    played = [GameId.of(record) for record in read_games(folder)]

    runs.train(folder, *SMALL, *overrides, program="main_eval")
    records = list(read_games(folder))
    games = [GameId.of(record) for record in records]
    assert games[: len(played)] == played and len(games) == len(set(games)) == 2 * 20 * 6
    for record in records:
        for turn in record.turns:
            assert turn.tokens is not None and turn.tokens.answered_by == record.players[turn.player]

    tables = {}
    for name, (model, adapter) in policies.items():
        lines = map(json.loads, (folder / TABLES).read_text().splitlines())
        counts = {line["row"]: line["values"] for line in lines if line["policy"] == name}
        sampled = np.array([counts[row] for row in range(12)])[:, :2] / 200
        exact = scored(model, adapter).table
        tables[name] = exact
        # what is said in other ways than the plain ones is in the samples alone
        error = 5 * np.sqrt(exact * (1 - exact) / 200) + 0.03
        assert (np.abs(sampled - exact) < error).all(), f"{name} is answered by another's weights"
    for name, table in tables.items():
        nearest = min(np.abs(table - other).max() for other_name, other in tables.items() if other_name != name)
        assert nearest > 0.2, f"{name} cannot be told from another: this test would not notice a mix-up"


# -- exact metrics in a run --------------------------------------------------------------------------------------------


def test_live_metrics_are_those_of_the_checkpoint(tmp_path: Path, model: Path, runs: Runs) -> None:
    overrides = small(
        model,
        "games=[TicTacToe,KuhnPoker]",
        "validation.exploitability=[KuhnPoker]",
        "validation.optimality=[TicTacToe]",
        "trainer.total_training_steps=2",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "actor_rollout_ref.actor.optim.lr=1e-3",
    )
    run = runs.train(tmp_path / "run", *overrides)
    live = logged(tmp_path / "run", "val-core/KuhnPoker/nash_conv")
    assert sorted(live) == [0, 1, 2]
    assert "validation at step 2: KuhnPoker " in run.output and "p0/lost to perfect" in run.output

    arguments = [
        f"policies=[{{name: run, path: '{tmp_path / 'run'}'}}]",
        "opponents=[]",
        "match_ups=[]",
        "exploitability.games=[KuhnPoker]",
        "optimality.games=[TicTacToe]",
    ]
    runs.train(tmp_path / "eval", *arguments, program="main_eval")
    results: dict[str, Any] = json.loads((tmp_path / "eval/results.json").read_text())
    nash_conv = {row["policy"]: row for row in results["exploitability"]}
    optimal = {row["policy"]: row for row in results["optimality"]}
    for step in (1, 2):
        metrics, name = live[step], f"run/step_{step:06d}"
        kuhn, tictactoe = nash_conv[name], optimal[name]
        for key in ("nash_conv", "value"):
            assert metrics[f"val-core/KuhnPoker/{key}"] == pytest.approx(kuhn[key], abs=1e-6)
        assert metrics["val-core/KuhnPoker/illegal"] == pytest.approx(kuhn["illegal"][0], abs=1e-6)
        assert metrics["val-core/TicTacToe/optimal"] == pytest.approx(tictactoe["optimal"]["share"], abs=1e-6)
        lost = [metrics[f"val-core/TicTacToe/p{role}/lost_to_perfect"] for role in (0, 1)]
        assert lost == pytest.approx(tictactoe["lost_to_perfect"], abs=1e-6)
    assert live[1]["val-core/KuhnPoker/nash_conv"] != live[2]["val-core/KuhnPoker/nash_conv"]
    print({step: data["val-aux/TicTacToe/exact_seconds"] for step, data in live.items()})
