"""Small float models, their conversion, and comparisons whose bounds follow from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from octavo.graph.analysis.walk import runs_in_order
from octavo.onnx import quantize_dynamic
from octavo.recipe import Report

Array = npt.NDArray[Any]
FLOAT, FLOAT16, BFLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
MS = "com.microsoft"

# Rounding to 8 bits adds noise of about 0.7% of the signal for the activations and as much for the
# weights, of normal data: 1% in all. What a defect does is of the order of the signal.
INT8 = 0.025
# One scale for a whole tensor has a step of the largest of all values.
PER_TENSOR = 0.05
# The same arithmetic in float32 and float64.
EXACT = 2e-6


@dataclass(frozen=True)
class Converted:
    """A converted model: its report, where it lies, and the file read back."""

    report: Report
    path: Path
    proto: onnx.ModelProto

    @property
    def ops(self) -> list[str]:
        """The operators of the main graph, in order."""
        return [n.op_type for n in self.proto.graph.node]

    def outcome(self, layer: str) -> Any:
        """What became of one layer."""
        return next(o for o in self.report.layers if o.layer.name == layer)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def weight(*shape: int, seed: int = 1, spread: bool | None = None, axis: int = -1) -> Array:
    """float32 normal numbers; channels along `axis` differ in size up to a hundredfold."""
    w = rng(seed).standard_normal(shape).astype(np.float32) / np.sqrt(shape[-2 % len(shape)])
    if len(shape) > 1 if spread is None else spread:
        sizes = np.geomspace(0.1, 10.0, shape[axis]).astype(np.float32)
        rng(seed + 100).shuffle(sizes)
        w = w * sizes.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    return np.asarray(w, np.float32)


def values(*shape: int, seed: int = 2) -> Array:
    return rng(seed).standard_normal(shape).astype(np.float32)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any] | None]],
    outputs: Mapping[str, tuple[int, Sequence[Any] | None]] | Sequence[str],
    weights: Mapping[str, Array | onnx.TensorProto] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model. `inputs` are (element type, shape); outputs given by name are float of any shape."""
    if not isinstance(outputs, Mapping):
        outputs = dict.fromkeys(outputs, (FLOAT, None))
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in outputs.items()],
        [_tensor(name, a) for name, a in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    imports += [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def _tensor(name: str, array: Array | onnx.TensorProto) -> onnx.TensorProto:
    if isinstance(array, onnx.TensorProto):
        array.name = name
        return array
    return numpy_helper.from_array(np.asarray(array, order="C"), name)


def convert(model: onnx.ModelProto, folder: Path, **options: Any) -> Converted:
    """Converts and reads back. The comparison with float is the test's: `verify` is off."""
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    report = quantize_dynamic(model, path, **{"verify": False, **options})
    done = onnx.load(path)
    assert unread(done.graph) <= unread(model.graph), "ONNX Runtime warns of them when it loads"
    assert runs_in_order(onnx_ir.from_proto(done)), "ONNX Runtime takes any order, others do not"
    return Converted(report, path, done)


def unread(graph: onnx.GraphProto) -> set[str]:
    """The initializers that nothing reads, in subgraphs too."""
    found: set[str] = set()

    def read_in(graph: onnx.GraphProto) -> set[str]:
        read = {o.name for o in graph.output}
        for each in graph.node:
            read.update(each.input)
            for attribute in each.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    read |= read_in(inner)
        found.update(i.name for i in graph.initializer if i.name not in read)
        return read

    read_in(graph)
    return found


def run(
    model: onnx.ModelProto | Path,
    feeds: Mapping[str, Array],
    names: Sequence[str] | None = None,
    *,
    plain: bool = False,
) -> list[Array]:
    """The outputs in ONNX Runtime: with all optimizations, or with none (`plain`)."""
    return list(opened(model, plain=plain).run(names, dict(feeds)))


def opened(model: onnx.ModelProto | Path, *, plain: bool = False) -> ort.InferenceSession:
    """A session on the model, for several runs."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def peek(converted: Converted, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """Values inside a converted model, as they are before anything is fused."""
    proto = onnx.ModelProto()
    proto.CopyFrom(converted.proto)
    graph = proto.graph
    stored = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    wanted = [n for n in names if n and n not in stored]
    present = {o.name for o in graph.output}
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted if n not in present)
    found = dict(zip(wanted, run(proto, feeds, wanted, plain=True), strict=True)) if wanted else {}
    return [stored.get(n, found.get(n)) for n in names]


def error(actual: Array, expected: Array) -> float:
    """Root mean square of the difference, relative to that of `expected`."""
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}"
    size = float(np.sqrt(np.square(b).mean())) if b.size else 0.0
    distance = float(np.sqrt(np.square(a - b).mean())) if b.size else 0.0
    if size == 0.0:
        return 0.0 if distance == 0.0 else float("inf")
    return distance / size


def sizes(w: Array) -> Array:
    """How large each output of `x @ w` is: the lengths of w's columns, beside [..., M, N]."""
    return np.asarray(np.linalg.norm(np.asarray(w, np.float64), axis=-2, keepdims=w.ndim > 2))


def assert_close(actual: Array, expected: Array, bound: float, size: Array | float = 1.0) -> None:
    """Within `bound`, where every channel counts by its own `size`, not by its numbers'."""
    assert actual.dtype == expected.dtype
    found = error(actual.astype(np.float64) / size, expected.astype(np.float64) / size)
    assert found <= bound, f"error {found:.3g} is above {bound:g}"


def quantized_products(converted: Converted) -> list[onnx.NodeProto]:
    """The integer products of linear layers."""
    return [
        n
        for n in converted.proto.graph.node
        if n.op_type in ("MatMulIntegerToFloat", "MatMulInteger")
    ]


def integer_tensors(converted: Converted, least: int = 32) -> dict[str, Array]:
    """The stored int8 and uint8 tensors, by name, but scalars and zero points."""
    return {
        i.name: numpy_helper.to_array(i)
        for i in converted.proto.graph.initializer
        if i.data_type in (TensorProto.INT8, TensorProto.UINT8)
        and int(np.prod(i.dims)) >= least
        and not i.name.endswith("zero_point")
    }


def float_elements(converted: Converted) -> int:
    """How many float32 numbers are stored."""
    return sum(
        int(np.prod(i.dims))
        for i in converted.proto.graph.initializer
        if i.data_type in (FLOAT, FLOAT16, BFLOAT16)
    )


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """`helper.make_node` with a name of its own: the first output with `_node`."""
    attributes.setdefault("name", f"{next(o for o in outputs if o)}_node")
    return helper.make_node(op, list(inputs), list(outputs), **attributes)
