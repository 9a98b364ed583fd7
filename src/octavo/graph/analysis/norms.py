"""Finds normalizations of rows, named and however they are spelt.

    x ─┬─ Pow(2) ─ ReduceMean ─ Add(eps) ─ Sqrt ─ Reciprocal ─┐
       └────────────────────────────────────────────────────── Mul ─ Mul(weight)   and so on

What counts is the function: the nodes between a reduction and the point where everything that it
feeds meets again are evaluated in float64 on a few rows. Weight and bias are what makes the
normalized rows of the first two rows of results; the others have to be the same then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.functions import Float64, function_of
from octavo.graph.analysis.walk import only_inside
from octavo.ir.norm import LAYER_NORM, RMS_NORM

MOST_NODES = 16
MOST_STEPS = 3  # nodes from stored numbers to a constant
ROWS = 6
RELATIVE = 1e-9
"""Of float64: half of what an epsilon of 1e-12 does to the smallest rows is 5e-7."""
_REDUCTIONS: Mapping[str, Callable[..., Float64]] = {
    "ReduceMean": np.mean,
    "ReduceSum": np.sum,
    "ReduceSumSquare": lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
}
STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class FoundNorm:
    """Nodes up to `last` that normalize `x`: float32 `weight` [N], and `bias` or None."""

    x: ir.Value
    last: ir.Node
    kind: str
    epsilon: float
    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32] | None


def normalized(x: Float64, kind: str, epsilon: float) -> Float64:
    """Rows [..., N] of variance 1, and for a "layer" of mean 0."""
    centred = x - x.mean(axis=-1, keepdims=True) if kind == LAYER_NORM else x
    size: Float64 = centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + epsilon)
    return size


def spelt_norms(graph: ir.Graph, constants: ConstantLookup) -> Iterator[FoundNorm]:
    """Yield the written-out norms of `graph`, in order. A node may be replaced meanwhile."""
    for node in list(graph):
        if node.op_type in _REDUCTIONS and node.domain in STANDARD and node.graph is graph:
            found = _Spelt(node, constants).find()
            if found is not None:
                yield found


def reduces_last(node: ir.Node, rank: int | None, constants: ConstantLookup) -> bool:
    """Tell whether a reduction is over the last of `rank` axes, and keeps it."""
    keep = node.attributes.get("keepdims")
    if keep is not None and keep.as_int() != 1:
        return False
    given = node.attributes.get("axes")
    axes: Sequence[int] = ()
    if given is not None:
        axes = given.as_ints()
    elif len(node.inputs) > 1 and (tensor := constants.tensor(node.inputs[1])) is not None:
        axes = [int(a) for a in tensor.numpy().reshape(-1)]
    return len(axes) == 1 and axes[0] in (-1, None if rank is None else rank - 1)


class _Spelt:
    """One reduction, and what is between it and the point where all meets."""

    def __init__(self, reduction: ir.Node, constants: ConstantLookup) -> None:
        self._reduction, self._constants = reduction, constants
        self._scalars: set[float] = {0.0}
        self._rank: int | None = None

    def find(self) -> FoundNorm | None:
        """Return the largest region that is a normalization; None where there is none."""
        start = self._reduction.inputs[0]
        if start is None:
            return None
        root, path = start, [self._reduction]
        squared = start.producer()
        if squared is not None and self._is_square(squared) and squared.inputs[0] is not None:
            root, path = squared.inputs[0], [squared, self._reduction]
        self._rank = None if root.shape is None else len(root.shape)
        width = self._width(root)
        if width is None:
            return None
        best = None
        for last, values, x in self._regions(root, path, width):
            best = self._fits(root, last, values, x) or best
        return best

    def _is_square(self, node: ir.Node) -> bool:
        if node.domain not in STANDARD or len(node.inputs) != 2:
            return False
        if node.op_type == "Mul":
            return node.inputs[0] is node.inputs[1]
        exponent = self._constants.tensor(node.inputs[1])
        is_two = exponent is not None and bool(np.all(exponent.numpy() == 2))
        return node.op_type == "Pow" and is_two

    def _width(self, root: ir.Value) -> int | None:
        """Tell how long rows are: as the model says, or as constants behind the reduction are."""
        if root.shape is not None and len(root.shape) and isinstance(root.shape[-1], int):
            return root.shape[-1]
        found, at = set[int](), [self._reduction]
        for node in at:
            for use in node.outputs[0].uses():
                passes = use.node.op_type == "Cast" or function_of(use.node) is not None
                if len(at) < MOST_NODES and passes and use.node not in at:
                    at.append(use.node)
                    sizes = [self._constants.tensor(v) for v in use.node.inputs]
                    found |= {t.shape.numpy()[-1] for t in sizes if t is not None and t.size > 1}
        return int(found.pop()) if len(found) == 1 else None

    def _regions(
        self, root: ir.Value, path: Sequence[ir.Node], width: int
    ) -> Iterator[tuple[ir.Node, Float64, Float64]]:
        """Yield each node where all paths from `root` meet, with its values and those of `root`."""
        x = sample(width)
        known: dict[ir.Value, Float64] = {root: x}
        region: set[ir.Node] = set()
        for node in path:
            values = self._evaluate(node, known)
            if values is None:
                return
            region.add(node)
            known[node.outputs[0]] = values
        while len(region) < MOST_NODES:
            ready = self._next(root, known, region)
            if ready is None:
                return
            node, values = ready
            region.add(node)
            known[node.outputs[0]] = values
            inner = (v for v in known if v is not root and v is not node.outputs[0])
            if values.shape == x.shape and all(only_inside(v, region) for v in inner):
                yield node, values, x

    def _next(
        self, root: ir.Value, known: dict[ir.Value, Float64], region: set[ir.Node]
    ) -> tuple[ir.Node, Float64] | None:
        """Return a node that reads the region, `root` and constants alone, and its values."""
        for value in known:
            for use in () if value is root else value.uses():
                if use.node in region or use.node.graph is not self._reduction.graph:
                    continue
                values = self._evaluate(use.node, known)
                if values is not None:
                    return use.node, values
        return None

    def _evaluate(self, node: ir.Node, known: dict[ir.Value, Float64]) -> Float64 | None:
        if node.op_type in _REDUCTIONS and node.domain in STANDARD:
            values = None if node.inputs[0] is None else known.get(node.inputs[0])
            if values is None or not reduces_last(node, self._rank, self._constants):
                return None
            reduced: Float64 = _REDUCTIONS[node.op_type](values, axis=-1, keepdims=True)
            return reduced
        if node.op_type == "Cast" and node.domain in STANDARD:
            to = ir.DataType(node.attributes["to"].as_int())
            return known.get(node.inputs[0]) if to is ir.DataType.FLOAT else None  # type: ignore[arg-type]
        function = function_of(node)
        operands = [known.get(v, self._row(v)) if v is not None else None for v in node.inputs]
        if function is None or not 1 <= len(operands) <= 2:
            return None
        given = [o for o in operands if o is not None]
        if len(given) < len(operands):
            return None
        with np.errstate(all="ignore"):
            try:
                return function(*given)
            except (TypeError, ValueError):  # another number of operands, or other sizes
                return None

    def _row(self, value: ir.Value, steps: int = MOST_STEPS) -> Float64 | None:
        """Return a constant that is the same for all rows, [] or [N]; remember single numbers."""
        tensor = self._constants.tensor(value)
        if tensor is None:
            node = value.producer()
            function = None if node is None else function_of(node)
            if function is None or node is None or not steps:
                return None
            parts = [None if v is None else self._row(v, steps - 1) for v in node.inputs]
            known = [p for p in parts if p is not None]
            return function(*known) if 0 < len(known) == len(parts) else None
        if tensor.dtype is not ir.DataType.FLOAT:
            # ONNX allows exponents of other types than the base.
            return np.asarray(tensor.numpy(), np.float64).reshape(()) if tensor.size == 1 else None
        shape = tensor.shape.numpy()
        if any(d != 1 for d in shape[:-1]) or len(shape) > (self._rank or 1):  # it would add axes
            return None
        row = np.asarray(tensor.numpy(), np.float64).reshape(-1)
        if row.size == 1:
            self._scalars.add(float(row[0]))
            return row.reshape(())
        return row

    def _fits(self, root: ir.Value, last: ir.Node, y: Float64, x: Float64) -> FoundNorm | None:
        if not np.all(np.isfinite(y)):
            return None
        for kind in (RMS_NORM, LAYER_NORM):
            for epsilon in self._scalars:
                with np.errstate(all="ignore"):
                    rows = normalized(x, kind, epsilon)
                    weight = (y[0] - y[1]) / (rows[0] - rows[1])
                bias = y[0] - weight * rows[0]
                size = np.abs(weight * rows) + np.abs(y) + np.abs(bias)
                if np.all(np.abs(weight * rows + bias - y) <= RELATIVE * size):
                    small = np.all(np.abs(bias) <= RELATIVE * np.abs(weight).max())
                    return FoundNorm(
                        root,
                        last,
                        kind,
                        epsilon,
                        weight.astype(np.float32),
                        None if small else bias.astype(np.float32),
                    )
        return None


def sample(width: int) -> Float64:
    """Rows [ROWS, width] of different sizes and means, some so small that an epsilon counts."""
    rows: Any = np.random.default_rng(0).standard_normal((ROWS, width))
    sizes = np.array([1.0, 3.0, 1e-3, 1e-4, 30.0, 1.0])
    means = np.array([0.0, 1.0, 0.0, 1e-4, -20.0, 4.0])
    values: Float64 = rows * sizes[:, None] + means[:, None]
    return values
