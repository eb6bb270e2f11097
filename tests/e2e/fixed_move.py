"""A model that always plays the same move, whatever it is asked: recognisable wherever it answers."""

from __future__ import annotations

from pathlib import Path

import torch

from recipe.spiral.games import make
from recipe.spiral.players.prompts import get_template

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
