"""nn.MultiheadAttention whose projections are quantized; the attention itself is computed in float.

query, key, value -> q_proj, k_proj, v_proj (int8) -> scaled dot product -> out_proj
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from octavo.core.linear import run_together
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.attention_mask import merged_mask
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.layers.half_linear import QuantizedHalfLinear
from octavo.torch.layers.inputs import as_leaf, autocasted, is_proxy
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.requantize import prepare
from octavo.torch.memory import float32_copy
from octavo.torch.quantizer import Quantizer


@quantized(
    replaces=nn.MultiheadAttention,
    kind=Kind.ATTENTION,
    dtypes=("int8",),
    inputs=lambda module, is_deep: [(4, 16, module.embed_dim)],
    onnx=("linear", "half_linear"),
)
class QuantizedMultiheadAttention(QuantizedModule):
    """Attention over query, key and value as nn.MultiheadAttention computes it.

    Children: `q_proj`, `k_proj`, `v_proj`, quantized linear layers to embed_dim, and `out_proj`,
    which is a layer of its own, quantized or float. Buffers: `bias_k` and `bias_v` float32
    [1, 1, embed_dim] with `add_bias_kv`. Dropout acts in training mode only.
    """

    CONFIG = (
        "embed_dim",
        "num_heads",
        "dropout",
        "has_bias",
        "add_bias_kv",
        "add_zero_attn",
        "kdim",
        "vdim",
        "batch_first",
        "projections",
    )
    INNER = ("q_proj", "k_proj", "v_proj")
    GROUPED = True

    in_proj_bias = None
    """Code with a fused path for float attention takes that for `bias=False`, and keeps off it."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        has_bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        projections: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first = dropout, batch_first
        self.has_bias, self.add_bias_kv, self.add_zero_attn = has_bias, add_bias_kv, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        extra = (1, 1, embed_dim)
        self._hold(
            bias_k=torch.zeros(extra) if add_bias_kv else None,
            bias_v=torch.zeros(extra) if add_bias_kv else None,
        )
        sizes = (embed_dim, self.kdim, self.vdim)
        for i, (name, size) in enumerate(zip(self.INNER, sizes, strict=True)):
            given = projections[i] if projections else {}
            setattr(self, name, _projection(size, embed_dim, has_bias, **given))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=has_bias)

    @property
    def projections(self) -> list[dict[str, Any]]:
        """Return what `config()` says of q_proj, k_proj and v_proj beyond their sizes.

        That includes their storage.
        """
        return [_described(getattr(self, name)) for name in self.INNER]

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        """Return the quantized layer, which takes over `out_proj` as it is."""
        with torch.device("meta"):
            made = cls(
                module.embed_dim,
                module.num_heads,
                module.dropout,
                module.in_proj_bias is not None,
                module.bias_k is not None,
                module.add_zero_attn,
                module.kdim,
                module.vdim,
                module.batch_first,
            )
        for key, weight, bias in zip(cls.INNER, *_in_projections(module), strict=True):
            setattr(made, key, QuantizedLinear.of(weight, bias, choice, quantizer, name))
        made.out_proj = module.out_proj
        for key in ("bias_k", "bias_v"):
            made._fill(**{key: float32_copy(getattr(module, key))})
        return made

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return nn.MultiheadAttention's outputs: [batch, L, embed_dim], and the weights or None.

        Arguments and their shapes are nn.MultiheadAttention's. Raises ValueError or TypeError,
        which names the argument, where those do not fit.
        """
        if is_proxy(query):
            others = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return as_leaf(self, query, key, value, *others)  # type: ignore[no-any-return]
        batched = self._batched(query, key, value)
        if is_causal and attn_mask is None:
            raise ValueError("attn_mask: is_causal only says of a mask that it is causal; give it")
        q, k, v = (self._heads(x, batched) for x in self._project(query, key, value))
        if not batched and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
        keys = k.shape[2]
        k, v = self._appended(k, self.bias_k), self._appended(v, self.bias_v)
        # The hint replaces the mask only where torch itself lets it.
        hinted = is_causal and key_padding_mask is None and not need_weights
        mask = merged_mask(
            None if hinted else attn_mask,
            key_padding_mask,
            (q.shape[0], self.num_heads, q.shape[2], keys),
            q.dtype,
            k.shape[2] - keys,
        )
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            found, weights = _attend(q, k, v, mask, dropout)
            if average_attn_weights:
                weights = weights.mean(dim=1)
            weights = weights if batched else weights.squeeze(0)
        else:
            found = functional.scaled_dot_product_attention(q, k, v, mask, dropout, hinted)
        return self.out_proj(self._joined(found, batched)), weights

    def _batched(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Tell whether there is a batch axis; raises where shapes do not fit each other."""
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.is_nested:
                raise TypeError(
                    f"{name}: is a nested tensor; quantized attention takes padded ones"
                )
        rank: int = query.dim()
        if rank not in (2, 3):
            raise ValueError(f"query: needs 2 axes (unbatched) or 3, not {tuple(query.shape)}")
        batch = 0 if self.batch_first else 1
        for name, x, size in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if x.dim() != rank or x.shape[-1] != size:
                raise ValueError(
                    f"{name}: needs {rank} axes, as query, the last of {size}; not {tuple(x.shape)}"
                )
            if rank == 3 and x.shape[batch] != query.shape[batch]:
                raise ValueError(
                    f"{name}: needs the query's batch of {query.shape[batch]} along axis {batch}, "
                    f"not {tuple(x.shape)}"
                )
        if key.shape[:-1] != value.shape[:-1]:
            raise ValueError(
                f"value: needs shape {(*key.shape[:-1], self.vdim)}, as key, "
                f"not {tuple(value.shape)}"
            )
        return rank == 3

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """q, k and v; what they have in common is quantized once."""
        layers = [self.q_proj, self.k_proj, self.v_proj]
        if query is key and key is value:
            return run_with_one_input(layers, query)
        if key is value:
            return [layers[0](query), *run_with_one_input(layers[1:], key)]
        return [layer(x) for layer, x in zip(layers, (query, key, value), strict=True)]

    def _heads(self, x: Tensor, batched: bool) -> Tensor:
        """Return `x` as a view [batch, heads, length, head_dim]."""
        split = x.unflatten(-1, (self.num_heads, self.head_dim))
        if not batched:
            return split.transpose(0, 1).unsqueeze(0)
        return split.transpose(1, 2) if self.batch_first else split.permute(1, 2, 0, 3)

    def _joined(self, x: Tensor, batched: bool) -> Tensor:
        """Join the heads of `x` [batch, heads, length, head_dim] again, which undoes `_heads`."""
        if not batched:
            return x.squeeze(0).transpose(0, 1).flatten(-2)
        return (x.transpose(1, 2) if self.batch_first else x.permute(2, 0, 1, 3)).flatten(-2)

    def _appended(self, x: Tensor, extra: Tensor | None) -> Tensor:
        """Keys or values with those of `add_bias_kv` and `add_zero_attn` at their end."""
        batch, heads, _, size = x.shape
        if extra is not None:
            more = extra.to(x.dtype).view(1, heads, 1, size).expand(batch, -1, -1, -1)
            x = torch.cat([x, more], 2)
        return functional.pad(x, (0, 0, 0, 1)) if self.add_zero_attn else x

    @property
    def in_proj_weight(self) -> Tensor | None:
        """The packed weight float32 [3 embed_dim, embed_dim], computed when it is used."""
        if not self._qkv_same_embed_dim:
            return None
        shape = (3 * self.embed_dim, self.embed_dim)
        return self._computed_weight(
            shape,
            lambda: torch.cat([getattr(self, n).weight() for n in self.INNER]),
            "in_proj_weight",
        )

    def _write_weight(self, name: str, values: Tensor) -> None:
        parts = zip(self.INNER, values.chunk(3), strict=True)
        for write in [prepare(getattr(self, n), "weight", part) for n, part in parts]:
            write()

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """Return the attention's outputs, and its weights [batch, heads, L, S]."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    if dropout:
        weights = functional.dropout(weights, dropout)
    return weights @ v, weights


def _in_projections(module: nn.Module) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """Weights and biases of the query's, key's and value's projections."""
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    bias = module.in_proj_bias
    return weights, (None, None, None) if bias is None else bias.chunk(3)


