"""What the trainer of one GPU takes: the state of its shard, and what a micro-batch needs. All in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ...processes.attention import FLASH, PACKED
from ...workers.portions import ELEMENTS, ROWS
from .model_size import ModelSize

#: Bytes of an element.
WIDTHS = {"fp32": 4, "float32": 4, "32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2, "16": 2}
FULL = 4


def width(name: Any, default: str = "bf16") -> int:
    """Bytes of an element of this type."""
    return WIDTHS.get(str(name or default).removeprefix("torch."), FULL)


@dataclass(frozen=True)
class Training:
    """What one rank takes: its shards, and what a micro-batch and the optimizer need besides."""

    weights: int
    gradients: int  # from a backward pass to the optimizer's step
    optimizer: int
    update: int  # what the optimizer's step takes besides
    gathered: int  # weights and gradients of the root and of two layers, as they are gathered for computing
    activations: int  # what is kept for the backward pass, with one layer as it is computed again
    logits: int  # with their gradient and what is computed from them
    on_host: int  # the shards that lie in the host's memory while games are played
    offloaded: int  # those that always do
    reference: int  # the reference policy's shard; on the host beside a GPU

    @property
    def peak(self) -> int:
        """The larger of a micro-batch and the optimizer's step."""
        state = self.weights + self.gradients + self.optimizer
        return state + max(self.gathered + self.activations + self.logits, self.update)

    @property
    def resident(self) -> int:
        """While games are played."""
        return self.weights + self.optimizer - self.on_host


def shards(config: DictConfig, fsdp: DictConfig) -> int:
    """The number of ranks that share the weights."""
    ranks = int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes)
    return min(ranks, int(fsdp.fsdp_size)) if int(fsdp.fsdp_size) > 0 else ranks


def of(config: DictConfig, model: ModelSize, critic: bool = False) -> Training:
    """The policy's, and the reference's where the run has one; or a critic's: the policy with another head, and so
    without logits."""
    settings = config.actor_rollout_ref
    part = config.critic if critic else settings.actor
    fsdp, rank = (part.fsdp, 0) if critic else (part.fsdp_config, int(settings.model.lora_rank or 0))
    referred = not critic and not rank and (part.use_kl_loss or config.algorithm.use_kl_in_reward)
    master, mixed = width(fsdp.model_dtype, "fp32"), fsdp.get("mixed_precision") or {}
    compute, reduced = width(mixed.get("param_dtype")), width(mixed.get("reduce_dtype"), "fp32")
    over = shards(config, fsdp)
    trained = model.adapter * rank or model.parameters
    weights = (model.parameters + (trained if rank else 0)) * master // over
    gradients, adam = trained * master // over, 2 * trained * master // over
    frozen = 0 if rank else 1
    gathered = model.root * compute * (1 + frozen) + model.layer * (2 * compute + frozen * (compute + reduced))
    kept = (weights if fsdp.param_offload else 0) + (adam if fsdp.optimizer_offload else 0)
    offloaded = bool(fsdp.offload_policy) and config.trainer.device != "cpu"  # where it does nothing
    tokens = _tokens(config, part)
    return Training(
        weights=0 if offloaded else weights,
        gradients=0 if offloaded else gradients,
        optimizer=0 if offloaded else adam,
        # AdamW over all tensors at once makes another one of each
        update=0 if offloaded else gradients,
        gathered=gathered,
        activations=activations(config, model, tokens, compute),
        logits=0 if critic else logits_of(config, model, tokens, compute),
        on_host=0 if offloaded else kept,
        offloaded=weights + gradients + adam if offloaded else 0,
        reference=model.parameters * width(settings.ref.fsdp_config.model_dtype, "fp32") // over if referred else 0,
    )


def _tokens(config: DictConfig, part: DictConfig) -> int:
    """The most that go through the model at a time."""
    turn = int(config.data.max_prompt_length) + int(config.data.max_response_length)
    if not part.use_dynamic_bsz:
        return turn * int(part.get("ppo_micro_batch_size_per_gpu") or 1)
    return max(int(part.ppo_max_token_len_per_gpu), turn)


def activations(config: DictConfig, model: ModelSize, tokens: int, compute: int) -> int:
    """What transformers' layers keep for the backward pass, in bytes.

    A norm keeps its input in full precision, and its output before and after its weight.
    """
    settings, low = config.actor_rollout_ref.model, compute < FULL
    norm = (FULL if low else 0) + 2 * compute
    attention = settings.override_config.get("attn_implementation", FLASH)
    dense = settings.use_remove_padding and attention not in (FLASH, PACKED)
    keys = 2 * model.query if dense else 2 * model.key_value  # with a mask, keys are repeated for each query
    each = 2 * model.hidden * (norm + compute) + compute * (3 * model.query + keys + 4 * model.intermediate)
    if model.normalised:
        each += (model.query + model.key_value) * norm
    layer = tokens * each
    # of the layer in which the backward pass is
    gradients = tokens * compute * (3 * model.intermediate + model.hidden)
    kept = tokens * model.hidden * compute * model.layers + layer
    if not settings.enable_gradient_checkpointing:
        kept = layer * model.layers
    mask = tokens * tokens * (1 + 2 * compute) if dense else 0
    return kept + gradients + mask


def logits_of(config: DictConfig, model: ModelSize, tokens: int, compute: int) -> int:
    """The logits, and what an update computes from them, in bytes."""
    actor, size = config.actor_rollout_ref.actor, tokens * model.vocabulary
    entropy = bool(actor.entropy_coeff) or bool(OmegaConf.select(actor, "calculate_entropy", default=False))
    # of a portion there are differences to the normalizer at a time, and in half precision the logits in full precision
    total = size * compute + (1 if compute == FULL else 2) * min(size, ROWS * model.vocabulary, ELEMENTS) * FULL
    if float(config.actor_rollout_ref.rollout.temperature) != 1:
        total += size * FULL
    if not config.actor_rollout_ref.model.use_remove_padding:
        total += 2 * size * compute  # those of real tokens are copied out of the padded ones, and so are gradients
    if entropy:
        total += size * compute  # the gradient cannot take the logits' place
        # probabilities, their products with the logits, and the gradients of both; compiled, only their gradient
        total += size * FULL * (1 if actor.fsdp_config.use_torch_compile else 4)
    return total
