"""What a GGUF file says of its model and transformers' reader drops: applied, or refused by name.

llama.rope.scaling.type = linear, .factor = 4   ->   rope_parameters: linear, factor 4
rope_freqs.weight of Llama 3.1                  ->   rope_parameters: llama3, or these factors

What fields mean, and what holds where one is missing, is llama.cpp's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.checkpoints.gguf_file import GgufFile
from octavo.checkpoints.gguf_weights import read_floats
from octavo.errors import ModelError, brief

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Divisors of the rotary frequencies. They become a part of the configuration."""

_SAME = {  # by the field, what a configuration may call it
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "attention.layer_norm_epsilon": (
        "layer_norm_epsilon",
        "layer_norm_eps",
        "norm_epsilon",
        "norm_eps",
    ),
}
_NEUTRAL: dict[str, tuple[float, ...]] = {  # fields with no place, and the values that do nothing
    "attention.max_alibi_bias": (0,),
    "attention.clamp_kqv": (0,),
    "attention.output_scale": (0, 1),
    "attention.temperature_scale": (0,),
    "logit_scale": (0, 1),
    "residual_scale": (0, 1),
    "embedding_scale": (0, 1),
    "rope.scaling.alpha": (0,),
    "rope.scaling.yarn_log_multiplier": (0,),
    "rope.scaling.yarn_ext_factor": (-1, 1),
    "rope.scaling.yarn_attn_factor": (-1, 1),
}
_BIASES = {"attention_bias": ".attn_q.bias", "mlp_bias": ".ffn_up.bias"}
_BY_WIDTH = {"gemma2": 46, "gemma3": 62}  # layers of the size whose scores are scaled otherwise
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_LLAMA3_CONTEXT = 8192


def complete(config: Any, file: GgufFile) -> None:
    """Has transformers' `config` of the file say what the file says.

    Raises ModelError, with the field's name, for what the model's class has no place for.
    """
    _Fields(config, file).apply()


def windowed(config: Any, file: GgufFile) -> Any:
    """Return Mistral's configuration for a Llama with a sliding window, which Llama's has not.

    llama.cpp calls both llama. Another `config` comes back as it is.
    """
    if config.model_type != "llama" or not file.metadata.get("llama.attention.sliding_window"):
        return config
    from transformers import MistralConfig

    return MistralConfig.from_dict(config.to_dict() | {"model_type": "mistral"})