def _projection(k: int, n: int, has_bias: bool, **given: Any) -> QuantizedModule:
    made = QuantizedHalfLinear if "dtype" in given else QuantizedLinear
    return made(k, n, has_bias, **given)


def _described(layer: QuantizedModule) -> dict[str, Any]:
    sizes = ("in_features", "out_features", "has_bias")
    return {key: value for key, value in layer.config().items() if key not in sizes}


def run_with_one_input(layers: Sequence[QuantizedModule], x: Tensor) -> list[Tensor]:
    """Return `[layer(x) for layer in layers]`, the same bits, for x [..., in_features].

    `layers` take inputs of one size, of the same groups. Other layers, and an `x` that
    kernels may not read directly, get one call each.
    """
    first = layers[0]
    alike = all(
        type(layer) is QuantizedLinear
        and (layer.in_features, *layer.quantizes) == (first.in_features, *first.quantizes)
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        for layer in layers
    )
    x = autocasted(x)
    code = ops.CODES.get(x.dtype)
    if not alike or code is None or not ops.direct(x) or x.shape[-1] != first.in_features:
        return [layer(x) for layer in layers]
    x = x.contiguous()
    outs = [x.new_empty((*x.shape[:-1], layer.out_features)) for layer in layers]
    run_together(
        [layer._ready("none").core for layer in layers],
        x.data_ptr(),
        x.shape[:-1].numel(),
        first.in_features,
        [out.data_ptr() for out in outs],
        [layer.out_features for layer in layers],
        code,
        torch.get_num_threads(),
    )
    return outs
