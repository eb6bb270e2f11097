"""Stages ``vllm_v1`` and ``vllm_v2``: vLLM alone, with the settings of the recipe's evaluation.

Answers are greedy ones of the tiny model, one request at a time, so that nothing but the weights decides them. Each
comes with its log-probabilities, and transformers computes the same ones on the CPU in full precision: so whatever the
engine did before (other weights, sleep, adapters), it is known whose weights answer.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recipe.spiral.lab.models import embedded

from .machine import prepare, small_engine
from .stages import Probe

PROMPTS = ("Where do you play?", "You are player 1. [bet] or [pass]?", "X . O", "The board is empty. \\boxed{")
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
#: The largest mean difference between an engine's log-probabilities and transformers' in full precision, in nats, by
#: the engine's type. On a CPU transformers in bfloat16 differs by 0.02, and other weights than are meant by 0.9.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.06}
#: An adapter's settings; it begins with random weights.
LORA = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM", "init_lora_weights": False}

#: A prompt's tokens, a response's, and the log-probabilities of these.
Answer = tuple[list[int], list[int], list[float]]


class Engine:
    """One vLLM engine in a process of its own, with LoRA adapters from folders."""

    def __init__(self, probe: Probe, model: Path, adapters: Sequence[Path] = ()) -> None:
        config = prepare("eval", f"engine={probe.hardware}", "engine.max_num_seqs=64", *small_engine(probe))
        settings = OmegaConf.to_object(config).engine
        for module in settings.modules:
            importlib.import_module(module)
        from vllm import LLM

        from recipe.spiral.lab.evaluation.engines import Served, arguments

        self._probe, self.adapters = probe, tuple(adapters)
        wanted = arguments(Served(model, self.adapters), 512, settings)
        self.llm = LLM(**wanted | {"enable_sleep_mode": not probe.on_cpu})
        dtype = str(self.llm.llm_engine.vllm_config.model_config.dtype).removeprefix("torch.")
        self.tolerance = TOLERANCE.get(dtype, TOLERANCE["bfloat16"])

    def ask(self, prompts: Sequence[str], loras: Sequence[Path | None] = (), **sampling: Any) -> list[Answer]:
        """Responses of 24 tokens to all prompts at once, greedy unless ``sampling`` says otherwise."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 24, **sampling}
        parameters = SamplingParams(**settings, ignore_eos=True, logprobs=0, detokenize=False)
        requests: Any = [path and LoRARequest(str(path), 1 + self.adapters.index(path), str(path)) for path in loras]
        answers = []
        for output in self.llm.generate(prompts, parameters, lora_request=requests or None, use_tqdm=False):
            whole: Any = output.outputs[0]
            log_probs = [given[token].logprob for token, given in zip(whole.token_ids, whole.logprobs, strict=True)]
            answers.append((list(output.prompt_token_ids or ()), list(whole.token_ids), log_probs))
        return answers

    def answers(self, name: str, model: Path, lora: Path | None = None) -> list[Answer]:
        """Greedy answers, one after another. It is checked that these weights gave them."""
        found = [answer for prompt in PROMPTS for answer in self.ask([prompt], [lora] if lora else [])]
        self.judge(name, found, model, lora)
        return found

    def judge(self, name: str, answers: list[Answer], model: Path, lora: Path | None = None) -> None:
        """Check that answers are of these weights."""
        mean = gap(answers, model, lora)
        text = f"log-probabilities differ from transformers' by {mean:.1e} nats (allowed: {self.tolerance:g})"
        self._probe.check(name, mean <= self.tolerance, text)

    def load(self, model: Path) -> None:
        """Other weights of the same architecture, as the opponents' engines take them."""
        self.llm.collective_rpc("reload_weights", timeout=300, kwargs={"weights_path": str(model)})
        self.llm.reset_prefix_cache()

    def sleep(self, name: str, level: int, model: Path, lora: Path | None = None) -> None:
        """Put the engine to sleep and wake it; the same weights answer. On a CPU it cannot sleep."""
        if self._probe.on_cpu:
            return
        with self._probe.attempt(name):
            self.llm.sleep(level=level)
            self.llm.wake_up()
            if level == 2:  # which drops the weights
                self.load(model)
            self.llm.reset_prefix_cache()
            self.answers(name, model, lora)

    def close(self) -> None:
        self.llm.llm_engine.engine_core.shutdown()


