"""The tiny model: its texts and tokens, its folder, and (marked ``full``) that it is what it is meant to be."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.games import make
from recipe.spiral.lab.models import embedded, read_back, tiny
from recipe.spiral.lab.models.__main__ import main as command_line
from recipe.spiral.lab.models.read_back import hold_out, made_up, random_play
from recipe.spiral.lab.models.warm_start import Criteria, NotGoodEnough, Schedule, shares
from recipe.spiral.players.prompts import boxed, get_template

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from recipe.spiral.lab.models.forest import Scored, Tree, log_probs  # noqa: E402
from recipe.spiral.lab.models.sampler import Sampler  # noqa: E402

ALL = ("TicTacToe", "KuhnPoker", "KuhnPoker-5")
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "layers": 2,
    "schedule": Schedule(steps=4, rounds=1, observations=4, questions=2, play_games=4),
    "accept": True,
    "progress": False,
}


@pytest.fixture(scope="module")
def small(of_the_session: Path) -> Path:
    """A very small model that was trained for a few steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "POSITION_GAMES", 300)  # to play thousands takes longer than all else here
        patch.setattr(tiny, "MADE_UP", 200)
        return tiny.ensure(ALL, cache=of_the_session / "models", **SMALL)


@pytest.fixture(scope="module")
def tokenizer(small: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(small)


@pytest.fixture(scope="module")
def model(small: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(small).eval()


def test_the_tokenizer_writes_any_text_and_reads_it_back(tokenizer: Any) -> None:
    for text in ("Answer with [check] or [bet].", "X4 | 5 | O6\n", "déjà vu, 東京 \\boxed{[42]}  \n\n\t", ""):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    assert len(tokenizer) % 64 == 0


def test_what_varies_is_one_token_each(tokenizer: Any) -> None:
    def pieces(text: str) -> list[str]:
        return [tokenizer.decode([token]) for token in get_template("chat").encode(tokenizer, text)]

    game = make("TicTacToe", 0)
    for square in (4, 0, 8):
        game.step(f"[{square}]")
    found = pieces(game.observation(1))
    board = ["O0", "1", "2", "3", "X4", "5", "6", "7", "X8"]
    places = [found.index(cell) for cell in board]
    assert [b - a for a, b in itertools.pairwise(places)] == [2] * 8, "fixed places, one separator between"
    for card in "JQK":
        kuhn = make("KuhnPoker", 0)
        kuhn.cards = (card, "?")  # type: ignore[attr-defined]
        found = pieces(kuhn.observation(0))
        assert found[found.index("Your card: ") + 1] == card
    for game_id in ALL:
        for action in make(game_id, 0).actions:
            ids = tokenizer.encode(boxed(action), add_special_tokens=False)
            assert [tokenizer.decode([token]) for token in ids] == ["\\boxed{[", action[1:-1], "]}"]


def test_prompts_are_short_and_end_with_the_assistants_turn(tokenizer: Any) -> None:
    longest = {}
    for game_id in ALL:
        prompts = [
            get_template("chat").encode(tokenizer, seen.observation) for seen in random_play(game_id, 50, seed=1)
        ]
        longest[game_id] = max(map(len, prompts))
        assert all(tokenizer.decode(prompt).endswith("<|im_end|>\n<|im_start|>assistant\n") for prompt in prompts)
    assert longest["TicTacToe"] <= 40 and longest["KuhnPoker"] <= 40 and longest["KuhnPoker-5"] <= 90


def test_an_earlier_answer_is_read_as_it_is_written(tokenizer: Any) -> None:
    """In a dialogue: token for token what a response is, its end token included."""
    answer = tokenizer.encode(boxed("[4]"), add_special_tokens=False)
    seen = make("TicTacToe", 0).observation(0)
    single = get_template("chat").encode(tokenizer, seen)
    newline = tokenizer.encode("\n", add_special_tokens=False)
    whole = get_template("chat").encode(tokenizer, seen, ((seen, "[4]"),))
    assert whole == [*single, *answer, tokenizer.eos_token_id, *newline, *single]


@pytest.mark.parametrize("game_id", ALL)
def test_questions_are_about_what_the_observation_says(game_id: str) -> None:
    for seen in random_play(game_id, 30, seed=2):
        for question in seen.questions:
            assert seen.observation in question.about(seen.observation)
            word = question.answer[1:-1]
            if question.kind == "card":
                assert f"Your card: {word}\n" in seen.observation
            elif question.kind == "mark":
                assert f"You are {word}," in seen.observation
            elif question.kind == "square":
                square = question.text[-2]
                assert (f"{word}{square}" in seen.observation) == (word != "free")
            elif question.kind == "last action":
                history = seen.observation.split("So far: ")[1].splitlines()[0]
                assert history.endswith(question.answer) or (history, word) == ("nothing", "none")


def test_held_out_positions_are_never_trained_on() -> None:
    for game_id in ALL:
        train, held_out = hold_out(random_play(game_id, 300, seed=0), most=50)
        assert 3 <= len(held_out) <= 50
        known = {seen.observation for seen in held_out}
        invented = made_up(game_id, 500, seed=0, without=held_out)
        assert bool(invented) == (game_id == "KuhnPoker"), "for games with few positions"
        assert not known & {seen.observation for seen in train + invented}


def test_random_play_is_seeded_and_leaves_the_global_generator_alone() -> None:
    state = random.getstate()
    assert random_play("KuhnPoker-5", 20, seed=3) == random_play("KuhnPoker-5", 20, seed=3)
    assert random_play("KuhnPoker-5", 20, seed=3) != random_play("KuhnPoker-5", 20, seed=4)
    assert random.getstate() == state


def test_the_folder_is_a_hugging_face_model(small: Path, model: Any, tokenizer: Any) -> None:
    config = model.config
    assert config.architectures == ["Qwen3ForCausalLM"] and config.head_dim == 32
    assert config.vocab_size == len(tokenizer) and not config.tie_word_embeddings
    assert config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.num_parameters() < 5_000_000
    figures = json.loads((small / tiny.FIGURES).read_text())
    assert figures["parameters"] == model.num_parameters() and figures["steps"] == 4
    assert {"KuhnPoker/card", "TicTacToe/square"} <= set(figures["read_back"])
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert model.generate(**ids, max_new_tokens=3).shape[1] <= ids["input_ids"].shape[1] + 3


def test_the_cache_finds_the_same_and_only_the_same(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, before = small.parent, (small / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(tiny, "build", lambda *_: pytest.fail("built again"))
    assert tiny.ensure(["KuhnPoker-v1", "KuhnPoker", "TicTacToe"], cache=cache, **SMALL) == small
    assert (small / "model.safetensors").stat().st_mtime_ns == before


def test_every_input_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = tiny.Spec(("KuhnPoker",))
    others = [
        replace(spec, games=("KuhnPoker", "KuhnPoker-5")),
        replace(spec, template="qwen3"),
        replace(spec, seed=1),
        replace(spec, hidden_size=64),
        replace(spec, layers=3),
        replace(spec, games=("KuhnPoker", "TicTacToe"), lines=True),
        replace(spec, games=("KuhnPoker", "TicTacToe")),
        replace(spec, schedule=Schedule(steps=1)),
        replace(spec, criteria=Criteria(legal=0.5)),
    ]
    names = {other.name for other in (spec, *others)}
    monkeypatch.setattr("recipe.spiral.games.kuhn_poker.RULES", "Another text.")
    names.add(replace(spec).name)
    monkeypatch.setattr(tiny, "VERSION", -1)
    names.add(replace(spec).name)
    assert len(names) == len(others) + 3


def test_a_broken_model_is_made_again(tmp_path: Path) -> None:
    folder = tiny.ensure(["KuhnPoker"], cache=tmp_path, **SMALL)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert tiny.ensure(["KuhnPoker"], cache=tmp_path, **SMALL) == folder
    assert (folder / "model.safetensors").read_bytes() == weights, "same seed, same weights"


def test_the_seed_decides_the_weights_and_nothing_else_is_touched(tmp_path: Path) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.manual_seed(7)
    first = tiny.ensure(["KuhnPoker"], cache=tmp_path / "1", **SMALL)
    torch.manual_seed(8)
    after = torch.get_rng_state()
    again = tiny.ensure(["KuhnPoker"], cache=tmp_path / "2", **SMALL)
    assert torch.equal(torch.get_rng_state(), after) and torch.get_num_threads() == threads
    other = tiny.ensure(["KuhnPoker"], seed=1, cache=tmp_path / "1", **SMALL)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (first, again, other)]
    assert weights[0] == weights[1] != weights[2]
    torch.set_rng_state(state)


def test_a_model_that_is_not_good_enough_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NotGoodEnough, match=r"KuhnPoker/card read back .*% right, at least 99.0% wanted.* another seed"
    ):
        tiny.ensure(["KuhnPoker"], cache=tmp_path, **{**SMALL, "accept": False})
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"games": ["Chess"]}, "unknown game 'Chess'"),
        ({"games": ["Nim"]}, "no read-back questions for Nim"),
        ({"games": []}, "name at least one game"),
        ({"template": "nonsense"}, "known templates"),
        ({"hidden_size": 100}, "must be a multiple of 32"),
        ({"layers": 0}, "must be at least 1"),
    ],
)
def test_bad_input_is_named_before_anything_is_made(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.ensure(cache=tmp_path / "cache", **wrong)
    assert not (tmp_path / "cache").exists()


def test_embedded_names_the_known_models() -> None:
    with pytest.raises(ValueError, match=r"^'huge': unknown.*tiny, tiny_lines, smollm2_135m"):
        embedded("huge", ["KuhnPoker"], "chat")


def test_the_model_that_was_asked_about_lines_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(tiny, "ensure", lambda *args, **kwargs: asked.append(kwargs) or Path("there"))
    for name in ("tiny", "tiny_lines"):
        embedded(name, ["TicTacToe"], "chat")
    assert [options["lines"] for options in asked] == [False, True]
    assert command_line(["tiny", "--lines"]) == command_line(["tiny"]) == 0
    assert [options["lines"] for options in asked[2:]] == [True, False]


def test_without_lines_the_name_is_as_it_was_before_there_were_any() -> None:
    spec = tiny.Spec(("KuhnPoker",))
    prompt = asdict(get_template("chat"))
    del prompt["examples"]
    whole = {"version": tiny.VERSION, **asdict(spec), "prompt": prompt, "texts": spec.texts}
    del whole["lines"]
    assert spec.name == f"tiny-{hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]}"


def test_a_tree_gives_the_log_probabilities_of_its_sequences(model: Any) -> None:
    rng = random.Random(0)
    prompts = [[rng.randrange(5) for _ in range(rng.randint(1, 6))] for _ in range(12)]
    sequences = [Scored(prompt, [rng.randrange(5) for _ in range(rng.randint(1, 4))]) for prompt in prompts]
    trees = [Tree.of(sequences[:7]), Tree.of(sequences[7:])]
    assert sum(len(tree.tokens) for tree in trees) < sum(len(s.prompt_ids + s.response_ids) for s in sequences)
    with torch.no_grad():
        together = log_probs(model, trees)
        alone = []
        for prompt, response, _ in sequences:
            logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
            alone.append(logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None])[:, 0])
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_the_sampler_samples_the_models_distribution_seed_by_seed(model: Any, tokenizer: Any) -> None:
    sampler = Sampler(model, tokenizer.eos_token_id, max_tokens=3)
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8], [9, 10]]

    async def ask(some: list[int]) -> list[list[int]]:
        answers = [sampler.generate(prompts[i], {"seed": i}) for i in some]
        return [answer.tokens.response_ids for answer in await asyncio.gather(*answers)]

    together = asyncio.run(ask([0, 1, 2, 3]))
    assert together == [asyncio.run(ask([i]))[0] for i in range(4)], "the same whatever runs beside it"
    with torch.no_grad():
        expected = model(torch.tensor([[1, 2, 3]])).logits[0, -1].softmax(-1)
    draws = Sampler(model, tokenizer.eos_token_id, max_tokens=1).sample([[1, 2, 3]] * 4000, list(range(4000)))
    drawn = torch.tensor([draw.tokens.response_ids[0] for draw in draws])
    counts = torch.zeros(len(expected)).index_add_(0, drawn, torch.ones(4000))
    assert (counts / 4000 - expected).abs().max() < 0.03
    tokens, truncated = draws[0]
    (token,) = tokens.response_ids
    assert tokens.log_probs is not None and abs(tokens.log_probs[0] - expected[token].log()) < 1e-3
    assert truncated == (token != tokenizer.eos_token_id)


