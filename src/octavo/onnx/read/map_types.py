"""Maps, and sequences of maps: what scikit-learn's classifiers give and DictVectorizer takes.

    ai.onnx.ml.ZipMap           probabilities [n, k] -> n maps {class: probability}
    ai.onnx.ml.DictVectorizer   a map {feature: number} -> [1, k]

onnx_ir has no such types. They are set aside when a model is read, each with the value that has
it, and put back when the model is written. Nothing that Octavo converts has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from octavo.errors import InputDataError

_TYPE = "octavo.map_type"
_TEXT = onnx.TensorProto.STRING

Types = dict[str, onnx.TypeProto]
"""By the names of values."""


def detach_types(model: onnx.ModelProto) -> Types:
    """Take types that hold maps out of `model`, which is changed; return them by name."""
    found: Types = {}
    for value in _values(model):
        if holds_map(value.type):
            found[value.name] = onnx.TypeProto()
            found[value.name].CopyFrom(value.type)
            value.ClearField("type")
    return found


def have_maps(model: onnx.ModelProto) -> bool:
    """Tell whether `detach_types` would change it."""
    return any(holds_map(value.type) for value in _values(model))


def attach_types(model: ir.Model, types: Types) -> None:
    """Attach `types`, by name, to the graph's inputs and outputs."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.name in types:
            value.meta[_TYPE] = types[value.name]


def attached_types(model: ir.Model) -> Types:
    """Return the types, by name, that `attach_types` attached."""
    values = (*model.graph.inputs, *model.graph.outputs)
    return {v.name or "": v.meta[_TYPE] for v in values if _TYPE in v.meta}


def restore_types(model: ir.Model, written: onnx.ModelProto) -> None:
    """Put the types that are attached to `model` into `written`."""
    types = attached_types(model)
    for value in (*written.graph.input, *written.graph.output):
        if value.name in types:
            value.type.CopyFrom(types[value.name])


def map_type(value: ir.Value) -> onnx.TypeProto | None:
    """Return the type of an input or output that holds maps; None for others."""
    found: onnx.TypeProto | None = value.meta.get(_TYPE)
    return found


def holds_map(kind: onnx.TypeProto) -> bool:
    """Tell whether it is a map, or a sequence or option of such."""
    inside = _inside(kind)
    return kind.HasField("map_type") or (inside is not None and holds_map(inside))


def make_up_map(value: ir.Value, rng: np.random.Generator) -> Any:
    """Make up a map of numbers for the input `value`, with the keys that its reader knows."""
    kind = map_type(value)
    assert kind is not None
    return _make_up(kind, _keys(value, kind), rng)


def _make_up(kind: onnx.TypeProto, keys: Sequence[Any], rng: np.random.Generator) -> Any:
    inside = _inside(kind)
    if inside is not None:
        made = [_make_up(inside, keys, rng)]
        return made if kind.HasField("sequence_type") else made[0]
    element = kind.map_type.value_type.tensor_type.elem_type
    if element == _TEXT:
        return dict.fromkeys(keys, "text")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    numbers = rng.standard_normal(len(keys))
    return dict(zip(keys, numbers.astype(dtype).tolist(), strict=True))


def _keys(value: ir.Value, kind: onnx.TypeProto) -> list[Any]:
    """Return the keys of the DictVectorizer that reads `value`; numbers for CastMap."""
    for node, _ in value.uses():
        for name in ("string_vocabulary", "int64_vocabulary"):
            if name in node.attributes:
                return list(node.attributes[name].value)
        if node.op_type == "CastMap" and "max_map" in node.attributes:
            return list(range(max(1, node.attributes["max_map"].as_int())))
    while not kind.HasField("map_type"):
        inside = _inside(kind)
        assert inside is not None
        kind = inside
    return ["0"] if kind.map_type.key_type == _TEXT else [0]


def read_map(value: ir.Value, what: Any, problem: str) -> Any:
    """Read `what` as the input `value` takes it; raise InputDataError beginning with `problem`."""
    kind = map_type(value)
    assert kind is not None
    return _read(kind, what, problem)


def _read(kind: onnx.TypeProto, what: Any, problem: str) -> Any:
    inside = _inside(kind)
    if inside is not None and not kind.HasField("sequence_type"):
        return _read(inside, what, problem)
    if inside is not None:
        if isinstance(what, (str, Mapping)) or not isinstance(what, Sequence):
            raise InputDataError(
                f"{problem} takes a sequence of maps, and this is a {type(what).__name__}; give a "
                'list such as [{"feature": 0.5}]'
            )
        return [_read(inside, one, problem) for one in what]
    if not isinstance(what, Mapping):
        raise InputDataError(
            f"{problem} takes a map, and this is a {type(what).__name__}; give one such as "
            '{"feature": 0.5}'
        )
    element = kind.map_type.value_type.tensor_type.elem_type
    key_is_text, value_is_text = kind.map_type.key_type == _TEXT, element == _TEXT
    dtype = None if value_is_text else onnx.helper.tensor_dtype_to_np_dtype(element)
    try:
        return {
            _text(k) if key_is_text else int(k): _text(v) if dtype is None else dtype.type(v).item()
            for k, v in what.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise InputDataError(
            f"{problem} takes a map of {'texts' if key_is_text else 'whole numbers'} to "
            f"{'texts' if dtype is None else dtype.name}, which cannot hold what is given: {error}"
        ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def as_array(output: Any) -> Any:
    """Return an output that is no tensor as an array of its numbers; anything else as it is.

    A map is its values in the order of its keys, [k]; a sequence of maps with the same keys
    [n, k]; a sequence of tensors of one shape is stacked, of several shapes put end to end.
    """
    if isinstance(output, dict):
        return _values_of(output, sorted(output, key=str))
    if not isinstance(output, list) or not output:
        return output
    if all(isinstance(one, np.ndarray) for one in output):
        if len({one.shape for one in output}) == 1:
            return np.stack(output)
        return np.concatenate([one.ravel() for one in output])
    if not all(isinstance(one, dict) for one in output):
        return output
    keys = sorted({key for one in output for key in one}, key=str)
    if any(len(one) != len(keys) for one in output):
        return np.concatenate([_values_of(one, sorted(one, key=str)) for one in output])
    return np.stack([_values_of(one, keys) for one in output])


def _values_of(one: Mapping[Any, Any], keys: Sequence[Any]) -> Any:
    values = np.array([one[key] for key in keys])
    return values.astype(np.float32) if values.dtype == np.float64 else values


def _inside(kind: onnx.TypeProto) -> onnx.TypeProto | None:
    """Return the type of what a sequence or an option holds; None for other types."""
    for field in ("sequence_type", "optional_type"):
        if kind.HasField(field):
            inside: onnx.TypeProto = getattr(kind, field).elem_type
            return inside
    return None


def _values(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    """Everything in `model` that states its type, in subgraphs and local functions too."""
    yield from _values_in(model.graph)
    for function in model.functions:
        yield from function.value_info
        yield from _values_below(function.node)


def _values_in(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    for values in (graph.input, graph.output, graph.value_info):
        yield from values
    yield from _values_below(graph.node)


def _values_below(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.ValueInfoProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _values_in(attribute.g)
            for graph in attribute.graphs:
                yield from _values_in(graph)