def v1(probe: Probe) -> None:
    _stage(probe, "0")


def v2(probe: Probe) -> None:
    if probe.on_cpu:
        probe.skip("Model Runner V2 is for GPUs")
    _stage(probe, "1")


def _stage(probe: Probe, runner: str) -> None:
    os.environ[RUNNER] = runner
    model = embedded("tiny")
    other = other_weights(model, probe.work / "other", seed=1)
    _one_model(probe, model, other)
    _adapters(probe, other, [adapter(other, probe.work / f"adapter-{name}", seed) for seed, name in enumerate("xy")])


def _one_model(probe: Probe, model: Path, other: Path) -> None:
    """An engine that loads weights and sleeps."""
    engine = Engine(probe, model)
    used = bool(engine.llm.llm_engine.vllm_config.use_v2_model_runner)
    probe.check("the engine runs the Model Runner that was asked for", used == (os.environ[RUNNER] == "1"))
    engine.answers("answers", model)
    once, again, others = (engine.ask(PROMPTS, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    tokens = [[answer[1] for answer in sample] for sample in (once, again, others)]
    probe.check("seeded answers repeat, and another seed answers differently", tokens[0] == tokens[1] != tokens[2])
    engine.judge("answers in one batch", engine.ask(PROMPTS * 4), model)
    engine.load(other)
    apart = gap(engine.answers("after reload_weights: the other weights answer", other), model)
    probe.check("the first weights would be noticed", apart > 2 * engine.tolerance, f"{apart:.1e} nats in the mean")
    engine.load(model)
    engine.answers("after reload_weights back: the first weights answer", model)
    engine.sleep("after sleep 2, wake_up, reload_weights", 2, model)
    engine.sleep("after sleep 1, wake_up", 1, model)
    engine.close()


def _adapters(probe: Probe, model: Path, adapters: Sequence[Path]) -> None:
    """An engine with adapters."""
    engine = Engine(probe, model, adapters)
    engine.answers("with LoRA: the base", model)
    for path in adapters:
        engine.answers(f"LoRA: {path.name}", model, path)
    served = (*adapters, None)
    mixed = engine.ask(PROMPTS * len(served), [lora for lora in served for _ in PROMPTS])
    for place, lora in enumerate(served):
        part = mixed[place * len(PROMPTS) : (place + 1) * len(PROMPTS)]
        engine.judge(f"in one batch with the others: {lora.name if lora else 'the base'}", part, model, lora)
    engine.sleep("after sleep 1, wake_up: the adapter", 1, model, adapters[0])
    engine.close()


def gap(answers: Sequence[Answer], model: Path, lora: Path | None = None) -> float:
    """The mean difference of log-probabilities from those that transformers computes of a model, in nats."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if lora is not None:
        loaded = PeftModel.from_pretrained(loaded, lora).eval()
    gaps: list[float] = []
    for prompt, tokens, log_probs in answers:
        with torch.inference_mode():
            logits = loaded(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        true = torch.log_softmax(logits.double(), dim=-1)[range(len(tokens)), tokens].tolist()
        gaps += [abs(ours - theirs) for ours, theirs in zip(log_probs, true, strict=True)]
    return sum(gaps) / len(gaps)


def other_weights(model: Path, folder: Path, seed: int) -> Path:
    """The same model with each of its weights changed; returns ``folder``."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder, copy_function=shutil.copyfile)  # what is installed may not be written to
    torch.manual_seed(seed)
    file = folder / "model.safetensors"
    weights = load_file(file).items()
    changed = {name: w + 0.2 * w.float().std(unbiased=False) * torch.randn_like(w) for name, w in weights}
    save_file(changed, file, {"format": "pt"})
    return folder


def adapter(model: Path, folder: Path, seed: int) -> Path:
    """A LoRA adapter of the model with random weights; returns ``folder``."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    get_peft_model(base, LoraConfig(**LORA)).save_pretrained(folder)
    return folder
