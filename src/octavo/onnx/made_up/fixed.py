"""Inputs of a graph that have to be fed, and shapes of them that a user fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from octavo.errors import InputDataError, did_you_mean
from octavo.onnx.made_up.names import is_name


def fed(graph: ir.Graph) -> list[ir.Value]:
    """The inputs that have no initializer as their default."""
    return [v for v in graph.inputs if not v.is_initializer()]


@dataclass(frozen=True)
class FixedShapes:
    """Shapes of inputs that a user gave, and what follows from them for symbolic dimensions."""

    inputs: Mapping[str, tuple[int, ...]]
    symbols: Mapping[str, int]

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]], graph: ir.Graph) -> FixedShapes:
        """`shapes` by names of inputs; InputDataError where the model has others."""
        inputs = {v.name: v for v in fed(graph) if v.name}
        symbols: dict[str, tuple[int, str]] = {}
        for name, shape in shapes.items():
            if name not in inputs:
                raise InputDataError(
                    f"shape of {name!r}: the model has no such input.{did_you_mean(name, inputs)}"
                )
            _fix(inputs[name], tuple(shape), symbols)
        sizes = {symbol: size for symbol, (size, _) in symbols.items()}
        return cls({name: tuple(shape) for name, shape in shapes.items()}, sizes)


def _fix(value: ir.Value, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]) -> None:
    """Adds to `symbols` the size of each symbolic dimension, with the input that says so."""
    given = f"the shape {list(shape)} given for input {value.name!r}"
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise InputDataError(f"{given}: sizes are integers above 0; give such")
    if value.shape is None:
        return
    dims = [d if isinstance(d, int) else d.value for d in value.shape]
    misfit = len(dims) != len(shape) or any(
        isinstance(d, int) and 0 <= d != n for d, n in zip(dims, shape, strict=False)
    )
    if misfit:
        raise InputDataError(f"{given} does not fit the model's, {value.shape}; give sizes that do")
    for symbol, size in zip(dims, shape, strict=True):
        if not isinstance(symbol, str) or not is_name(symbol):
            continue
        known, said_by = symbols.setdefault(symbol, (size, value.name or ""))
        if known != size:
            raise InputDataError(
                f"{given} says {symbol} = {size}, and the one given for {said_by!r} says {known}; "
                "the model's inputs share that dimension"
            )