def test_an_error_while_sampling_reaches_every_game(tokenizer: Any) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("out of memory")

    broken.device = torch.device("cpu")  # type: ignore[attr-defined]
    sampler = Sampler(broken, tokenizer.eos_token_id, max_tokens=1)  # type: ignore[arg-type]

    async def ask() -> list[Any]:
        return await asyncio.gather(
            sampler.generate([1], {"seed": 0}), sampler.generate([2], {"seed": 1}), return_exceptions=True
        )

    assert [str(error) for error in asyncio.run(ask())] == ["out of memory"] * 2


def test_a_plain_template_works_as_well(tmp_path: Path) -> None:
    folder = tiny.ensure(["KuhnPoker"], template="octothinker", cache=tmp_path, **SMALL)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompt = get_template("octothinker").encode(tokenizer, make("KuhnPoker", 0).observation(0))
    assert len(prompt) < 60


def test_help_is_quick_and_output_must_be_new(tmp_path: Path) -> None:
    code = "import sys; from recipe.spiral.lab.models.__main__ import parser; parser(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
    done = subprocess.run(
        [sys.executable, "-m", "recipe.spiral.models", "tiny", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "exists already" in done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "recipe.spiral.models", "tiny", "--games", "Kuhn"], capture_output=True, text=True
    )
    assert done.returncode == 2 and "Did you mean 'KuhnPoker'?" in done.stderr and "Traceback" not in done.stderr


