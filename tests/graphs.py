"""ONNX graphs for tests: builders, small models, conversion, runs, and bounds that data justify."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from octavo.core.cpu import saturates
from octavo.core.kernels import cpu_features
from octavo.files.exact_products import with_exact_products
from octavo.graph.analysis.walk import runs_in_order
from octavo.onnx import custom_ops_library, quantize_dynamic
from octavo.results.report import Report, Verification
from tests.onnx.references.linear import reference_portable

Array = npt.NDArray[Any]
Shape = Sequence[Any] | None
Infos = Mapping[str, tuple[int, Shape]] | Sequence[tuple[str, int, Shape]]
Case = tuple[onnx.ModelProto, Mapping[str, Array]]
"""A float model with an input for it."""
FLOAT = F32 = TensorProto.FLOAT
FLOAT16, BFLOAT16 = TensorProto.FLOAT16, TensorProto.BFLOAT16
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
        """Return the report's entry of the layer."""
        return next(o for o in self.report.layers if o.layer.name == layer)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0) -> Array:
    """Standard normal float32."""
    return rng(seed).standard_normal(shape).astype(np.float32)


def values(*shape: int, seed: int = 2) -> Array:
    """`normal`, of other numbers than the first weights."""
    return normal(*shape, seed=seed)


def weight(*shape: int, seed: int = 1, spread: bool | None = None, axis: int = -1) -> Array:
    """float32 normal numbers; channels along `axis` differ in size up to a hundredfold."""
    w = normal(*shape, seed=seed) / np.sqrt(shape[-2 % len(shape)])
    if len(shape) > 1 if spread is None else spread:
        sizes = np.geomspace(0.1, 10.0, shape[axis]).astype(np.float32)
        rng(seed + 100).shuffle(sizes)
        w = w * sizes.reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    return np.asarray(w, np.float32)


