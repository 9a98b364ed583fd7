"""Weights of recurrent layers in buffers, and on their way to and from them.

A direction of a layer has two matrices, `ih` and `hh`, and with a projection `hr`. As int8 each is
`packed_ih` uint8 (the kernels' layout: gates interleaved, padded to 16 hidden units) and `scale_ih`
float32 [gates * hidden]; else it is `blocks_ih` float32, float16 or bfloat16 [blocks, inputs, 16],
interleaved too. `bias_ih` and `bias_hh` are PyTorch's own, float32 [gates * hidden].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from octavo.core.kernels import PackedWeight, pack, packed_bytes, unpack
from octavo.core.recurrent import Recurrent
from octavo.core.recurrent_weights import (
    BLOCK,
    Direction,
    FloatWeight,
    Kind,
    Matrix,
    float_blocks,
    interleave,
    product_biases,
    separate,
)
from octavo.torch.memory import array, float32, tensor_of
from octavo.torch.quantizer import Quantizer
from octavo.torch.weight_choice import DEFAULT, WeightChoice

Tensors = Mapping[str, Tensor]

STORAGE = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""Of layers that are not int8."""


def storage_of(choice: WeightChoice | None) -> str:
    """Return the storage of a layer of that choice; None is a layer that stays float."""
    if choice is None:
        return "float32"
    return choice.storage if choice.storage in STORAGE else "int8"


