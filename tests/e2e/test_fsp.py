"""Past selves and others as opponents in real runs: only the policy learns, members are who they should be, all is
resumed, and an endpoint whose quota is spent ends the run."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from recipe.spiral.games import make
from recipe.spiral.lab.audit.__main__ import main as audit
from recipe.spiral.players.prompts import get_template
from recipe.spiral.players.records import Turn
from tests.e2e.conftest import DETERMINISM, NO_VALIDATION, Run, Runs, check_who_answered, games_of, logged, said, small
from tests.lab.opponents.endpoint import KEY, Endpoint, error, good, send

ANSWER = "\\boxed{[4]}"


def write_fixed_move(model: Path, folder: Path) -> Path:
    """Train a copy of a tiny model until it gives ``ANSWER`` to every observation, with hardly any doubt."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(model)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    answer = [*tokenizer.encode(ANSWER, add_special_tokens=False), tokenizer.eos_token_id]
    prompts = [get_template("chat").encode(tokenizer, text) for text in _observations()]
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
    for _ in range(40):
        optimizer.zero_grad()
        for prompt in prompts:
            ids = torch.tensor([[*prompt, *answer]])
            labels = torch.tensor([[-100] * len(prompt) + answer])
            (policy(input_ids=ids, labels=labels).loss / len(prompts)).backward()
        optimizer.step()
    policy.save_pretrained(folder)
    return folder


def _observations() -> list[str]:
    """Of games in the beginning and later."""
    found = []
    for game_id in ("TicTacToe", "KuhnPoker"):
        for seed in range(6):
            game = make(game_id, seed)
            for _ in range(seed % 3 + 1):
                found.append(game.observation(game.current_player))
                game.step(game.legal_actions()[seed % len(game.legal_actions())])
                if game.is_terminal:
                    break
    return found


pytestmark = [pytest.mark.e2e, pytest.mark.full]
STEPS = 30


def pool(model: Path, *overrides: str) -> list[str]:
    return small(
        model,
        "seed=5",
        *DETERMINISM,
        "fsp.enabled=true",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=8",
        *NO_VALIDATION,
        *overrides,
    )


def test_many_members_through_a_small_pool_killed_while_one_is_written(tmp_path: Path, model: Path, runs: Runs) -> None:
    """Two members a step, one new member a step; the killed run is the one that was not interrupted."""
    settings = pool(model, "fsp.update_interval=1", "fsp.size=4", "fsp.members_per_step=2", "fsp.sample=hard")
    runs.train(tmp_path / "whole", *settings)
    moment, hits = random.Random(3), 0
    for _ in range(4):
        killed = runs.start(tmp_path / "killed", *settings)
        hits += kill_in_a_refresh(killed, after=moment.randrange(9, 13))
        if hits == 2:
            break
    assert hits, "no kill met a refresh"
    runs.train(tmp_path / "killed", *settings)

    mine, others = games_of(tmp_path / "whole"), games_of(tmp_path / "killed")
    assert list(map(said, mine)) == list(map(said, others))
    assert state(tmp_path / "whole") == state(tmp_path / "killed")
    assert audit([str(tmp_path / "whole")]) == 0 and audit([str(tmp_path / "killed")]) == 0
    check_who_answered(mine)
    roles = Counter(record.trainable for record in mine if record.opponent == "pool" and record.discarded is None)
    assert abs(roles[0,] + roles[1,] - 8 * STEPS) < 2 * STEPS and abs(roles[0,] - roles[1,]) < STEPS
    members = {name for record in mine if record.opponent == "pool" for name in record.players} - {"policy"}
    assert len(members) > 15
    for measured in logged(tmp_path / "whole").values():
        assert measured["fsp/size"] <= 4.0
        # a row that the policy did not sample would not have its probabilities
        assert measured["training/rollout_probs_diff_max"] < 1e-3
    assert 4 <= len(list((tmp_path / "whole/pool").iterdir())) <= 6, "who leaves and plays stays until the next joins"


def kill_in_a_refresh(run: Run, after: int) -> bool:
    """SIGKILL while a member is being written, in a step after ``after``; returns whether one was.

    All processes at once, as when a machine goes down: without its driver, the others would write it to the end.
    """
    run.wait_for(rf"^step *{after}/{STEPS} ")
    end = time.monotonic() + 20.0
    while time.monotonic() < end and not any((run.run_dir / "pool").glob(".*")):
        time.sleep(0.0005)
    run.kill()
    run.wait()
    return any((run.run_dir / "pool").glob(".*"))


def state(run_dir: Path) -> object:
    return json.loads((run_dir / f"checkpoints/global_step_{STEPS}/spiral.json").read_text())["league"]


