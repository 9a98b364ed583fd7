"""Inputs to compare two models on: read from a file, or made up from the graph."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.feeds import GIVE, read_runs
from octavo.errors import InputDataError, brief, did_you_mean
from octavo.onnx.constants import Constants
from octavo.onnx.readers import Wish, compared_with, table_rows, wanted_shape

Feed = dict[str, npt.NDArray[Any]]
CheckInputs = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]

# Sizes tried for symbolic dimensions, in this order, until the float model runs.
SIZES = (8, 1, 2, 16, 32, 64, 3, 128, 224, 256, 512)
BATCH_WORDS = ("batch", "n", "b", "bs", "batch_size")
MOST_ELEMENTS = 2**24  # of all inputs of a guess with symbolic dimensions


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
        if not isinstance(symbol, str) or not symbol:
            continue
        known, said_by = symbols.setdefault(symbol, (size, value.name or ""))
        if known != size:
            raise InputDataError(
                f"{given} says {symbol} = {size}, and the one given for {said_by!r} says {known}; "
                "the model's inputs share that dimension"
            )


def read_inputs(given: CheckInputs, graph: ir.Graph) -> list[Feed]:
    """The runs of a .npz (one run), a .jsonl (one run a line) or a mapping or list of mappings.

    Arrays are converted to the type of the input where that keeps their values. What does not fit
    the model's inputs raises InputDataError.
    """
    if isinstance(given, (str, os.PathLike)):
        runs = read_runs(Path(given))
    elif isinstance(given, Mapping):
        runs = [("run 0", given)]
    elif isinstance(given, Iterable):
        runs = [(f"run {i}", run) for i, run in enumerate(given)]
    else:
        raise InputDataError(f"check_inputs is a {type(given).__name__}; {GIVE}")
    if not runs:
        raise InputDataError(f"check_inputs {_named(given)}holds no runs; {GIVE}")
    return [_fitted(run, graph, where) for where, run in runs]


def _named(given: object) -> str:
    return f"{given} " if isinstance(given, (str, os.PathLike)) else ""


def _fitted(run: Any, graph: ir.Graph, where: str) -> Feed:
    if not isinstance(run, Mapping):
        raise InputDataError(
            f"inputs {where}: a run maps names of inputs to arrays, and this is a "
            f'{type(run).__name__}; give one such as {{"x": [[0.5, 1.0]]}}'
        )
    defaults = {v.name: v for v in graph.inputs if v.is_initializer() and v.name}
    inputs = {v.name: v for v in fed(graph) if v.name}
    for name in run:
        if name not in inputs and name not in defaults:
            raise InputDataError(
                f"inputs {where}: the model has no input {name!r}.{did_you_mean(str(name), inputs)}"
            )
    missing = [n for n in inputs if n not in run]
    if missing:
        raise InputDataError(
            f"inputs {where}: {missing[0]!r} is missing; the model takes {', '.join(inputs)}"
        )
    known = {**defaults, **inputs}
    return {name: _array(known[name], value, where) for name, value in run.items()}


def _array(value: ir.Value, given: Any, where: str) -> npt.NDArray[Any]:
    """`given` in the input's type and shape."""
    problem = f"inputs {where}: input {value.name!r}"
    try:
        array = np.asarray(given)
        wanted = array.dtype if value.dtype is None else value.dtype.numpy()
        with np.errstate(all="ignore"):
            result = array.astype(wanted)
            kept = wanted.kind not in "iub" or bool(np.all(result == array))
    except (ValueError, TypeError, OverflowError) as error:
        kind = value.dtype.name.lower() if value.dtype else "an array"
        raise InputDataError(
            f"{problem} takes {kind}, which cannot hold what is given: {brief(error)}"
        ) from error
    if value.dtype is ir.DataType.STRING:
        kept = all(isinstance(item, str) for item in result.ravel())
    if not kept:
        raise InputDataError(
            f"{problem} takes {value.dtype.name.lower() if value.dtype else wanted}, which cannot "
            f"hold what is given ({array.dtype})"
        )
    dims = [d if isinstance(d, int) and d >= 0 else None for d in value.shape or ()]
    misfit = len(dims) != array.ndim or any(
        d is not None and d != n for d, n in zip(dims, array.shape, strict=False)
    )
    if value.shape is not None and misfit:
        raise InputDataError(
            f"{problem} has the shape {list(array.shape)}; the model takes {value.shape}"
        )
    return result