@dataclass(frozen=True)
class DirectionForm:
    """One direction of one layer; buffers are passed by names without a suffix.

    `suffix` is what PyTorch's names have: "", "_l0", "_l1_reverse". `output` is the projection's
    size, or `hidden`.
    """

    kind: Kind
    inputs: int
    hidden: int
    output: int
    bias: bool
    storage: str
    suffix: str = ""

    @property
    def reverse(self) -> bool:
        """Tell whether it runs from the end to the beginning."""
        return self.suffix.endswith("_reverse")

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Return the shapes of the matrices, in PyTorch's layout."""
        rows = self.kind.gates * self.hidden
        found = {"ih": (rows, self.inputs), "hh": (rows, self.output)}
        return found if self.output == self.hidden else found | {"hr": (self.output, self.hidden)}

    def _rows(self, part: str) -> int:
        """Return the number of rows of the packed matrix `part`."""
        units = -(-self.hidden // BLOCK) * BLOCK
        return self.output if part == "hr" else self.kind.gates * units

    def _gates(self, part: str) -> int:
        return 0 if part == "hr" else self.kind.gates

    def empty(self) -> dict[str, Tensor]:
        """Make the buffers by name, without weights in them."""
        found: dict[str, Tensor] = {}
        for part, (n, k) in self.shapes.items():
            rows = self._rows(part)
            if self.storage == "int8":
                found[f"packed_{part}"] = torch.zeros(packed_bytes(rows, k), dtype=torch.uint8)
                found[f"scale_{part}"] = torch.ones(n, dtype=torch.float32)
            else:
                shape = (-(-rows // BLOCK), k, BLOCK)
                found[f"blocks_{part}"] = torch.zeros(shape, dtype=STORAGE[self.storage])
        for part in ("ih", "hh") if self.bias else ():
            found[f"bias_{part}"] = torch.zeros(self.kind.gates * self.hidden, dtype=torch.float32)
        return found

    def names(self) -> list[str]:
        """Return the names of the buffers, in their order."""
        held = ("packed", "scale") if self.storage == "int8" else ("blocks",)
        found = [f"{what}_{part}" for part in self.shapes for what in held]
        return found + (["bias_ih", "bias_hh"] if self.bias else [])

    def quantized(
        self, weights: Tensors, choice: WeightChoice | None, quantizer: Quantizer, name: str
    ) -> dict[str, Tensor]:
        """Return the buffers of float `weights`, which have PyTorch's names without a suffix."""
        found: dict[str, Tensor] = {}
        for part in self.shapes:
            made = self._quantized(part, weights[f"weight_{part}"], choice, quantizer, name)
            found |= {f"{what}_{part}": t for what, t in made.items() if t is not None}
        for part in ("ih", "hh") if self.bias else ():
            bias = weights[f"bias_{part}"].detach()
            found[f"bias_{part}"] = bias.to("cpu", torch.float32, copy=True)
        return found

    def _quantized(
        self, part: str, w: Tensor, choice: WeightChoice | None, quantizer: Quantizer, name: str
    ) -> dict[str, Tensor | None]:
        gates = self._gates(part)

        def integers(choice: WeightChoice) -> dict[str, Tensor | None]:
            made = quantizer.integers(choice, w, name, symmetric=True)
            q = interleave(made.q, gates) if gates else made.q
            return {"packed": tensor_of(pack(q)), "scale": tensor_of(made.scale)}

        def blocks() -> dict[str, Tensor | None]:
            values = torch.from_numpy(float32(w))
            held = values.to(STORAGE[self.storage])
            if choice is not None:
                quantizer.count_rounded(name, values, held.float())
            rows = array(held.float())
            rows = float_blocks(interleave(rows, gates) if gates else rows)
            return {"blocks": torch.from_numpy(rows).to(held.dtype)}

        if choice is None:
            return blocks()
        make = partial(integers, choice) if self.storage == "int8" else blocks
        return quantizer.once(choice, w, name, f"gates: {gates}", make)

    def assigned(self, part: str, weight: Tensor, name: str) -> dict[str, Tensor]:
        """Return the buffers of a matrix that takes the place of the one of `part`."""
        choice = DEFAULT if self.storage == "int8" else None
        made = self._quantized(part, weight, choice, Quantizer(), name)
        return {f"{what}_{part}": tensor for what, tensor in made.items() if tensor is not None}

    def direction(self, held: Tensors) -> Direction:
        """Build what the kernels run, which refers to the memory of int8 and float32 weights."""
        of_input = of_state = None
        if self.bias:
            of_input, of_state = product_biases(
                self.kind, array(held["bias_ih"]), array(held["bias_hh"])
            )
        second = self._matrix(held, "hr", None) if "hr" in self.shapes else None
        made = self._matrix(held, "ih", of_input), self._matrix(held, "hh", of_state)
        return Direction(*made, second, self.reverse)

    def packed(self, held: Tensors, part: str) -> PackedWeight:
        """Return a matrix of an int8 layer as the kernels read it, over the same memory.

        The scales of rows that are padding are 1.
        """
        rows, k, gates = self._rows(part), self.shapes[part][1], self._gates(part)
        scale = array(held[f"scale_{part}"])
        if gates:
            scale = interleave(scale, gates)
            scale[scale == 0] = 1
        return PackedWeight(array(held[f"packed_{part}"]), rows, k, scale)

    def _matrix(self, held: Tensors, part: str, bias: np.ndarray | None) -> Matrix:
        if bias is not None:
            bias = interleave(bias, self._gates(part))
        if self.storage == "int8":
            return Matrix(self.packed(held, part), bias)
        blocks = array(held[f"blocks_{part}"].float())
        return Matrix(FloatWeight(blocks, self._rows(part)), bias)

    def integers(self, held: Tensors, part: str) -> tuple[Tensor, Tensor]:
        """Return (q int8 [n, inputs], scale float32 [n]) of a matrix of an int8 layer."""
        q = unpack(array(held[f"packed_{part}"]), self._rows(part), self.shapes[part][1])
        return self._turned(q, part), held[f"scale_{part}"]

    def weight(self, held: Tensors, part: str) -> Tensor:
        """Return the float32 matrix that the layer multiplies by."""
        if self.storage == "int8":
            q, scale = self.integers(held, part)
            return q.to(torch.float32) * scale[:, None]
        k = self.shapes[part][1]
        blocks = held[f"blocks_{part}"].to(torch.float32).transpose(1, 2).reshape(-1, k)
        return self._turned(array(blocks)[: self._rows(part)], part)

    def _turned(self, rows: np.ndarray, part: str) -> Tensor:
        """Return the kernels' `rows` in PyTorch's order of rows."""
        gates = self._gates(part)
        return torch.from_numpy(separate(rows, gates, self.hidden) if gates else rows.copy())


@dataclass(frozen=True)
class RecurrentStack:
    """Layers of one kind, each with one direction or two. `storage` is that of each layer."""

    kind: Kind
    inputs: int
    hidden: int
    output: int
    bidirectional: bool
    bias: bool
    storage: tuple[str, ...]

    def directions(self) -> Iterator[DirectionForm]:
        """Yield the directions, layer by layer."""
        for i, storage in enumerate(self.storage):
            endings = ("", "_reverse") if self.bidirectional else ("",)
            inputs = len(endings) * self.output if i else self.inputs
            for ending in endings:
                yield DirectionForm(
                    self.kind,
                    inputs,
                    self.hidden,
                    self.output,
                    self.bias,
                    storage,
                    f"_l{i}{ending}",
                )

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise TypeError or ValueError where these are not the buffers of all directions."""
        known = ("int8", *STORAGE)
        for storage in self.storage:
            if storage not in known:
                raise ValueError(f"storage: unknown {storage!r}; there are {', '.join(known)}")
        with torch.device("meta"):
            wanted = [
                (name + one.suffix, buffer)
                for one in self.directions()
                for name, buffer in one.empty().items()
            ]
        if len(tensors) != len(wanted):
            raise ValueError(f"weights: needs {len(wanted)} tensors, not {len(tensors)}")
        for (name, like), found in zip(wanted, tensors, strict=True):
            if found.dtype is not like.dtype:
                raise TypeError(f"weights: {name} is {found.dtype}; needs {like.dtype}")
            if found.shape != like.shape:
                raise ValueError(
                    f"weights: {name} needs shape {list(like.shape)}, not {list(found.shape)}"
                )

    def network(self, tensors: Sequence[Tensor]) -> Recurrent:
        """Build the kernels over the buffers of all directions, one after another."""
        rest = iter(tensors)
        made = [
            one.direction({name: next(rest) for name in one.names()}) for one in self.directions()
        ]
        count = 2 if self.bidirectional else 1
        layers = [made[i : i + count] for i in range(0, len(made), count)]
        return Recurrent(self.kind, layers, self.hidden, self.output)
