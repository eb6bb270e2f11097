"""Checkpoints as verl's FSDP workers and SPIRAL's trainer write them, of a small model, without a training.

Beside each run lies, in ``model``, what transformers itself saves of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

KINDS = ("untied", "tied", "lora", "lora_only")
STEP = 7
CONFIG = """\
seed: 3
games: [KuhnPoker, {id: TicTacToe, weight: 2}]
prompt: {template: chat}
run_dir: ${spiral_verl:unknown}
trainer: {project_name: spiral, experiment_name: made}
actor_rollout_ref: {model: {path: null, lora_rank: 4, lora_alpha: 12, target_modules: all-linear}}
"""


def small_model(folder: Path, tie: bool, dtype: str) -> None:
    """A Qwen3 of a few thousand parameters, saved with its tokenizer, a chat template and a generation config."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    from recipe.spiral.games import make
    from recipe.spiral.lab.models.tiny import train_tokenizer

    tokenizer = train_tokenizer([make(game, 0).observation(0) for game in ("KuhnPoker", "TicTacToe")], max_length=512)
    torch.manual_seed(0)
    ids: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=101,  # two ranks hold unequal parts
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=tie,
        bos_token_id=None,
        **ids,
    )
    model = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    model.generation_config = GenerationConfig(do_sample=True, temperature=0.7, top_k=5, top_p=0.9, **ids)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_run(run: Path, kind: str) -> None:
    """One run with one checkpoint, by all ranks of the process group together."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
    from verl.utils.fsdp_utils import apply_fsdp2

    from recipe.spiral.storage.checkpoints import TRACKER, seal, write_state

    original = run / "model"
    if dist.get_rank() == 0:
        small_model(original, tie=kind in ("tied", "lora"), dtype="bfloat16" if kind == "tied" else "float32")
    dist.barrier()
    model: Any = AutoModelForCausalLM.from_pretrained(original)
    if kind.startswith("lora"):
        from peft import LoraConfig, TaskType, get_peft_model

        torch.manual_seed(1)
        model.enable_input_require_grads()
        target = "all-linear" if kind == "lora" else ["q_proj", "v_proj"]
        config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=12, target_modules=target, bias="none")
        model = get_peft_model(model, config)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        if dist.get_rank() == 0:
            model.save_pretrained(run / "adapter")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    apply_fsdp2(model, {"mesh": mesh}, {})
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    folder = run / "checkpoints" / f"global_step_{STEP}"
    contents = ["model", "optimizer", "extra"]
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        lr_scheduler=torch.optim.lr_scheduler.ConstantLR(optimizer),
        processing_class=AutoTokenizer.from_pretrained(original),
        checkpoint_config={"save_contents": contents, "load_contents": contents, "save_lora_only": kind == "lora_only"},
    )
    manager.save_checkpoint(str(folder / "actor"), global_step=STEP)
    if dist.get_rank() == 0:
        baselines = {"values": [["KuhnPoker", 0, "self", 0.1], ["TicTacToe", 0, "self", 0.2]]}
        state = {"step": STEP, "ranks": dist.get_world_size(), "settings": {"seed": 3}, "baselines": baselines}
        write_state(folder, state)
        torch.save({}, folder / "data.pt")
        (run / "checkpoints" / TRACKER).write_text(str(STEP))
        (run / "config.yaml").write_text(CONFIG)
        # what a training on GPUs notes
        config_file = folder / "actor" / "huggingface" / "config.json"
        noted = json.loads(config_file.read_text())
        config_file.write_text(json.dumps({**noted, "attn_implementation": "flash_attention_2"}))
        seal(folder)


def on_a_rank(rank: int, folder: Path) -> None:
    """One run of each kind, by this rank of `tests/ranks.py` with the others."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder / f'meeting-{ranks}'}", rank=rank, world_size=ranks)
    try:
        for kind in KINDS:
            save_run(folder / kind, kind)
    finally:
        dist.destroy_process_group()