def made_up(
    model: ir.Model,
    constants: Constants,
    seed: int | Sequence[int] = 0,
    fixed: FixedShapes | None = None,
    way: int = 0,
) -> Iterator[Feed]:
    """Guesses at inputs that the model accepts, one for each of SIZES.

    Symbolic dimensions of one name get one size, sums of names their sum, and the axis along which
    a layer reads its input what the layer's weight has. Floats are standard normal; integers that
    index a table stay inside it, integers that are compared with a constant take it, other
    integers and booleans are 1. What is `fixed` has the same size in all guesses. Another `way`
    (below `ways`) may lead through other branches: booleans are False, and integers take the next
    number that they are compared with, or none of them.
    """
    inputs = [v for v in fed(model.graph) if v.name]
    wishes = [wanted_shape(v, constants) for v in inputs]
    for size in SIZES:
        rng = np.random.default_rng(seed)
        symbols = dict(fixed.symbols) if fixed else {}
        shapes = [
            list(fixed.inputs[v.name or ""])
            if fixed and v.name in fixed.inputs
            else _shape(v, wish, size, symbols)
            for v, wish in zip(inputs, wishes, strict=True)
        ]
        sizes = [math.prod(shape) for shape in shapes]
        guessed = len(symbols) > (len(fixed.symbols) if fixed else 0)
        if 0 in sizes or (guessed and sum(sizes) > MOST_ELEMENTS):
            continue  # an empty input shows nothing, and ONNX Runtime's LSTM dies of it
        yield {
            v.name or "": _made_up_one(v, shape, constants, rng, way)
            for v, shape in zip(inputs, shapes, strict=True)
        }


def describe(feeds: Sequence[Feed], model: ir.Model) -> str:
    """The inputs in one line, with their shapes."""
    names = dict.fromkeys(name for feed in feeds for name in feed)
    shapes = {n: dict.fromkeys(str([*f[n].shape]) for f in feeds if n in f) for n in names}
    return "; ".join(f"{name} {' and '.join(found)}" for name, found in shapes.items())


def ways(model: ir.Model, constants: Constants) -> int:
    """How many ways there are to make up inputs by which a model may choose its branches."""
    return max((_ways_of(v, constants) for v in fed(model.graph)), default=1)


def _ways_of(value: ir.Value, constants: Constants) -> int:
    if value.dtype is ir.DataType.BOOL:
        return 2
    is_integer = value.dtype is not None and value.dtype.is_integer()
    return 1 + len(compared_with(value, constants)) if is_integer else 1


def fed(graph: ir.Graph) -> list[ir.Value]:
    """The inputs that have no initializer as their default."""
    return [v for v in graph.inputs if not v.is_initializer()]


def _shape(value: ir.Value, wish: Wish, size: int, symbols: dict[str, int]) -> list[int]:
    dims: list[int | str | None]
    if value.shape is None:
        symbols.setdefault("?", size)
        dims = [None] * (wish.rank or 0)
    else:
        dims = [d if isinstance(d, int) else d.value for d in value.shape]
    shape = []
    for i, d in enumerate(dims):
        wanted = wish.dims.get(i, wish.dims.get(i - len(dims)))
        if isinstance(d, int) and d >= 0:
            shape.append(d)
        elif wanted is not None:
            shape.append(wanted)
        else:
            shape.append(_symbol(d if isinstance(d, str) else f"?{i}", size, symbols))
    return shape


def _symbol(name: str, size: int, symbols: dict[str, int]) -> int:
    terms = [t.strip() for t in name.split("+")]
    if len(terms) > 1 and all(terms):  # such as "past_length + length"
        return sum(int(t) if t.isdigit() else _symbol(t, size, symbols) for t in terms)
    if name not in symbols:
        is_batch = name.lower() in BATCH_WORDS or "batch" in name.lower()
        symbols[name] = (1 if size == 1 else 2) if is_batch else size
    return symbols[name]


def _other_than(numbers: Sequence[int], dtype: np.dtype[Any]) -> int:
    """A number of the type that is none of them, if there is one beside them."""
    limits = np.iinfo(dtype)
    beside = (max(numbers) + 1, min(numbers) - 1)
    return next((n for n in beside if limits.min <= n <= limits.max), numbers[0])


def _made_up_one(
    value: ir.Value, shape: list[int], constants: Constants, rng: np.random.Generator, way: int
) -> npt.NDArray[Any]:
    dtype = (value.dtype or ir.DataType.FLOAT).numpy()
    if value.dtype is ir.DataType.STRING:
        return np.full(shape, "text", dtype=object)
    if dtype.kind == "b":
        return np.full(shape, way == 0)
    if dtype.kind in "iu":
        compared = compared_with(value, constants)
        if compared:
            choices = [*compared, _other_than(compared, dtype)]
            return np.full(shape, choices[way % len(choices)], dtype)
        bound = table_rows(value, constants)
        if bound is None and value.dtype is ir.DataType.UINT8:
            bound = 256
        return rng.integers(0, bound, shape, dtype) if bound else np.ones(shape, dtype)
    return np.asarray(rng.standard_normal(shape, np.float32)).astype(dtype)
