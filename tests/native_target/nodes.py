"""Models of ai.octavo's operators made by hand, and sessions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    RuntimeException,
)

from octavo.core.kernels import checksum, pack
from octavo.ir import DOMAIN
from octavo.onnx.session import register
from tests.core.statement import Layer
from tests.graphs import FLOAT, build, node

REFUSALS = (Fail, InvalidArgument, InvalidGraph, RuntimeException)
"""What ONNX Runtime raises with the message of an operator."""
Arrays = Mapping[str, np.ndarray]
Shape = Sequence[Any] | None


def options_with(threads: int = 1) -> ort.SessionOptions:
    """Session options that run Octavo's operators, and log nothing: refusals are raised."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    register(options)
    return options


def opened(
    model: onnx.ModelProto | Path, threads: int = 1, options: ort.SessionOptions | None = None
) -> ort.InferenceSession:
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = options_with(threads) if options is None else options
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def session(
    op: str,
    inputs: Mapping[str, tuple[int, Shape]],
    constants: Arrays,
    threads: int = 1,
    **more: Any,
) -> ort.InferenceSession:
    """A session on one node "layer" over `inputs` (element type, shape) and then `constants`."""
    made = node(op, [*inputs, *constants], ["y"], name="layer", domain=DOMAIN, **more)
    return opened(build([made], inputs, ["y"], constants, domains=(DOMAIN,)), threads)


def run(
    op: str, feeds: Arrays, constants: Arrays | None = None, threads: int = 1, **attributes: Any
) -> np.ndarray:
    """What the node makes of `feeds`; only their ranks are known beforehand."""
    inputs = {
        name: (helper.np_dtype_to_tensor_dtype(a.dtype), [f"{name}{i}" for i in range(a.ndim)])
        for name, a in feeds.items()
    }
    s = session(op, inputs, constants or {}, threads, **attributes)
    y: np.ndarray = s.run(None, dict(feeds))[0]
    return y


def refuses(
    message: str, op: str, feeds: Arrays, constants: Arrays | None = None, **attributes: Any
) -> None:
    """Asserts that the node is refused, when it is opened or run, by its name and `message`."""
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.{op}\): .*{message}"):
        run(op, feeds, constants, **attributes)


def inferred(
    op: str,
    shapes: Mapping[str, Shape],
    constants: Arrays | None = None,
    kinds: Mapping[str, int] | None = None,
    **attributes: Any,
) -> list[Any]:
    """The output's shape as ONNX Runtime knows it before a run; sizes nobody knows are None."""
    inputs = {name: ((kinds or {}).get(name, FLOAT), shape) for name, shape in shapes.items()}
    found = session(op, inputs, constants or {}, **attributes).get_outputs()[0].shape
    return [None if str(d).startswith("octavo_") else d for d in found]


Change = Callable[[onnx.ModelProto], None]


def sets(name: str, value: Any) -> Change:
    """Sets an attribute of the first node; None takes it away."""

    def change(model: onnx.ModelProto) -> None:
        attributes = model.graph.node[0].attribute
        kept = [a for a in attributes if a.name != name]
        del attributes[:]
        attributes.extend(kept if value is None else [*kept, helper.make_attribute(name, value)])

    return change


def puts(name: str | int, array: Any) -> Change:
    """Puts `array`, or what it makes of the numbers, in the place of a constant (by its input)."""

    def change(model: onnx.ModelProto) -> None:
        held = model.graph.node[0].input[name] if isinstance(name, int) else name
        (tensor,) = [i for i in model.graph.initializer if i.name == held]
        made = array(numpy_helper.to_array(tensor).copy()) if callable(array) else array
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(made), held))

    return change


Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""W, W_scale, W_zero_point and B of one layer."""


def dense_model(
    op: str, layers: Sequence[Parts], inputs: Mapping[str, Shape], outs: Any, **attributes: Any
) -> onnx.ModelProto:
    """x [..., K] and what else `inputs` names -> ai.octavo's `op`, the node `dense` -> `outs`."""
    prefixes = [""] if op == "Linear" else [f"{i}_" for i in range(len(layers))]
    constants = {
        f"{prefix}{name}": array
        for prefix, parts in zip(prefixes, layers, strict=True)
        for name, array in zip(("W", "W_scale", "W_zero_point", "B"), parts, strict=True)
    }
    sizes = [len(parts[1]) for parts in layers]
    digests = [checksum(parts[0].view(np.uint8).reshape(-1)) for parts in layers]
    said = {"N": sizes, "checksum": digests}
    if op == "Linear":
        said = {"N": sizes[0], "checksum": digests[0]}
    names, typed = ["x", *constants, *list(inputs)[1:]], {n: (FLOAT, s) for n, s in inputs.items()}
    made = helper.make_node(op, names, list(outs), "dense", domain=DOMAIN, **said | attributes)
    return build([made], typed, outs, constants, domains=(DOMAIN,))


def stored(layer: Layer) -> Parts:
    n, k = layer.q.shape
    zero = np.zeros(n) if layer.zero is None else layer.zero
    bias = np.zeros(n, np.float32) if layer.bias is None else layer.bias
    packed = pack(layer.q).view(np.int8).reshape(-(-n // 16), -(-k // 4), 16, 4)
    return packed, layer.scale, zero.astype(np.int8), bias


def linear_model(
    layer: Layer, x: Shape, residual: Shape = None, out: Shape = None
) -> onnx.ModelProto:
    """x [..., K] (and residual) -> ai.octavo.Linear -> y."""
    inputs = {"x": x} | ({} if residual is None else {"residual": residual})
    said = {"K": layer.q.shape[1], "group_size": layer.group, "activation": layer.activation}
    return dense_model("Linear", [stored(layer)], inputs, {"y": (FLOAT, out)}, **said)


def grouped_model(layers: Sequence[Layer], x: Shape) -> onnx.ModelProto:
    """x [..., K] -> ai.octavo.GroupedLinear -> y0, y1, ..."""
    said: dict[str, Any] = {"K": layers[0].q.shape[1], "group_size": layers[0].group}
    said["activation"] = " ".join(layer.activation for layer in layers)
    outs = [f"y{i}" for i in range(len(layers))]
    return dense_model("GroupedLinear", list(map(stored, layers)), {"x": x}, outs, **said)
