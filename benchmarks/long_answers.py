"""Makes a model whose answers are as long as one likes and end anywhere, for measurements of how games are played.

    python benchmarks/long_answers.py FOLDER [--tokens 32]

A tiny model answers with its action alone, in four tokens. This one has the form and the tokenizer of the embedded one
and random weights, with which all tokens are nearly equally likely. One in so many of them is an action of Pig in its
box, and ends the answer. So the games go on, and the answers' lengths are geometrically distributed. Pig is played for
six turns; one game in thirty ends earlier, by the token that ends the sequence without an action.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

GAME, ACTIONS, TURNS = "PigDice", ("[roll]", "[hold]"), 6
#: Room for a prompt of Pig, in tokens; and for an answer, in means: one in four hundred is cut off, and ends its game.
PROMPT, LONGEST = 256, 6
#: Means that the vocabulary allows: of 640 tokens, some must end an answer.
SHORTEST_MEAN, LONGEST_MEAN = 2, 128


def make(folder: Path, tokens: int) -> None:
    """Write the model into a folder; its answers have so many tokens in the mean.

    Raises:
        ValueError: its vocabulary allows no such mean.
    """
    if not SHORTEST_MEAN <= tokens <= LONGEST_MEAN:
        raise ValueError(f"answers of {tokens} tokens in the mean: must be {SHORTEST_MEAN} to {LONGEST_MEAN}")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    from recipe.spiral.lab.models import embedded

    tiny = embedded("tiny", ["TicTacToe", "KuhnPoker"], "chat")
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    known = len(tokenizer)
    # an action in its box is read without the spaces before it
    ends = [rf"\boxed{{{' ' * (i // 2)}{ACTIONS[i % 2]}}}" for i in range(round(known / (tokens - 1)))]
    tokenizer.add_tokens(ends)
    config = AutoConfig.from_pretrained(tiny)
    config.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id, *range(known, len(tokenizer))], pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def overrides(folder: Path, tokens: int) -> list[str]:
    """For a run that plays with the model and leaves it as it is."""
    return [
        f"actor_rollout_ref.model.path={folder}",
        f"games=[{GAME}]",
        f"rules.turn_cap={TURNS}",
        f"data.max_prompt_length={PROMPT}",
        f"data.max_response_length={LONGEST * tokens}",
        f"actor_rollout_ref.rollout.max_model_len={PROMPT + LONGEST * tokens}",
        "actor_rollout_ref.actor.optim.lr=1e-9",
        "actor_rollout_ref.actor.use_kl_loss=false",
        "num_mini_batches=1",
        "validation.exploitability=[]",
        "validation.optimality=[]",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="where the model is written to")
    parser.add_argument("--tokens", type=int, default=32, help="of an answer, in the mean (32)")
    arguments = parser.parse_args()
    try:
        make(arguments.folder, arguments.tokens)
    except ValueError as error:
        parser.error(str(error))
    print("overrides:", *overrides(arguments.folder.resolve(), arguments.tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main())
