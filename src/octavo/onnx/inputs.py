"""Inputs to compare two models on: read from a file, or made up from the graph."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.errors import InputDataError, did_you_mean
from octavo.onnx.constants import Constants

Feed = dict[str, npt.NDArray[Any]]
CheckInputs = str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]

# Sizes tried for symbolic dimensions, in this order, until the float model runs.
SIZES = (8, 1, 2, 16, 32, 64, 3, 128, 224, 256, 512)
BATCH_WORDS = ("batch", "n", "b", "bs", "batch_size")
LOOKUP_STEPS = frozenset("Cast Identity Unsqueeze Squeeze Reshape Flatten Slice Expand".split())


def read_inputs(given: CheckInputs, graph: ir.Graph) -> list[Feed]:
    """The runs of a .npz (one run), a .jsonl (one run a line) or a mapping or list of mappings.

    Arrays are converted to the type of the input; unknown and missing names raise InputDataError.
    """
    if isinstance(given, Mapping):
        runs: list[Mapping[str, Any]] = [given]
    elif isinstance(given, (str, Path)):
        runs = _read_file(Path(given))
    else:
        runs = list(given)
    if not runs:
        raise InputDataError("no inputs were given to check with: the file or list is empty")
    return [_fitted(run, graph, i) for i, run in enumerate(runs)]


def _read_file(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        raise InputDataError(f"inputs {path}: no such file; give a .npz or .jsonl")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return [{name: archive[name] for name in archive.files}]
        if path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines if line.strip()]
    except Exception as error:  # noqa: BLE001 - zipfile, json and numpy each raise their own
        raise InputDataError(f"inputs {path} cannot be read: {error}") from error
    raise InputDataError(f"inputs {path}: the suffix is {path.suffix!r}; give a .npz or .jsonl")


def _fitted(run: Mapping[str, Any], graph: ir.Graph, index: int) -> Feed:
    inputs = {v.name: v for v in _fed(graph) if v.name}
    for name in run:
        if name not in inputs:
            raise InputDataError(
                f"run {index}: the model has no input {name!r}.{did_you_mean(name, inputs)}"
            )
    missing = [n for n in inputs if n not in run]
    if missing:
        raise InputDataError(f"run {index}: input {missing[0]!r} is missing; {sorted(inputs)}")
    feed: Feed = {}
    for name, value in run.items():
        wanted = inputs[name].dtype
        try:
            array = np.asarray(value)
            feed[name] = array if wanted is None else array.astype(wanted.numpy())
        except (ValueError, TypeError) as error:
            raise InputDataError(f"run {index}: input {name!r}: {error}") from error
    return feed


def made_up(model: ir.Model, constants: Constants, seed: int = 0) -> Iterator[Feed]:
    """Guesses at inputs, most likely first: one a size for the symbolic dimensions.

    Floats are normal; integers that index a table stay inside it, integers that are compared with
    a constant take it, other integers and booleans are 1.
    """
    for size in SIZES:
        rng = np.random.default_rng(seed)
        symbols: dict[str, int] = {}
        yield {
            v.name: _made_up_one(v, size, symbols, constants, rng) for v in _fed(model.graph) if v.name
        }


def _fed(graph: ir.Graph) -> list[ir.Value]:
    """The inputs that have no initializer as their default."""
    return [v for v in graph.inputs if not v.is_initializer()]


def _made_up_one(
    value: ir.Value,
    size: int,
    symbols: dict[str, int],
    constants: Constants,
    rng: np.random.Generator,
) -> npt.NDArray[Any]:
    shape = [
        d if isinstance(d, int) else _symbol(d.value, i, size, symbols)
        for i, d in enumerate(value.shape or ())
    ]
    dtype = (value.dtype or ir.DataType.FLOAT).numpy()
    if value.dtype is ir.DataType.STRING:
        return np.full(shape, "text", dtype=object)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        compared = _compared_with(value, constants)
        if compared is not None:
            return np.full(shape, compared, dtype)
        bound = _table_rows(value, constants)
        if bound is None and value.dtype is ir.DataType.UINT8:
            bound = 256
        return rng.integers(0, bound, shape).astype(dtype) if bound else np.ones(shape, dtype)
    return rng.standard_normal(shape).astype(dtype)


def _symbol(name: str | None, position: int, size: int, symbols: dict[str, int]) -> int:
    key = name or f"?{position}"
    if key not in symbols:
        is_batch = key.lower() in BATCH_WORDS or "batch" in key.lower()
        symbols[key] = (1 if size == 1 else 2) if is_batch else size
    return symbols[key]


def _readers(value: ir.Value) -> Iterator[tuple[ir.Node, int, ir.Value]]:
    """Nodes that read `value`, directly or through steps that keep its numbers."""
    stack, seen = [value], set()
    while stack:
        v = stack.pop()
        for node, index in v.uses():
            yield node, index, v
            if node.op_type in LOOKUP_STEPS and index == 0 and id(node) not in seen:
                seen.add(id(node))
                stack.extend(node.outputs)


def _table_rows(value: ir.Value, constants: Constants) -> int | None:
    """The length of the shortest table axis that `value` indexes, or None."""
    found = []
    for node, index, _ in _readers(value):
        if node.op_type == "Gather" and index == 1 and node.inputs[0] is not None:
            table = node.inputs[0]
            if constants.is_constant(table):
                axis = node.attributes.get("axis")
                found.append(constants.shape(table)[0 if axis is None else axis.as_int()])
        elif node.op_type == "EmbedLayerNormalization" and index in (0, 1):
            table = node.inputs[2 if index == 0 else 4]
            if table is not None and constants.is_constant(table):
                found.append(constants.shape(table)[0])
    return min(found) if found else None


def _compared_with(value: ir.Value, constants: Constants) -> int | None:
    for node, index, _ in _readers(value):
        if node.op_type == "Equal":
            other = constants.tensor(node.inputs[1 - index])
            if other is not None and other.size == 1:
                return int(other.numpy().ravel()[0])
    return None
