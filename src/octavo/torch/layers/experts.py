"""Experts whose weights have three axes, as transformers fuses them, with int8 weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.kernels import GroupedWeight, WeightFormat, packed_bytes, unpack
from octavo.core.kernels.packing import checked_group
from octavo.errors import NotTrainableError
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.expert_kernels import Call, experts, kernel, layers
from octavo.torch.layers.fused_experts import (
    PARTS,
    FusedExperts,
    Gate,
    difference,
    gate_of,
    is_fused_experts,
    matrix,
    vector,
    weight_name,
)
from octavo.torch.layers.grouped import GroupedModule
from octavo.torch.layers.inputs import as_leaf, is_proxy
from octavo.torch.layers.registry import quantized
from octavo.torch.memory import array
from octavo.torch.quantizer import Buffers, Quantizer
from octavo.torch.weight_choice import WeightChoice


@quantized(
    replaces=FusedExperts,
    recognizes=is_fused_experts,
    kind=Kind.LINEAR,
    chosen_with=nn.Linear,
    plural="experts",
)
# docs/notes/torch.md: "Fused experts are one layer"
class QuantizedExperts(GroupedModule):
    """For each row its experts' outputs, added up by the router's weights.

    An expert is two linear layers with a gate between them. Buffers: `packed_up` uint8 [experts,
    bytes] (the kernels' layout), `scale_up` and `bias_up` float32 [experts, outputs], the same with
    `down`. Outputs of `up` that are gates come first, also where the float weight interleaves them.
    Rows are quantized for each product, as for a linear layer, and `group` and `format` mean what
    they do there.
    """

    SYMMETRIC = True
    CONFIG = (
        *("num_experts", "in_features", "inner_features", "out_features", "has_gate", "has_bias"),
        *("form", "activation", "limit", "alpha", "group", "format"),
    )

    def __init__(
        self,
        num_experts: int,
        in_features: int,
        inner_features: int,
        out_features: int,
        has_gate: bool = True,
        has_bias: bool = False,
        form: str = "product",
        activation: str = "silu",
        limit: float = 0.0,
        alpha: float = 1.0,
        group: int = 0,
        format: str = WeightFormat.INT8.value,  # noqa: A002  # as files call it
    ) -> None:
        super().__init__()
        self.num_experts, self.has_gate, self.has_bias = num_experts, has_gate, has_bias
        self.in_features, self.inner_features = in_features, inner_features
        self.out_features = out_features
        self.form, self.activation, self.limit, self.alpha = form, activation, limit, alpha
        self.format = WeightFormat.parse(format).value
        self.group = checked_group(group, self._format)
        for part, (n, k) in self._sizes().items():
            bias = torch.zeros(num_experts, n) if has_bias else None
            size = num_experts, packed_bytes(n, k, self._format)
            self._hold(
                **{
                    f"packed_{part}": torch.zeros(size, dtype=torch.uint8),
                    f"scale_{part}": torch.ones(num_experts, n),
                    f"bias_{part}": bias,
                }
            )

    def config(self) -> dict[str, Any]:
        found = super().config()
        return found if "format" in found else {k: v for k, v in found.items() if k != "group"}

    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Return (outputs, inputs) of an expert's two layers, "up" and "down"."""
        first = self.inner_features * (2 if self.has_gate else 1)
        return {"up": (first, self.in_features), "down": (self.out_features, self.inner_features)}

    @classmethod
    def refuses(cls, module: nn.Module, choice: Any) -> str:
        reason = cls._refuses_but_int8(choice, "experts of {}; theirs are", "experts")
        if reason and not choice.format.group:
            return reason
        if getattr(module, "_is_expert_parallel", False):
            return "its experts are spread over processes"
        if getattr(module, "has_post_expert_norm", False):
            return "its experts have a norm behind them"
        gate = gate_of(module)
        if gate is None:
            return "its gate is none of those that Octavo has for experts"
        if module.down_proj.is_meta:  # asked again when weights are there
            return ""
        return difference(module, gate)

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        gate = gate_of(module)
        assert gate is not None
        first, second = (matrix(module, part, 0) for part in PARTS)
        with torch.device("meta"):
            made = cls(
                len(module.down_proj),
                first.shape[1],
                second.shape[1],
                second.shape[0],
                module.has_gate,
                module.has_bias,
                gate.form,
                gate.activation,
                gate.limit,
                gate.alpha,
                choice.group,
                choice.format.value,
            )
        for part in PARTS:
            held = _packed(module, part, choice, quantizer, name)
            bias = [vector(module, part, i) for i in range(made.num_experts)]
            made._fill(
                **{f"packed_{part}": held["packed"], f"scale_{part}": held["scale"]},
                **{f"bias_{part}": torch.stack(bias) if made.has_bias else None},
            )
        return made

    def forward(
        self,
        hidden_states: Tensor,
        top_k_index: Tensor | None = None,
        top_k_weights: Tensor | None = None,
        *,
        router_indices: Tensor | None = None,
        routing_weights: Tensor | None = None,
    ) -> Tensor:
        """Map `hidden_states` [tokens, in_features] to [tokens, out_features], in the same dtype.

        `top_k_index` and `top_k_weights` [tokens, k] are each token's experts and their weights;
        the index `num_experts` stands for none. The other names are those of some models.
        """
        index = router_indices if top_k_index is None else top_k_index
        weights = routing_weights if top_k_weights is None else top_k_weights
        if is_proxy(hidden_states):
            return as_leaf(self, hidden_states, index, weights)
        if index is None or weights is None:
            raise ValueError("top_k_index and top_k_weights: both are needed")
        if ops.direct(hidden_states) and ops.direct(index) and ops.direct(weights):
            return self._ready()(hidden_states, index, weights)
        return experts(hidden_states, index, weights, *self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        """Return the operator's arguments behind tokens, experts and weights."""
        first = self.packed_up, self.scale_up, self.bias_up
        second = self.packed_down, self.scale_down, self.bias_down
        sizes = self.in_features, self.inner_features
        gate = self.form, self.activation, self.limit, self.alpha
        return (*first, *second, *sizes, *gate, *self._groups())

    def _groups(self) -> tuple[Any, ...]:
        """Return how weights and inputs are grouped, as operators get it; () for int8."""
        return (self.group, self.format) if self._other_format() else ()

    def _kernel(self) -> Call:
        up = self.packed_up, self.scale_up, self.bias_up, self.in_features
        down = self.packed_down, self.scale_down, self.bias_down, self.inner_features
        first, second = layers(*up, *self._groups()), layers(*down, *self._groups())
        return kernel(Gate(self.form, self.activation, self.limit, self.alpha), first, second)

    @property
    def _first(self) -> str:
        return "gate_up_proj" if self.has_gate else "up_proj"

    def integers(self) -> dict[str, Tensor]:
        """Return int8 integers [experts, outputs, inputs] of "up" and "down"; in groups uint8."""
        if self._format.group:
            return {
                part: torch.stack([torch.from_numpy(weight.q) for weight in self._grouped(part)])
                for part in PARTS
            }
        found = {}
        for part, (n, k) in self._sizes().items():
            rows = [
                torch.from_numpy(unpack(array(p), n, k)) for p in self._buffers[f"packed_{part}"]
            ]
            found[part] = torch.stack(rows)
        return found

    def _grouped(self, part: str) -> Iterator[GroupedWeight]:
        """Yield the grouped weight of each expert; `part` is "up" or "down"."""
        packed, scale = (self._buffers[f"{key}_{part}"] for key in ("packed", "scale"))
        assert packed is not None
        assert scale is not None
        for one, factors in zip(packed, scale, strict=True):
            sizes = self._sizes()[part]
            yield GroupedWeight.unpack(array(one), *sizes, array(factors), self._format)

    def __getattr__(self, name: str) -> Any:
        if name in ("down_proj", "gate_up_proj", "up_proj") and name in ("down_proj", self._first):
            part = "down" if name == "down_proj" else "up"
            shape = (self.num_experts, *self._sizes()[part])
            return self._computed_weight(shape, lambda: self._dequantize(part), name)
        return super().__getattr__(name)

    def _dequantize(self, part: str) -> Tensor:
        if self._format.group:
            return torch.stack([torch.from_numpy(w.dequantize()) for w in self._grouped(part)])
        scale: Any = self._buffers[f"scale_{part}"]
        return self.integers()[part].to(torch.float32) * scale[..., None]

    def _write_weight(self, name: str, values: Tensor) -> None:
        raise NotTrainableError(
            f"{type(self).__name__}.{name}: the weights of quantized experts cannot be written; "
            "change the float model and quantize it again"
        )

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        sizes = f"{self.in_features}, {self.inner_features}, {self.out_features}"
        return (
            f"{self.num_experts} experts of {sizes}, {self.form} {self.activation}, {self.format}"
        )


def _packed(
    module: Any, part: str, choice: WeightChoice, quantizer: Quantizer, name: str
) -> Buffers:
    """Return `packed` and `scale` of all experts, made one after the other."""
    weight = getattr(module, weight_name(module, part))

    def make() -> Buffers:
        n, k = matrix(module, part, 0).shape
        size = len(weight), packed_bytes(n, k, choice.format)
        packed = torch.empty(size, dtype=torch.uint8)
        scale = torch.empty((len(weight), n))
        for i in range(len(weight)):
            rows = matrix(module, part, i)
            if choice.format.group:
                made = quantizer.groups(choice, rows, name)
                packed[i] = torch.from_numpy(made.pack())
                scale[i] = torch.from_numpy(made.channel_scale)
                continue
            found = quantizer.integers(choice, rows, name, symmetric=True, packed=True)
            packed[i] = torch.from_numpy(found.q).reshape(-1)
            scale[i] = torch.from_numpy(found.scale)
        return {"packed": packed, "scale": scale}

    form = f"experts, {part}, transposed: {module.is_transposed}, {module.is_concatenated}"
    return quantizer.once(choice, weight, name, form, make)
