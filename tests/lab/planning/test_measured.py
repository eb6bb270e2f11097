"""The estimate of a trainer's memory, against the peak that the kernel counted of its process on a CPU."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from transformers import AutoConfig, AutoModelForCausalLM

from recipe.spiral import main_spiral
from recipe.spiral.checks.settle import settle
from recipe.spiral.lab.planning import trainer_memory as training
from recipe.spiral.lab.planning.model_size import measure

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Path(main_spiral.__file__).parent / "config"
SHIPPED = next((ROOT / "recipe/spiral/shipped").glob("tiny-*"))
LIMIT = 600.0
#: The form of SmolLM2-135M.
SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
PROMPT, RESPONSE = 192, 64


def random_model(folder: Path, form: dict[str, Any] | None) -> None:
    """Random weights of this form, with the tiny model's tokenizer; None: the tiny model itself."""
    shutil.copytree(SHIPPED, folder)
    if form is not None:
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**form), dtype=torch.float32).save_pretrained(folder)


def composed(folder: Path, ranks: int, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIG), version_base=None):
        config = compose("spiral_trainer", overrides=["hardware=cpu", f"run_dir={folder}", *overrides])
    config.actor_rollout_ref.model.path = str(folder / "model")
    config.trainer.n_gpus_per_node = ranks
    config.data.max_prompt_length, config.data.max_response_length = PROMPT, RESPONSE
    settle(config)
    return config


#: PyTorch's attention, which keeps packed rows apart by a mask of all pairs of tokens; and rows that are not packed.
SDPA = "model.override_config.attn_implementation=sdpa"
PADDED = [SDPA, "model.use_remove_padding=false"]


def kernel(field: str) -> int:
    """Bytes, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def on_a_rank(rank: int, folder: Path) -> None:
    """Two updates, as the optimizer's state exists from the first on; notes the peak of both."""
    sys.modules["tests"] = types.ModuleType("tests")  # not the package of this name that some library installs
    sys.modules["tests"].__path__ = [str(ROOT / "tests")]
    from verl.utils import tensordict_utils as tu

    from recipe.spiral.workers.policy_worker import PolicyWorker
    from tests.workers.test_mini_batch_worker import Row, as_tensordict

    config, tokens = pickle.loads((folder / "task.pkl").read_bytes())
    before = kernel("VmRSS")
    worker = PolicyWorker(config=config, role="actor")
    worker.init_model()
    rows = []
    # Two micro-batches: from the second on there are gradients. Not all rows are of one length, which verl would stack.
    for number in range(2 * tokens // (PROMPT + RESPONSE)):
        length = RESPONSE - number % 2
        prompt, response = torch.randint(3, 300, (PROMPT - number % 2,)), torch.randint(3, 300, (length,))
        rows.append(Row(prompt, response, 1.0, torch.full((length,), -5.0), torch.full((length,), -5.0)))
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    for _ in range(2):
        data = as_tensordict(rows, 0)
        tu.assign_non_tensor(
            data,
            calculate_entropy=False,
            global_batch_size=len(rows),
            mini_batch_size=len(rows) * int(os.environ["WORLD_SIZE"]),
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=1.0,
        )
        worker.update_actor(data)
    if rank == 0:
        (folder / "peak.json").write_text(json.dumps(kernel("VmHWM") - before))
    torch.distributed.destroy_process_group()


def measured(folder: Path, config: DictConfig, tokens: int) -> int:
    """Bytes of the first rank."""
    task = OmegaConf.create(OmegaConf.to_container(config.actor_rollout_ref, resolve=True))
    (folder / "task.pkl").write_bytes(pickle.dumps((task, tokens)))
    ranks = config.trainer.n_gpus_per_node
    environment = {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "recipe.spiral.workers.platforms.cpu",
        "WORLD_SIZE": str(ranks),
        "DIST_INIT_METHOD": f"file://{folder}/store",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        # what is freed is given back at once
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "0",
        "MALLOC_ARENA_MAX": "1",
    }
    started = []
    for rank in range(ranks):
        with (folder / f"output_{rank}.txt").open("w") as output:
            command = ["timeout", str(LIMIT), sys.executable, __file__, str(rank), str(folder)]
            variables = {**os.environ, **environment, "RANK": str(rank)}
            started.append(subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT))
    codes = [process.wait() for process in started]
    printed = [(folder / f"output_{rank}.txt").read_text(errors="replace")[-3000:] for rank in range(ranks)]
    assert codes == [0] * ranks, "\n".join(printed)
    return int(json.loads((folder / "peak.json").read_text()))


@pytest.mark.e2e
@pytest.mark.full
@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize(
    ("form", "ranks", "tokens", "overrides"),
    [
        (None, 1, 32768, []),
        (None, 2, 16384, ["model.enable_gradient_checkpointing=true"]),
        (SMOLLM2, 1, 1024, []),
        (SMOLLM2, 1, 1024, PADDED),
        (SMOLLM2, 1, 2048, [SDPA, "model.enable_gradient_checkpointing=true"]),
        (SMOLLM2, 2, 1024, ["model.enable_gradient_checkpointing=true"]),
        (SMOLLM2, 1, 1024, ["model.lora_rank=16", "model.target_modules=all-linear"]),
        (SMOLLM2, 1, 1024, ["actor.entropy_coeff=0.01"]),
    ],
    ids=[
        "tiny",
        "tiny, two ranks",
        "smollm2",
        "padded",
        "dense mask",
        "smollm2, two ranks",
        "smollm2, LoRA",
        "entropy",
    ],
)
def test_the_estimate_is_the_measured_peak_or_somewhat_more(
    tmp_path: Path, form: dict[str, Any] | None, ranks: int, tokens: int, overrides: list[str]
) -> None:
    random_model(tmp_path / "model", form)
    given = [f"actor_rollout_ref.{override}" for override in overrides]
    config = composed(tmp_path, ranks, f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={tokens}", *given)
    if "entropy" in " ".join(overrides):
        config.actor_rollout_ref.actor.calculate_entropy = True
    parts = training.of(config, measure(config.actor_rollout_ref.model.path))
    peak = measured(tmp_path, config, tokens)
    print(f"estimated {parts.peak / 2**20:.0f} MiB, measured {peak / 2**20:.0f} MiB; {parts}")
    assert 0.9 * peak < parts.peak < 1.5 * peak


if __name__ == "__main__":
    on_a_rank(int(sys.argv[1]), Path(sys.argv[2]))