@dataclass
class _Fields:
    config: Any
    file: GgufFile

    def apply(self) -> None:
        for key, neutral in _NEUTRAL.items():
            if self._of(key, neutral[0]) not in neutral:
                raise self._refused(key, "which Octavo does not read")
        for key, names in _SAME.items():
            self._set(key, names)
        table = next((t for t in self.file.tensors if t.name == "token_embd.weight"), None)
        if table is not None:
            self.config.vocab_size = table.shape[0]
        for name, ending in _BIASES.items():
            if hasattr(self.config, name):
                setattr(self.config, name, any(t.name.endswith(ending) for t in self.file.tensors))
        self._heads()
        self._window()
        self._rotary()

    def _of(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.file.architecture}.{key}", default)

    def _refused(self, key: str, why: str) -> ModelError:
        return ModelError(
            f"{self.file.path}: {self.file.architecture}.{key} is {self._of(key)}, {why}: "
            "give the float checkpoint"
        )

    def _set(self, key: str, names: tuple[str, ...]) -> None:
        value = self._of(key)
        name = next((name for name in names if hasattr(self.config, name)), None)
        if value is None or (name is None and not value):
            return
        if name is None:
            raise self._refused(key, f"and {type(self.config).__name__} has no {names[0]}")
        setattr(self.config, name, value or None)

    def _heads(self) -> None:
        """Set the width of heads and how their scores are scaled; raises where the class cannot."""
        width, heads = self._of("embedding_length"), self._of("attention.head_count")
        if not isinstance(width, int) or not isinstance(heads, int) or not heads:
            return  # a number for each layer, which transformers reads
        head = self._of("attention.key_length", width // heads)
        if self._of("attention.value_length", head) != head:
            raise self._refused("attention.value_length", f"and its keys have {head}")
        config = self.config
        if hasattr(config, "global_head_dim") or hasattr(config, "d_kv"):
            return  # transformers reads them
        if head != (getattr(config, "head_dim", None) or width // heads):
            if not hasattr(config, "head_dim"):
                raise self._refused(
                    "attention.key_length", f"and {type(config).__name__} has {width // heads}"
                )
            config.head_dim = head
        scaled = head
        if hasattr(config, "query_pre_attn_scalar"):
            if self._of("block_count") == _BY_WIDTH.get(self.file.architecture):
                scaled = width // heads
            config.query_pre_attn_scalar = scaled
        scale = self._of("attention.scale")
        if scale and not math.isclose(scale, scaled**-0.5, rel_tol=1e-3):
            raise self._refused("attention.scale", f"and the model scales by {scaled**-0.5:.5g}")

    def _window(self) -> None:
        window = self._of("attention.sliding_window")
        if hasattr(self.config, "sliding_window"):
            if window is not None or self.config.model_type == "mistral":
                self.config.sliding_window = window or None
        elif window and window < self._of("context_length", window + 1):
            raise self._refused(
                "attention.sliding_window",
                f"and {type(self.config).__name__} has no window (load_gguf reads a llama's)",
            )

    def _rotary(self) -> None:
        said = _scaling(self)
        held = getattr(self.config, "rope_parameters", None)
        if held is None:
            if said:
                raise ModelError(
                    f"{self.file.path}: {said['from']} scales positions, and "
                    f"{type(self.config).__name__} has none that turn: give the float checkpoint"
                )
            return
        sliding = held.get("sliding_attention")
        own = held.get("full_attention", held) if sliding else held
        bases = [("rope.freq_base", own)] + [("rope.freq_base_swa", sliding)] * (
            sliding is not None
        )
        for key, parameters in bases:
            if self._of(key) is not None:
                parameters["rope_theta"] = self._of(key)
        self._turned(own)
        source = said.pop("from", "")
        own |= said
        if "original_max_position_embeddings" in said and hasattr(
            self.config, "original_max_position_embeddings"
        ):
            self.config.original_max_position_embeddings = said["original_max_position_embeddings"]
        try:
            self.config.validate_rope()
        except (ValueError, KeyError) as error:
            raise ModelError(
                f"{self.file.path}: {source} is nothing that {type(self.config).__name__} can do "
                f"({brief(error)}): give the float checkpoint"
            ) from error

    def _turned(self, parameters: dict[str, Any]) -> None:
        """Set how many inputs of a head are turned, or check that the config says as many."""
        head = getattr(self.config, "head_dim", None)
        head = head or self.config.hidden_size // self.config.num_attention_heads
        count = self._of("rope.dimension_count", head)
        if hasattr(self.config, "global_head_dim"):
            return  # its two kinds of layers have heads of their own
        if "partial_rotary_factor" in parameters:
            parameters["partial_rotary_factor"] = count / head
        elif count != head:
            raise self._refused(
                "rope.dimension_count", f"and {type(self.config).__name__} turns {head}"
            )


def _scaling(fields: _Fields) -> dict[str, Any]:
    """rope_parameters beyond the base, and under "from" the field or tensor that asks for them."""
    kind = fields._of("rope.scaling.type", "linear")
    factor = fields._of("rope.scaling.factor", fields._of("rope.scale_linear", 0)) or 1.0
    attention = fields._of("rope.scaling.attn_factor", 1.0)
    context = fields._of("context_length")
    original = fields._of("rope.scaling.original_context_length", context)
    tensors = {t.name: t for t in fields.file.tensors if t.name in ROPE_TENSORS}
    source = f"{fields.file.architecture}.rope.scaling.type {kind}"
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise fields._refused("rope.scaling.type", "which Octavo does not know")
    if kind == "none":
        factor = 1.0
    if tensors:
        if kind == "yarn":
            raise fields._refused("rope.scaling.type", f"beside {next(iter(tensors))}")
        read = {
            name: np.asarray(read_floats(fields.file, t), np.float64).ravel() * factor
            for name, t in tensors.items()
        }
        one = read.get(ROPE_TENSORS[0])
        long, short = (read.get(name, one) for name in ROPE_TENSORS[1:])
        if long is None or short is None:
            raise ModelError(f"{fields.file.path} has {', '.join(read)} alone, without its pair")
        if one is not None and attention == 1:
            known = _as_llama3(fields, one)
            if known is not None:
                return known | {"from": ROPE_TENSORS[0]}
        return {
            "from": ", ".join(tensors),
            "rope_type": "longrope",
            "long_factor": long.tolist(),
            "short_factor": short.tolist(),
            "attention_factor": float(attention),
            "original_max_position_embeddings": original,
        }
    if kind == "longrope":
        raise fields._refused("rope.scaling.type", f"and {ROPE_TENSORS[1]} is not there")
    if kind == "yarn":
        own = 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
        return {
            "from": source,
            "rope_type": "yarn",
            "factor": float(factor),
            "attention_factor": float(attention * own),
            "beta_fast": float(fields._of("rope.scaling.yarn_beta_fast", 32.0)),
            "beta_slow": float(fields._of("rope.scaling.yarn_beta_slow", 1.0)),
            "original_max_position_embeddings": original,
        }
    if attention != 1:
        raise fields._refused("rope.scaling.attn_factor", f"beside {source}")
    if factor == 1:
        return {}
    return {"from": source, "rope_type": "linear", "factor": float(factor)}


def _as_llama3(fields: _Fields, factors: Any) -> dict[str, Any] | None:
    """Llama 3's rule where it makes these very factors, as other programs know it; else None."""
    base = float(fields._of("rope.freq_base", 10000.0))
    turns = base ** (-np.arange(len(factors)) / len(factors)) * _LLAMA3_CONTEXT / (2 * math.pi)
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    factor = float(factors.max())
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    if not np.allclose(1 / factors, (1 - smooth) / factor + smooth, rtol=1e-5, atol=0):
        return None
    return {
        "rope_type": "llama3",
        "factor": factor,
        **_LLAMA3,
        "original_max_position_embeddings": _LLAMA3_CONTEXT,
    }