def ruined() -> Array:
    """[64, 16], of which nothing but the first row is left when it is quantized per channel."""
    first = np.arange(64)[:, None] == 0
    return np.where(first, np.float32(1e3), normal(64, 16) * np.float32(1e-3))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    """`helper.make_node` with a name of its own: the first output with `_node`."""
    attributes.setdefault("name", f"{next(o for o in outputs if o)}_node")
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Infos,
    outputs: Infos | Sequence[str],
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
    ir: int = 8,
    *,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of nodes; outputs given by name are float of any shape."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    imports += [helper.make_opsetid(d, 1) for d in domains]
    tensors = [_tensor(name, a) for name, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", _infos(inputs), _infos(outputs), tensors)
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def _infos(given: Infos | Sequence[str]) -> list[onnx.ValueInfoProto]:
    if isinstance(given, Mapping):
        given = [(name, *rest) for name, rest in given.items()]
    specs = ((each, FLOAT, None) if isinstance(each, str) else each for each in given)
    return [helper.make_tensor_value_info(*spec) for spec in specs]


def _tensor(name: str, array: Any) -> onnx.TensorProto:
    if isinstance(array, onnx.TensorProto):
        array.name = name
        return array
    return numpy_helper.from_array(np.asarray(array, order="C"), name)


def text(
    body: str,
    inputs: str,
    outputs: str = "float[] y",
    weights: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """`build` of nodes in ONNX's text, "[name] y = MatMul (x, w)", and those weights it names.

    `float[]` is of any shape, `float` of none.
    """
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "{MS}" : 1]>'
    model = parser.parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")
    named = {name: a for name, a in (weights or {}).items() if name in re.findall(r"\w+", body)}
    model.graph.initializer.extend(_tensor(name, a) for name, a in named.items())
    return model


def mlp(layers: int = 2, width: int = 32, seed: int = 0) -> onnx.ModelProto:
    """x [m, width] -> (MatMul `layer0` with `w0` -> Relu) -> ... -> y."""
    random, scale = rng(seed), np.float32((2 / width) ** 0.5)
    weights = {f"w{i}": random.standard_normal((width, width), np.float32) for i in range(layers)}
    names = ["x", *(f"r{i}" for i in range(layers - 1)), "y"]
    body = "".join(
        f"[layer{i}] h{i} = MatMul ({names[i]}, w{i}) [relu{i}] {names[i + 1]} = Relu (h{i})"
        for i in range(layers)
    )
    shape, weights = f"float[m, {width}]", {name: w * scale for name, w in weights.items()}
    return text(body, f"{shape} x", f"{shape} y", weights)


def linear() -> Case:
    """Layers in a row, with ReLU between them."""
    return mlp(3, 64), {"x": normal(5, 64)}


def wide() -> Case:
    """Rows long enough for the form that quantizes along an axis; GELU before the second layer."""
    body = """[up] a = MatMul (x, w0) b = Add (a, b0) c = Div (b, root) d = Erf (c) e = Add (d, one)
        f = Mul (b, e) g = Mul (f, half) [down] h = MatMul (g, w1) y = Add (h, x)"""
    weights = {"w0": normal(48, 1024, seed=1), "b0": normal(1024, seed=2)}
    weights |= {"w1": normal(1024, 48, seed=3), "one": np.float32(1)}
    weights |= {"root": np.float32(2**0.5), "half": np.float32(0.5)}
    model = text(body, "float[b, s, 48] x", "float[b, s, 48] y", weights)
    return model, {"x": normal(2, 3, 48)}


def gemm() -> Case:
    """Every attribute of Gemm."""
    body = "[fc] y = Gemm <alpha = 0.3, beta = 0.7, transA = 1, transB = 1> (x, w, b)"
    weights = {"w": normal(24, 40, seed=1), "b": normal(24, seed=2)}
    return text(body, "float[40, m] x", "float[m, 24] y", weights), {"x": normal(40, 6)}


def grouped(op: str = "Sub") -> Case:
    """Two layers over one input; of which native files make one node with Mul."""
    body = f"[q] a = MatMul (x, w0) [k] b = MatMul (x, w1) c = Sigmoid (b) y = {op} (a, c)"
    weights = {"w0": normal(32, 48, seed=1), "w1": normal(32, 48, seed=2)}
    return text(body, "float[m, 32] x", "float[m, 48] y", weights), {"x": normal(4, 32)}


def attention() -> Case:
    """Q, K and V of one input, with biases: one product in portable files, one node in native."""
    body = """
        [q3] q2 = MatMul (x, w0) [k3] k2 = MatMul (x, w1) [v3] v2 = MatMul (x, w2)
        q3 = Add (q2, q_bias) k3 = Add (k_bias, k2) v3 = Add (v2, v_bias)
        q4 = Reshape (q3, apart) k4 = Reshape (k3, apart) v4 = Reshape (v3, apart)
        qt = Transpose <perm = [0, 2, 1, 3]> (q4) kt = Transpose <perm = [0, 2, 3, 1]> (k4)
        vt = Transpose <perm = [0, 2, 1, 3]> (v4)
        qk = MatMul (qt, kt) s = Mul (qk, scale) logits = Add (s, mask)
        p = Softmax <axis = -1> (logits) o4 = MatMul (p, vt)
        ot = Transpose <perm = [0, 2, 1, 3]> (o4) o3 = Reshape (ot, joined)
        [out] y = MatMul (o3, w3)"""
    weights: dict[str, Any] = {f"w{i}": normal(32, 32, seed=i) / 6 for i in range(4)}
    weights |= {f"{x}_bias": np.linspace(-1, 1 + i, 32, dtype="f") for i, x in enumerate("qkv")}
    weights |= {"apart": np.array([0, 0, 4, 8]), "joined": np.array([0, 0, 32])}
    weights["scale"] = np.float32(0.35)
    mask = np.zeros((3, 1, 1, 20), np.float32)
    mask[1, ..., 15:] = np.finfo(np.float32).min
    inputs = "float[batch, length, 32] x, float[batch, 1, 1, length] mask"
    model = text(body, inputs, "float[batch, length, 32] y", weights)
    return model, {"x": normal(3, 20, 32, seed=1), "mask": mask}


def joint() -> Case:
    """A layer that is taken apart into heads, as one layer in the float model too."""
    body = """[qkv] a = MatMul (x, w) b = Add (a, bias) c = Reshape (b, shape)
        d = Transpose <perm = [0, 2, 1, 3]> (c) q, k, v = Split <axis = 1> (d, heads)
        e = Mul (q, k) y = Add (e, v)"""
    weights = {"w": normal(32, 96, seed=1), "bias": normal(96, seed=2)}
    weights |= {"shape": np.array([0, 0, 12, 8]), "heads": np.array([4, 4, 4])}
    model = text(body, "float[b, s, 32] x", "float[b, 4, s, 8] y", weights)
    return model, {"x": normal(2, 5, 32)}


def tied() -> Case:
    """A table that is the output layer's weight too."""
    body = """[lookup] e = Gather (table, i) t = Tanh (e) wt = Transpose <perm = [1, 0]> (table)
        [head] y = MatMul (t, wt)"""
    model = text(body, "int64[b, s] i", "float[b, s, 96] y", {"table": normal(96, 64, seed=1)})
    return model, {"i": np.arange(10).reshape(2, 5)}


def table() -> Case:
    """A lookup alone."""
    weights = {"table": normal(96, 64, seed=1)}
    model = text("[lookup] y = Gather (table, i)", "int64[b, s] i", "float[b, s, 64] y", weights)
    return model, {"i": np.arange(10).reshape(2, 5)}


def conv() -> Case:
    """A convolution with padding, strides and bias."""
    body = "[conv] y = Conv <pads = [1, 1, 1, 1], strides = [2, 1]> (x, w, b)"
    weights = {"w": normal(32, 16, 3, 3, seed=1), "b": normal(32, seed=2)}
    return text(body, "float[b, 16, 12, 10] x", weights=weights), {"x": normal(2, 16, 12, 10)}


def pooled() -> Case:
    """A convolution, Relu and pools of two by three."""
    pool = "MaxPool <kernel_shape = [2, 3], strides = [2, 3]>"
    body = f"[conv] c = Conv (x, w) r = Relu (c) y = {pool} (r)"
    weights = {"w": normal(32, 16, 3, 3, seed=1)}
    return text(body, "float[b, 16, 12, 10] x", weights=weights), {"x": normal(2, 16, 12, 10)}


def products() -> Case:
    """A product of two activations."""
    inputs = "float[n, 8, 32] a, float[n, 32, 16] b"
    model = text("[scores] y = MatMul (a, b)", inputs, "float[n, 8, 16] y")
    return model, {"a": normal(2, 8, 32), "b": normal(2, 32, 16, seed=1)}


def recurrent(op: str, **attributes: Any) -> Case:
    """A bidirectional LSTM, GRU or RNN with lengths and initial states."""
    gates, hidden, width = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 20, 24
    states, outs = (["h0", "c0"], ["y", "yh", "yc"]) if op == "LSTM" else (["h0"], ["y", "yh"])
    given = ["x", "w", "r", "b", "n", *states]
    attributes |= {"name": "rec", "hidden_size": hidden, "direction": "bidirectional"}
    weights = {
        "w": normal(2, gates * hidden, width, seed=1) / 5,
        "r": normal(2, gates * hidden, hidden, seed=2) / 5,
        "b": normal(2, 2 * gates * hidden, seed=3) / 5,
    }
    inputs: dict[str, Any] = {"x": (FLOAT, ["t", "b", width]), "n": (INT32, ["b"])}
    inputs |= dict.fromkeys(states, (FLOAT, [2, "b", hidden]))
    feed = {"x": normal(7, 3, width), "n": np.array([7, 3, 5], np.int32)}
    feed |= {s: normal(2, 3, hidden, seed=i) for i, s in enumerate(states)}
    return build([node(op, given, outs, **attributes)], inputs, outs, weights), feed


def save(model: onnx.ModelProto, path: Path, **options: Any) -> Path:
    """Saves and returns the path; `external="name"` puts the weights there."""
    external = options.pop("external", None)
    if external is not None:
        options |= {"save_as_external_data": True, "location": external, "size_threshold": 0}
        model = onnx.load_from_string(model.SerializeToString())  # onnx.save changes it
    onnx.save(model, path, **options)
    return path


def convert(model: onnx.ModelProto | Path, folder: Path, **options: Any) -> Converted:
    """Converts and reads back. The comparison with float is the test's: `verify` is off."""
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    report = quantize_dynamic(model, path, **{"verify": False, **options})
    done = onnx.load(path)
    source = onnx.load(model) if isinstance(model, Path) else model
    assert _unread(done.graph) <= _unread(source.graph), "ONNX Runtime warns of them when it loads"
    assert runs_in_order(onnx_ir.from_proto(done)), "ONNX Runtime takes any order, others do not"
    return Converted(report, path, done)


def checked(model: onnx.ModelProto | Path, folder: Path, **options: Any) -> Verification:
    """Convert to out.onnx, and return the result of the comparison with the float model."""
    return quantize_dynamic(model, folder / "out.onnx", **options).verification


def _unread(graph: onnx.GraphProto) -> set[str]:
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


def opened(
    model: onnx.ModelProto | Path, *, plain: bool = False, threads: int = 1, native: bool = False
) -> ort.InferenceSession:
    """A session with all optimizations or none (`plain`), with Octavo's operators or without.

    Products of int8 and uint8 are exact in it on every processor, as in `octavo.onnx.session`.
    """
    options = ort.SessionOptions()
    options.log_severity_level = 4
    given = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    if saturates(cpu_features()):
        options.add_session_config_entry("session.x64quantprecision", "1")
        folder = Path(given).parent if isinstance(given, str) else None
        whole = Path(given).read_bytes() if isinstance(given, str) else given
        given = with_exact_products(whole, folder) or given
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder or "")
        )
    options.intra_op_num_threads = threads
    if plain:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if native:
        options.register_custom_ops_library(custom_ops_library())
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def run(
    model: onnx.ModelProto | Path,
    feeds: Mapping[str, Array],
    names: Sequence[str] | None = None,
    **options: bool,
) -> list[Array]:
    """The outputs in ONNX Runtime, with the options of `opened`."""
    return list(opened(model, **options).run(names, dict(feeds)))


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


