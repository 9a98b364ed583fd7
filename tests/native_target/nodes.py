"""Models of ai.octavo's operators made by hand, and sessions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
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
    """A session on the model."""
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


def stored(layer: Layer, prefix: str = "") -> tuple[dict[str, np.ndarray], int]:
    """The constants of one layer by name, in the operator's order, and the weight's checksum."""
    n, k = layer.q.shape
    packed = pack(layer.q)
    arrays = {
        f"{prefix}W": packed.view(np.int8).reshape(-(-n // 16), -(-k // 4), 16, 4),
        f"{prefix}W_scale": layer.scale,
        f"{prefix}W_zero_point": np.zeros(n, np.int8)
        if layer.zero is None
        else layer.zero.astype(np.int8),
        f"{prefix}B": np.zeros(n, np.float32) if layer.bias is None else layer.bias,
    }
    return arrays, checksum(packed)


def linear_model(
    layer: Layer, x: Shape, residual: Shape = None, out: Shape = None
) -> onnx.ModelProto:
    """x [..., K] (and residual) -> ai.octavo.Linear, the node `dense` -> y."""
    constants, digest = stored(layer)
    inputs = {"x": (FLOAT, x)} | ({} if residual is None else {"residual": (FLOAT, residual)})
    n, k = layer.q.shape
    made = helper.make_node(
        *("Linear", ["x", *constants, *list(inputs)[1:]], ["y"], "dense"),
        domain=DOMAIN,
        N=n,
        K=k,
        group_size=layer.group,
        activation=layer.activation,
        checksum=digest,
    )
    return build([made], inputs, {"y": (FLOAT, out)}, constants, domains=(DOMAIN,))


def grouped_model(layers: Sequence[Layer], x: Shape) -> onnx.ModelProto:
    """x [..., K] -> ai.octavo.GroupedLinear, the node `dense` -> y0, y1, ..."""
    parts = [stored(layer, f"{i}_") for i, layer in enumerate(layers)]
    constants = {name: array for arrays, _ in parts for name, array in arrays.items()}
    outs = [f"y{i}" for i in range(len(layers))]
    made = helper.make_node(
        *("GroupedLinear", ["x", *constants], outs, "dense"),
        domain=DOMAIN,
        N=[layer.q.shape[0] for layer in layers],
        K=layers[0].q.shape[1],
        group_size=layers[0].group,
        activation=" ".join(layer.activation for layer in layers),
        checksum=[digest for _, digest in parts],
    )
    return build([made], {"x": (FLOAT, x)}, outs, constants, domains=(DOMAIN,))
