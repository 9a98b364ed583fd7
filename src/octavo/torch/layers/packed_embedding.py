"""nn.Embedding over the packed weight of a linear layer: what the two share is stored once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.core.embedding import PackedEmbedding
from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat, packed_bytes, unpack
from octavo.core.live_buffers import Read
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.inputs import as_leaf, is_proxy, of_each
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.table import Call, TableModule, lookup
from octavo.torch.memory import array, optional
from octavo.torch.quantizer import Quantizer


# docs/notes/torch.md: "A tied weight is stored once"
@quantized(kind=Kind.EMBEDDING, onnx=("packed_embedding",))
class QuantizedPackedEmbedding(TableModule):
    """The rows [..., embedding_dim] of indices [...] int32 or int64, in the float table's dtype.

    Buffers as QuantizedLinear's, of one with `num_embeddings` outputs: `packed` of `format`,
    `scale`, and with `affine` weights `zero_point`. An output layer that has the same numbers has
    the same tensors. Raises IndexError, which names position and index, for an index that the table
    does not have.
    """

    SCRIPTED = True
    CONFIG = ("num_embeddings", "embedding_dim", "padding_idx", "affine", "format", "dtype")

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        affine: bool = False,
        format: str = WeightFormat.INT8.value,  # noqa: A002  # as files call it
        dtype: str = "float32",
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, dtype)
        self.affine, self.format = affine, WeightFormat.parse(format).value
        n = num_embeddings
        self._hold(
            packed=self._blank(packed_bytes(n, embedding_dim, self._format), torch.uint8),
            scale=self._blank(n, torch.float32, 1),
            zero_point=self._blank(n, torch.int32) if affine else None,
        )

    @classmethod
    def of(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        """Build the quantized layer of a float nn.Embedding."""
        weight = module.weight
        held = quantizer.packed(choice, weight, name, QuantizedLinear._as_rows)
        with torch.device("meta"):
            made = cls(
                module.num_embeddings,
                module.embedding_dim,
                module.padding_idx,
                held["zero_point"] is not None,
                choice.format.value,
                str(weight.dtype).removeprefix("torch."),
            )
        made._fill(**held)
        return made

    _quantized = of

    @property
    def _format(self) -> WeightFormat:
        return WeightFormat.parse(self.format)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """Return the table's rows for the indices `input`."""
        if not torch.jit.is_scripting():
            return self._run(input)
        rows = torch.ops.octavo.packed_embedding(
            input,
            self.packed,
            self.scale,
            self.zero_point,
            self.num_embeddings,
            self.embedding_dim,
            self.format,
        )
        return rows.to(self._output_dtype)

    def _run(self, indices: Tensor) -> Tensor:
        if ops.direct(indices):
            return self._in_kind(self._ready()(indices))
        if is_proxy(indices):
            return as_leaf(self, indices)
        if indices.is_nested:
            return of_each(self._run, indices)
        return self._in_kind(packed_embedding(indices, *self._arguments()))

    def _kernel(self) -> Call:
        return kernel(*self._arguments())

    def _arguments(self) -> tuple[Tensor, Tensor, Tensor | None, int, int, str]:
        sizes = self.num_embeddings, self.embedding_dim
        return self.packed, self.scale, self.zero_point, *sizes, self.format

    def integers(self) -> Tensor:
        """Return integers [num_embeddings, embedding_dim]: int8, or in groups uint8 from 0 on."""
        packed, sizes = array(self.packed), (self.num_embeddings, self.embedding_dim)
        if self._format.group:
            found = GroupedWeight.unpack(packed, *sizes, array(self.scale), self._format)
            return torch.from_numpy(found.q)
        return torch.from_numpy(unpack(packed, *sizes))

    def _dequantize(self) -> Tensor:
        every = torch.arange(self.num_embeddings)
        return kernel(*self._arguments())(every)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows of the layer."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        kind = self.format + " affine" * self.affine
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, {kind}, packed"


def kernel(
    packed: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    n: int,
    k: int,
    format: str,  # noqa: A002
) -> Call:
    """Build the lookup over these tensors, which it keeps alive."""
    held = WeightFormat.parse(format)
    weight = PackedWeight(array(packed), n, k, array(scale), optional(zero_point), 0, held)
    return lookup(PackedEmbedding(weight))


def _fake(indices: Tensor, packed: Tensor, *others: Any) -> Tensor:
    _, _, _, k, _ = others
    return packed.new_empty((*indices.shape, k), dtype=torch.float32)


packed_embedding = ops.define(
    "packed_embedding",
    "(Tensor indices, Tensor packed, Tensor scale, Tensor? zero_point, int n, int k, str format) "
    "-> Tensor",
    ops.over_weights(kernel, Read.COPIED),
    _fake,
)
