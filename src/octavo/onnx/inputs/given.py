"""Inputs of a graph that have to be fed, and what a user gives for them: runs, or shapes alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import IOBase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.feeds import GIVE, LABELS, read_runs
from octavo.errors import InputDataError, brief, did_you_mean, listed
from octavo.onnx.inputs.roles import is_name
from octavo.onnx.read import map_types

Feed = dict[str, npt.NDArray[Any]]
"""Arrays by names of inputs."""
CheckInputs = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""What `read_inputs` reads."""


def required_inputs(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs that have no initializer as their default."""
    return [v for v in graph.inputs if not v.is_initializer()]


@dataclass(frozen=True)
class FixedShapes:
    """Shapes of inputs that a user gave, and what follows from them for symbolic dimensions."""

    inputs: Mapping[str, tuple[int, ...]]
    symbols: Mapping[str, int]

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]], graph: ir.Graph) -> FixedShapes:
        """Build from `shapes` by names of inputs; InputDataError where the model has others."""
        inputs = {v.name: v for v in required_inputs(graph) if v.name}
        symbols: dict[str, tuple[int, str]] = {}
        for name, shape in shapes.items():
            if name not in inputs:
                raise InputDataError(
                    f"shape of {name!r}: the model has no such input.{did_you_mean(name, inputs)}"
                )
            _add_sizes(inputs[name], tuple(shape), symbols)
        sizes = {symbol: size for symbol, (size, _) in symbols.items()}
        return cls({name: tuple(shape) for name, shape in shapes.items()}, sizes)


def _add_sizes(
    value: ir.Value, shape: tuple[int, ...], symbols: dict[str, tuple[int, str]]
) -> None:
    """Add to `symbols` the size of each symbolic dimension, with the input that says so."""
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


def read_inputs(given: CheckInputs, graph: ir.Graph) -> list[Feed]:
    """Read the runs of a .npz (one run), a .jsonl (one run a line), a mapping or a list of them.

    Arrays are converted to the type of the input where that keeps their values. What does not fit
    the model's inputs raises InputDataError.
    """
    if isinstance(given, (str, os.PathLike)):
        runs = read_runs(Path(given))
    elif isinstance(given, Mapping):
        runs = [("run 0", given)]
    elif isinstance(given, Iterable) and not isinstance(given, IOBase):
        runs = [(f"run {i}", run) for i, run in enumerate(given)]
    else:
        raise InputDataError(f"check_inputs is a {type(given).__name__}; {GIVE}")
    if not runs:
        raise InputDataError(f"check_inputs {_path_prefix(given)}holds no runs; {GIVE}")
    return [_checked_run(run, graph, where) for where, run in runs]


def _path_prefix(given: object) -> str:
    return f"{given} " if isinstance(given, (str, os.PathLike)) else ""


def _checked_run(run: Any, graph: ir.Graph, where: str) -> Feed:
    if not isinstance(run, Mapping):
        raise InputDataError(
            f"inputs {where}: a run maps names of inputs to arrays, and this is a "
            f'{type(run).__name__}; give one such as {{"x": [[0.5, 1.0]]}}'
        )
    defaults = {v.name: v for v in graph.inputs if v.is_initializer() and v.name}
    inputs = {v.name: v for v in required_inputs(graph) if v.name}
    # A file that was made for tuning has labels, too, which no model takes.
    run = {n: v for n, v in run.items() if n in inputs or n in defaults or n not in LABELS}
    for name in run:
        if name not in inputs and name not in defaults:
            raise InputDataError(
                f"inputs {where}: the model has no input {name!r}.{did_you_mean(str(name), inputs)}"
            )
    missing = [n for n in inputs if n not in run]
    if missing:
        raise InputDataError(
            f"inputs {where}: {missing[0]!r} is missing; the model takes {listed(inputs)}"
        )
    known = {**defaults, **inputs}
    if all(_lacks_batch(inputs[name], run[name]) for name in inputs):
        run = {name: [value] if name in inputs else value for name, value in run.items()}
    return {name: _array(known[name], value, where) for name, value in run.items()}


def _lacks_batch(value: ir.Value, given: Any) -> bool:
    """Tell whether `given` is one sample of an input whose first axis may be 1."""
    if value.shape is None or not len(value.shape):
        return False
    try:
        axes = np.ndim(given)
    except ValueError:  # lists of several lengths: `_array` says so
        return False
    first = value.shape[0]
    return axes == len(value.shape) - 1 and (first == 1 or not isinstance(first, int))


def _array(value: ir.Value, given: Any, where: str) -> Any:
    """Return `given` in the input's type and shape; a map where the input takes one.

    Raises InputDataError.
    """
    problem = f"inputs {where}: input {value.name!r}"
    if map_types.map_type(value) is not None:
        return map_types.read_map(value, given, problem)
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