@pytest.fixture(scope="module")
def fixed_move(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that always gives one answer."""
    return write_fixed_move(model, tmp_path_factory.mktemp("members") / "fixed")


def test_a_member_is_recognised_in_its_own_games_and_nowhere_else(
    tmp_path: Path, model: Path, fixed_move: Path, runs: Runs
) -> None:
    runs.train(
        tmp_path / "run",
        *pool(model, f"fsp.initial=[{fixed_move}]", "fsp.update_interval=2", "fsp.members_per_step=2"),
        "trainer.total_training_steps=4",
    )
    records = games_of(tmp_path / "run")
    check_who_answered(records)
    runs.train(tmp_path / "alone", *pool(model, "fsp.enabled=false"), "trainer.total_training_steps=4")
    of_member = [turn for record in records for turn in record.turns if turn.tokens.answered_by == "given-fixed"]
    others = [turn for record in records for turn in record.turns if turn.tokens.answered_by != "given-fixed"]
    assert of_member and rate(of_member) > 0.9, "it gives one answer, but for a token in a hundred"
    assert rate(others) < 1.5 * rate([turn for record in games_of(tmp_path / "alone") for turn in record.turns]) + 0.05
    assert {record.opponent for record in records if "given-fixed" in record.players} == {"pool"}
    assert audit([str(tmp_path / "run")]) == 0


def rate(turns: list[Turn]) -> float:
    return sum(turn.response == ANSWER for turn in turns) / len(turns)


def test_opponents_of_every_kind_at_once(tmp_path: Path, model: Path, fixed_move: Path, runs: Runs) -> None:
    """Batches of turns, against the pool, a frozen model, an endpoint that dies after the question before the run, and
    others; draws are played again."""
    endpoint = Endpoint(good(), error(500))
    entries = [
        f"{{kind: model, name: frozen, path: {fixed_move}, share: 0.15}}",
        "{kind: random, share: 0.1}",
        "{kind: perfect, share: 0.1}",
        f"{{kind: api, name: dead, model: m, base_url: '{endpoint.url}', api_key_env: null, share: 0.1, retries: 0}}",
    ]
    run = runs.start(
        tmp_path / "run",
        *pool(model, "fsp.ratio=0.3", "fsp.update_interval=1", f"opponents=[{', '.join(entries)}]"),
        "batch_unit=turns",
        "data.train_batch_size=48",
        "draw_retry.enabled=true",
        "validation.opponents=[perfect]",
        "trainer.test_freq=3",
        "trainer.total_training_steps=3",
    )
    with endpoint.serving():
        assert run.wait() == 0, run.output[-4000:]
    records = games_of(tmp_path / "run")
    trained = [record for record in records if record.discarded is None]
    assert {record.opponent for record in trained} - {"dead"} == {"self", "pool", "frozen", "random", "perfect"}
    # the policy's first answer may be illegal: then the game is over before the endpoint is asked
    against_dead = [record for record in trained if record.opponent == "dead"]
    assert {turn.player for record in against_dead for turn in record.turns} <= {0}
    assert all(record.trainable == (0,) for record in against_dead)
    voids = [record for record in records if record.discarded == "void"]
    assert voids and {record.opponent for record in voids} == {"dead"}
    assert any(record.discarded == "draw" for record in records)
    validation = games_of(tmp_path / "run", "val")
    assert {name for record in validation for name in record.players} == {"policy", "perfect"}
    assert all(record.rewards[record.trainable[0]] <= 0 for record in validation if record.game == "TicTacToe")
    assert audit([str(tmp_path / "run")]) == 0


WORDS = "You exceeded your current quota, please check your plan and billing details."


def test_a_run_says_what_an_endpoint_says_and_stops(tmp_path: Path, model: Path, runs: Runs) -> None:
    refusal = json.dumps({"error": {"message": f"{WORDS} ({KEY})", "code": "insufficient_quota"}}).encode()
    endpoint = Endpoint(*(good() for _ in range(20)), send(429, refusal))
    with endpoint.serving():
        entry = f"{{kind: api, name: gpt, model: m, base_url: '{endpoint.url}', api_key_env: SOME_KEY, share: 0.25}}"
        settings = [f"opponents=[{entry}]", "trainer.total_training_steps=30", "validation.opponents=[random]"]
        run = runs.start(tmp_path / "run", *small(model, *settings), environment={"SOME_KEY": KEY})
        assert run.wait() == 3, run.output[-4000:]
    assert WORDS in run.last_line and "by max_void_steps=3: gpt: " in run.last_line
    assert f"games were void, the first: m: HTTP 429: {WORDS} (***)" in run.output
    assert len(endpoint.requests) < 200, "a few in each step by each process, with their retries"
    assert (tmp_path / "run/checkpoints/latest_checkpointed_iteration.txt").is_file()
    assert KEY not in run.output
    assert not any(KEY.encode() in file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