def test_made_up_positions_answer_for_themselves() -> None:
    game = make("KuhnPoker", 0)
    assert read_back.make_up(game, random.Random(0))
    answers = {q.kind: q.answer for q in read_back.questions(game, game.current_player)}
    assert f"Your card: {answers['card'][1:-1]}\n" in game.observation(game.current_player)
    assert not read_back.make_up(make("TicTacToe", 0), random.Random(0))
    assert made_up("TicTacToe", 5, 0, []) == []


def test_a_small_game_keeps_its_share_of_the_warm_start() -> None:
    assert shares({"KuhnPoker": 9}, 32) == {"KuhnPoker": 32}
    assert shares({"KuhnPoker": 9, "TicTacToe": 3975}, 32) == {"KuhnPoker": 7, "TicTacToe": 25}
    three = shares({"KuhnPoker": 9, "TicTacToe": 3975, "SimpleNegotiation": 24488}, 32)
    assert three == {"KuhnPoker": 6, "TicTacToe": 13, "SimpleNegotiation": 16}
    assert min(shares({str(number): 1 for number in range(9)}, 4).values()) == 1


def test_more_games_are_learned_for_longer() -> None:
    assert Schedule.of(1) == Schedule.of(2) == Schedule()
    assert Schedule.of(4).steps - Schedule.of(3).steps == Schedule.of(3).steps - Schedule.of(2).steps > 0