def assert_near_float(
    done: Converted,
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    bound: float,
    size: Array | float = 1.0,
) -> None:
    """Every output, by `assert_close`."""
    for actual, expected in zip(run(done.path, feeds), run(model, feeds), strict=True):
        assert_close(actual, expected, bound, size)


def quantized_products(converted: Converted) -> list[onnx.NodeProto]:
    """The integer products of linear layers."""
    ops = ("MatMulIntegerToFloat", "MatMulInteger")
    return [n for n in converted.proto.graph.node if n.op_type in ops]


def per_row(converted: Converted, x: Array, feeds: Mapping[str, Array], index: int = 0) -> Array:
    """The rule's own statement of the product of `x` and the `index`-th quantized weight."""
    product = [n for n in quantized_products(converted) if n.op_type == "MatMulIntegerToFloat"]
    names = [product[index].input[i] for i in (1, 3, 4, 5)]
    q, scale, x_zero, zero = peek(converted, names, feeds)
    assert q.dtype in (np.int8, np.uint8)
    y = reference_portable(x if x.ndim > 1 else x[None], q, scale, zero, int(x_zero))
    if "Squeeze" in converted.ops:  # a vector W, held as a matrix of one column
        y = y[..., 0]
        return y[0] if x.ndim == 1 else y
    return y[..., 0, :] if x.ndim == 1 else y


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
    """How many float numbers are stored."""
    stored = converted.proto.graph.initializer
    return sum(int(np.prod(i.dims)) for i in stored if i.data_type in (FLOAT, FLOAT16, BFLOAT16))


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Return hash and time of change of every file in a folder, hidden ones included."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and status.st_size < 1 << 28 else b""
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(content).hexdigest(),
            0 if path.is_dir() else status.st_mtime_ns,
        )
    return found


@contextlib.contextmanager
def refused(folder: Path, kind: type[Exception], *substance: str) -> Iterator[None]:
    """The body raises exactly `kind`, says all of `substance`, and leaves `folder` as it was."""
    before = snapshot(folder)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    for part in substance:
        assert part in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert snapshot(folder) == before
