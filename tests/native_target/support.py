"""Models of Octavo's operators, drawn by hand, and sessions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from octavo.core.kernels import checksum, pack
from octavo.ir import DOMAIN, VERSION
from octavo.onnx import custom_ops_library
from tests.core.statement import Layer

FLOAT = TensorProto.FLOAT
Inputs = Mapping[str, Sequence[Any] | None]


def stored(layer: Layer, prefix: str = "") -> tuple[dict[str, np.ndarray], int]:
    """The constants of one layer by name, in the operator's order, and the weight's checksum."""
    n, k = layer.q.shape
    packed = pack(layer.q)
    zero = np.zeros(n, np.int8) if layer.zero is None else layer.zero.astype(np.int8)
    bias = np.zeros(n, np.float32) if layer.bias is None else layer.bias
    arrays = {
        f"{prefix}W": packed.view(np.int8).reshape(-(-n // 16), -(-k // 4), 16, 4),
        f"{prefix}W_scale": layer.scale,
        f"{prefix}W_zero_point": zero,
        f"{prefix}B": bias,
    }
    return arrays, checksum(packed)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Inputs,
    outputs: Inputs,
    constants: Mapping[str, np.ndarray],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model over float32 inputs and outputs that may hold Octavo's operators."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def linear_model(
    layer: Layer,
    x: Sequence[Any],
    residual: Sequence[Any] | None = None,
    out: Sequence[Any] | None = None,
) -> onnx.ModelProto:
    """x [..., K] (and residual) -> ai.octavo.Linear, the node `dense` -> y."""
    constants, digest = stored(layer)
    names = ["x", *constants, *([] if residual is None else ["residual"])]
    n, k = layer.q.shape
    node = helper.make_node(
        "Linear",
        names,
        ["y"],
        name="dense",
        domain=DOMAIN,
        N=n,
        K=k,
        group_size=layer.group,
        activation=layer.activation,
        checksum=digest,
    )
    inputs = {"x": x} if residual is None else {"x": x, "residual": residual}
    return model_of([node], inputs, {"y": out}, constants)


def grouped_model(layers: Sequence[Layer], x: Sequence[Any]) -> onnx.ModelProto:
    """x [..., K] -> ai.octavo.GroupedLinear, the node `qkv` -> y0, y1, ..."""
    constants: dict[str, np.ndarray] = {}
    digests = []
    for i, layer in enumerate(layers):
        arrays, digest = stored(layer, f"{i}_")
        constants |= arrays
        digests.append(digest)
    outs = [f"y{i}" for i in range(len(layers))]
    node = helper.make_node(
        "GroupedLinear",
        ["x", *constants],
        outs,
        name="qkv",
        domain=DOMAIN,
        N=[layer.q.shape[0] for layer in layers],
        K=layers[0].q.shape[1],
        group_size=layers[0].group,
        activation=" ".join(layer.activation for layer in layers),
        checksum=digests,
    )
    return model_of([node], {"x": x}, dict.fromkeys(outs), constants)


def options_with(threads: int = 1, library: bool = True) -> ort.SessionOptions:
    """Session options that run Octavo's operators, and log nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if library:
        options.register_custom_ops_library(custom_ops_library())
    return options


def opened(
    model: onnx.ModelProto | Path, threads: int = 1, options: ort.SessionOptions | None = None
) -> ort.InferenceSession:
    """A session on the model."""
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    options = options_with(threads) if options is None else options
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], threads: int = 1) -> Any:
    """The outputs."""
    return opened(model, threads).run(None, dict(feeds))