def test_a_line_is_where_a_mark_would_win() -> None:
    rng, kinds = random.Random(0), set()
    for _ in range(200):
        game: Any = make("TicTacToe", 0)
        for _ in range(rng.randrange(9)):
            if not game.is_terminal:
                game.step(game.random_action(rng))
        if game.is_terminal:
            continue
        player = game.current_player
        winning = {}
        for who, owner in (("you", player), ("your opponent", 1 - player)):
            found = []
            for square in (place for place, taken in enumerate(game.board) if taken is None):
                game.board[square] = owner
                found += [f"[{square}]"] if game.winner == owner else []
                game.board[square] = None
            winning[f"Which square would make three in a row for {who}?"] = found
        asked = read_back.line_questions(game, player)
        assert {q.text for q in asked} == {text for text, found in winning.items() if len(found) < 2}
        assert all(q.answer == (winning[q.text] or ["[none]"])[0] for q in asked)
        assert all((q.kind == "line") == bool(winning[q.text]) for q in asked)
        kinds |= {q.kind for q in asked}
    assert kinds == {"line", "no line"}
    assert read_back.line_questions(make("KuhnPoker", 0), 0) == []


def test_lines_are_asked_about_only_where_that_is_said() -> None:
    without, with_lines = (
        {q.kind for seen in random_play("TicTacToe", 9, 0, lines) for q in seen.questions} for lines in (False, True)
    )
    assert with_lines - without == {"line", "no line"}
    assert Schedule.of(1, lines=True).steps > Schedule.of(1).steps
    with pytest.raises(ValueError, match="the games must have TicTacToe, not only KuhnPoker"):
        tiny.Spec(("KuhnPoker",), lines=True)


def test_negotiation_is_asked_about_worth_goods_and_the_offer() -> None:
    game = make("SimpleNegotiation", 0)
    game.step("[offer: 3 Wood -> 2 Gold]")
    asked = {(q.kind, q.text): q.answer for q in read_back.questions(game, 1)}
    assert asked["get", "What would you get?"] == "[3 Wood]" and asked["give", "What would you give?"] == "[2 Gold]"
    assert asked["goods", "How many Gold do you have?"] == "[10]"
    worth = game.values[1]["Gold"]  # type: ignore[attr-defined]
    assert asked["worth", "What is one Gold worth to you?"] == f"[{worth}]"
    waiting = {q.kind: q.answer for q in read_back.questions(game, 0)}
    assert waiting["get"] == waiting["give"] == "[none]", "no offer of one's own is one's to take"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("games", [tiny.DEFAULT_GAMES, ("KuhnPoker",), ("KuhnPoker-5",), ("TicTacToe",)])
def test_what_the_warm_start_promises(tmp_path: Path, games: tuple[str, ...]) -> None:
    """Built from nothing: over 95% of turns legal in play, at least 99% read back, no better than random play."""
    folder = tiny.ensure(games, cache=tmp_path, force=True, progress=False)
    figures = json.loads((folder / tiny.FIGURES).read_text())
    assert figures["missed"] == [] and figures["parameters"] < 5_000_000
    assert all(right >= 0.99 for right in figures["read_back"].values())
    for matchups in figures["in_play"].values():
        assert all(matchups[name]["legal"] > 0.95 for name in ("self", "p0", "p1"))
        assert matchups["p0"]["win"] < matchups["random"]["win"] + 0.12
        assert matchups["p1"]["win"] < matchups["random"]["loss"] + 0.12
