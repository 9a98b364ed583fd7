"""nn.Embedding over a table of integers or 16-bit floats."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from octavo.core.live_buffers import Read
from octavo.recipe import Kind
from octavo.torch import ops
from octavo.torch.layers.inputs import as_leaf, is_proxy, of_each
from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding
from octavo.torch.layers.registry import quantized
from octavo.torch.layers.table import (
    Call,
    QuantizedTable,
    checked,
    core,
    in_kernel,
    lookup,
    rows_of,
)
from octavo.torch.quantizer import Quantizer


@quantized(
    replaces=nn.Embedding,
    kind=Kind.EMBEDDING,
    dtypes=("uint8",),
    inputs=lambda module, is_deep: [(4, 16), (16,)],
    onnx=("embedding",),
)
class QuantizedEmbedding(QuantizedTable):
    """The rows [..., embedding_dim] of indices [...] int32 or int64, in the float table's dtype.

    Raises IndexError, which names position and index, for an index that the table does not have.
    """

    SCRIPTED = True
    GROUPED = True

    @classmethod
    def _quantized(cls, module: Any, choice: Any, quantizer: Quantizer, name: str) -> Any:
        if choice.format.group or quantizer.packs(module.weight, choice):
            return QuantizedPackedEmbedding.of(module, choice, quantizer, name)
        return super()._quantized(module, choice, quantizer, name)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  # as torch's layer calls it
        """Return the table's rows for the indices `input`."""
        if not torch.jit.is_scripting():
            return self._run(input)
        rows = torch.ops.octavo.embedding(input, self.table, self.scale, self.zero_point)
        return rows.to(self._output_dtype)

    def _run(self, indices: Tensor) -> Tensor:
        if ops.direct(indices):
            return self._in_kind(self._ready()(indices))
        if is_proxy(indices):
            return as_leaf(self, indices)
        if indices.is_nested:
            return of_each(self._run, indices)
        return self._in_kind(embedding(indices, self.table, self.scale, self.zero_point))

    def _kernel(self) -> Call:
        return kernel(self.table, self.scale, self.zero_point)


def kernel(table: Tensor, scale: Tensor | None, zero_point: Tensor | None) -> Call:
    """Build the lookup over these tensors, which it keeps alive."""
    if scale is not None and in_kernel(table, zero_point):
        return lookup(core(table, scale, zero_point))
    return lambda indices: rows_of(table, scale, zero_point, checked(indices))


def _fake(indices: Tensor, table: Tensor, scale: Any, zero_point: Any) -> Tensor:
    return table.new_empty((*indices.shape, table.shape[1]), dtype=torch.float32)


embedding = ops.define(
    "embedding",
    "(Tensor indices, Tensor table, Tensor? scale, Tensor? zero_point) -> Tensor",
    ops.over_weights(kernel, Read.LIVE),
    _fake,
)
