"""Converted files in ONNX Runtime 1.17, the oldest that they are made for, beside the newest.

And in 1.23, the first that runs opset 23, which has no QuantizeLinear for it. The interpreters are
$OCTAVO_ORT117_PYTHON and $OCTAVO_ORT123_PYTHON, or those in .venv-ort* as `make setup` makes them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from octavo.graph.analysis.requirements import least_onnxruntime
from octavo.onnx import convert_target, custom_ops_library, session
from tests import graphs
from tests.graphs import (
    FLOAT16,
    INT8,
    MS,
    PER_TENSOR,
    Array,
    Case,
    Converted,
    build,
    convert,
    error,
    node,
    run,
    text,
    values,
    weight,
)
from tests.onnx.rules.test_embed_layer_normalization import embed

# The same operators of two releases: the order of float sums differs, and now and then an integer
# that lay between two.
SAME = 1e-4

SERVER = """
import json, sys
import numpy as np, onnxruntime as ort
out = sys.stdout
sys.stdout = sys.stderr
out.write(ort.__version__ + "\\n"); out.flush()
options = ort.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
options.register_custom_ops_library(sys.argv[1])
options.add_session_config_entry("session.x64quantprecision", "1")  # nothing where there is VNNI
for line in sys.stdin:
    job = json.loads(line)
    try:
        session = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        results = session.run(None, dict(np.load(job["feeds"])))
        np.savez(job["results"], **{str(i): r for i, r in enumerate(results)})
        answer = ""
    except Exception as error:
        answer = " ".join(str(error).split()) or repr(error)
    out.write(json.dumps(answer) + "\\n"); out.flush()
"""


class OldRuntime:
    """Another interpreter that runs models; feeds and outputs pass through .npz files."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [str(python), "-c", SERVER, custom_ops_library()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        )
        self.version = self._read()

    def run(self, model: Path, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs; a RuntimeError says why there are none."""
        given, results = self._folder / "feeds.npz", self._folder / "results.npz"
        np.savez(given, **feeds)  # type: ignore[arg-type]
        job = {"model": str(model), "feeds": str(given), "results": str(results)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._read())
        if answer:
            raise RuntimeError(f"ONNX Runtime {self.version}: {answer}")
        with np.load(results) as found:
            return [found[str(i)] for i in range(len(found.files))]

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the other interpreter ended with {self._process.poll()}"
        return line.strip()


def other_release(release: str, folder: Path) -> Iterator[OldRuntime]:
    short = release.replace(".", "")
    variable = f"OCTAVO_ORT{short}_PYTHON"
    stated = os.environ.get(variable)
    default = Path(__file__).parents[2] / f".venv-ort{short}" / "bin" / "python"
    python = Path(stated) if stated else default
    if not python.exists():
        assert not stated, f"{variable} names {stated}, which does not exist"
        pytest.skip(
            f"NOT TESTED with ONNX Runtime {release}: there is no {python}. `make setup` makes it; "
            f"{variable} names another interpreter"
        )
    runtime = OldRuntime(python, folder)
    assert runtime.version.startswith(f"{release}."), runtime.version
    yield runtime
    runtime.close()


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldRuntime]:
    yield from other_release("1.17", tmp_path_factory.mktemp("oldest"))


@pytest.fixture(scope="module")
def release_123(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldRuntime]:
    yield from other_release("1.23", tmp_path_factory.mktemp("release_123"))


NARROW, WIDE = 48, 1040
# x * 0.5 * (1 + erf(x / sqrt 2)) as exporters write it.
GELU = "d = Div (x, root) e = Erf (d) f = Add (e, one) g = Mul (x, f) a = Mul (g, half)"
NUMBERS = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}


def linear(rank: int, width: int, before: str = "", op: str = "MatMul") -> Callable[[int], Case]:
    """One layer over rows of `width` numbers, perhaps after an activation function."""

    def make(opset: int) -> Case:
        stored: dict[str, Any] = {"w": weight(width, 40, spread=False)}
        body = {"": "", "relu": "a = Relu (x)", "gelu": GELU}[before]
        stored |= NUMBERS if before == "gelu" else {}
        x = "a" if before else "x"
        if op == "Gemm":
            stored |= {"w": np.ascontiguousarray(stored["w"].T), "c": values(40, seed=7)}
            body += f" y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> ({x}, w, c)"
        else:
            body += f" y = MatMul ({x}, w)"
        shape = ", ".join([*"bst"[: rank - 1], str(width)])
        model = text(body, f"float[{shape}] x", weights=stored, opset=opset)
        return model, {"x": values(*[5, 3, 2][: rank - 1], width)}

    return make


def at_any_opset(make: Callable[[], Case]) -> Callable[[int], Case]:
    def case(opset: int) -> Case:
        model, feeds = make()
        model.opset_import[0].version = opset
        return model, feeds

    return case


MASK = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)


def attention(opset: int, more: str = "") -> Case:
    stored = {"w": weight(32, 96, spread=False), "b": values(96) / 4}
    body = f"y = {MS}.Attention <num_heads = 4{more}> (x, w, b, mask)"
    model = text(body, "float[b, s, 32] x, int32[b, s] mask", weights=stored, opset=opset)
    return model, {"x": values(2, 6, 32), "mask": MASK}


def fused(opset: int) -> Case:
    body = f"y = {MS}.FusedMatMul <transB = 1, alpha = 0.25> (x, w)"
    stored = {"w": weight(40, 48, axis=0, spread=False)}
    model = text(body, "float[b, s, 48] x", weights=stored, opset=opset)
    return model, {"x": values(2, 6, 48)}


def batched(opset: int) -> Case:
    stored = {"w": weight(3, 48, 40, spread=False), "v": weight(40, spread=False)}
    body = "h = MatMul (x, w) y = MatMul (h, v)"
    model = text(body, "float[3, s, 48] x", weights=stored, opset=opset)
    return model, {"x": values(3, 6, 48)}


def branches(opset: int) -> Case:
    body = """z = MatMul (x, w) y = If (c) <
        then_branch = one () => (float[] t) { t0 = MatMul (x, w) t = MatMul (t0, v) },
        else_branch = two () => (float[] e) { e0 = MatMul (x, w) e = MatMul (e0, v) }>"""
    stored = {"w": weight(48, 48, spread=False)}
    model = text(body, "float[m, 48] x, bool c", "float[] y, float[] z", stored, opset)
    for i, attribute in enumerate(model.graph.node[1].attribute):  # stored inside
        inner = weight(48, 48, seed=8 + i, spread=False)
        attribute.g.initializer.append(numpy_helper.from_array(inner, "v"))
    return model, {"x": values(9, 48), "c": np.array(True)}


def half(opset: int) -> Case:
    stored = {
        "w": weight(48, 64, spread=False).astype(np.float16),
        "v": weight(40, 64, axis=0, spread=False).astype(np.float16),
        "c": values(40).astype(np.float16),
    }
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Gemm", ["h", "v", "c"], ["y"], transB=1)]
    inputs, outputs = {"x": (FLOAT16, ["m", 48])}, {"y": (FLOAT16, ["m", 40])}
    model = build(nodes, inputs, outputs, stored, opset=opset)
    return model, {"x": values(9, 48).astype(np.float16)}


CASES: dict[str, Callable[[int], Case]] = {
    **{
        f"matmul-{rank}d-{size}{'-' + before if before else ''}": linear(rank, width, before)
        for rank in (2, 3)
        for size, width in (("narrow", NARROW), ("wide", WIDE))
        for before in ("", "relu", "gelu")
    },
    "matmul-4d-narrow": linear(4, NARROW),
    "matmul-4d-wide": linear(4, WIDE),
    "gemm-narrow": linear(2, NARROW, op="Gemm"),
    "gemm-wide": linear(2, WIDE, "gelu", op="Gemm"),
    "gather": at_any_opset(graphs.table),
    "lstm": at_any_opset(lambda: graphs.recurrent("LSTM")),
    "attention": attention,
    "attention-causal": lambda opset: attention(opset, ", unidirectional = 1"),
    "fused-matmul": fused,
    "batched-and-vector": batched,
    "embed-layer-normalization": lambda opset: embed(opset=opset),
    "conv": at_any_opset(graphs.conv),
    "if": branches,
    "float16": half,
}
LINEAR = [name for name in CASES if name.startswith(("matmul", "gemm"))]


def converted_case(name: str, opset: int, folder: Path, **options: Any) -> tuple[Converted, Case]:
    if name in ("embed-layer-normalization", "attention-causal"):
        opset = max(opset, 11)  # its form needs a Range, or a DynamicQuantizeLinear
    case = CASES[name](opset)
    if name == "conv":
        options["op_types_to_quantize"] = ["Conv"]
    if name == "batched-and-vector":  # of one output
        options["op_types_to_quantize"] = ["MatMul"]
    converted = convert(case[0], folder, **options)
    assert all(o.quantized for o in converted.report.layers)
    return converted, case


def newest(path: Path, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs here, on one thread as there: ONNX Runtime's LSTM depends on how many."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return list(session(path, sess_options=options).run(None, dict(feeds)))


def agrees(other: OldRuntime, converted: Converted, case: Case, bound: float) -> bool:
    """Both releases give the same numbers, near the float model's; whether of the same bits."""
    _, feeds = case
    assert converted.report.min_onnxruntime == other.version.rpartition(".")[0]
    new, old, exact = newest(converted.path, feeds), other.run(converted.path, feeds), run(*case)
    for a, b, truth in zip(new, old, exact, strict=True):
        assert a.dtype == b.dtype == truth.dtype and a.shape == b.shape
        assert error(b, a) <= (1e-3 if a.dtype == np.float16 else SAME)  # float16's steps are 1e-3
        assert error(a, truth) <= bound
    return all(np.array_equal(a, b) for a, b in zip(new, old, strict=True))


@pytest.mark.vnni("if-")
@pytest.mark.sweep(5)
@pytest.mark.parametrize("opset", [10, 13, 17, 20])
@pytest.mark.parametrize("name", CASES)
def test_int8(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    agrees(oldest, *converted_case(name, opset, tmp_path), PER_TENSOR)


IN_QDQ = [*LINEAR, "gather", "if", "float16", "batched-and-vector"]
WAYS: dict[str, tuple[dict[str, Any], list[int], list[str], float]] = {
    "any-cpu": ({"cpu": "any"}, [10, 17], [*CASES], PER_TENSOR),
    "per-tensor": (
        {"recipe": "int8-per-tensor"},
        [11, 13, 20],
        [n for n in CASES if n != "embed-layer-normalization"],
        2 * PER_TENSOR,
    ),
    "qdq": ({"quant_format": "qdq"}, [11, 13, 20], IN_QDQ, 2 * PER_TENSOR),
    "float16": ({"recipe": "float16"}, [10, 20], [*LINEAR, "gather", "lstm", "if"], 2e-3),
    "accurate": (
        {"recipe": "int8-accurate"},
        [10, 20],
        [*LINEAR, "gather", "if", "batched-and-vector"],
        2 * INT8,
    ),
    # Octavo's operators ask no more of ONNX Runtime than the interface of 1.17.
    "native": ({"target": "native"}, [10, 13, 20], [*CASES], PER_TENSOR),
}
ROWS = [(way, n, o) for way, (_, opsets, cases, _) in WAYS.items() for n in cases for o in opsets]


@pytest.mark.vnni("accurate-if", "per-tensor-if", "qdq-if")
@pytest.mark.sweep(7)
@pytest.mark.parametrize(("way", "name", "opset"), ROWS)
def test_other_files(oldest: OldRuntime, tmp_path: Path, way: str, name: str, opset: int) -> None:
    options, _, _, bound = WAYS[way]
    same_bits = agrees(oldest, *converted_case(name, opset, tmp_path, **options), bound)
    if way == "native" and name in LINEAR and "gelu" not in name and name != "gemm-wide":
        assert same_bits  # a GELU before the layer is ONNX Runtime's own, which changes


# What files need, as tried with 1.17.3 and the last releases of 1.18 to 1.28.
LEAST_FOR_OPSET = {
    10: "1.17", 17: "1.17", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24",
    25: "1.24", 26: "1.25",
}  # fmt: skip
LEAST_FOR_IR = {8: "1.17", 9: "1.17", 10: "1.18", 11: "1.23", 12: "1.24", 13: "1.24"}


@pytest.mark.parametrize(
    ("opset", "version", "least"),
    [
        *((opset, 8, least) for opset, least in LEAST_FOR_OPSET.items()),
        *((17, version, least) for version, least in LEAST_FOR_IR.items()),
        (22, 13, "1.24"),  # the greater need counts
    ],
)
def test_least_onnxruntime(tmp_path: Path, opset: int, version: int, least: str) -> None:
    model, _ = CASES["matmul-2d-narrow"](opset)
    model.ir_version = version
    converted = convert(model, tmp_path)
    assert converted.report.min_onnxruntime == least
    said = {p.key: p.value for p in converted.proto.metadata_props}
    assert said["octavo.min_onnxruntime"] == least
    here = tuple(int(i) for i in onnxruntime.__version__.split(".")[:2])
    assert here >= tuple(int(i) for i in least.split("."))
    if opset >= 22:  # of which 23 has ONNX Runtime's own QuantizeLinear
        quantizing = {n.domain for n in converted.proto.graph.node if n.op_type == "QuantizeLinear"}
        assert quantizing == {MS if opset == 23 else ""}


def test_blocks_need_a_newer_release_and_say_so(oldest: OldRuntime, tmp_path: Path) -> None:
    model, feeds = CASES["matmul-2d-narrow"](17)
    converted = convert(model, tmp_path, recipe="int8-block")
    assert converted.report.min_onnxruntime == "1.22"
    with pytest.raises(RuntimeError, match=r"1\.17"):
        oldest.run(converted.path, feeds)
    model.ir_version = 13  # the greater need counts
    assert least_onnxruntime(onnx_ir.from_proto(model)) == "1.24"
    assert convert(model, tmp_path, recipe="int8-block").report.min_onnxruntime == "1.24"


@pytest.mark.vnni("-if")
@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "options", [{}, {"target": "native"}, {"recipe": "int8-per-tensor"}], ids=str
)
def test_opset_23_runs_in_1_23(
    release_123: OldRuntime, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    bound = (2 if "recipe" in options else 1) * PER_TENSOR
    agrees(release_123, *converted_case(name, 23, tmp_path, **options), bound)


def test_a_node_of_the_standard_needs_more_than_1_23(tmp_path: Path) -> None:
    """One that was there before the conversion."""
    body = """h = MatMul (x, w) q = QuantizeLinear (h, step, zero)
        y = DequantizeLinear (q, step, zero)"""
    zero = helper.make_tensor("zero", onnx.TensorProto.UINT8, [], [128])
    stored = {"w": weight(48, 16, spread=False), "step": values(1)[0] ** 2, "zero": zero}
    given = text(body, "float[n, 48] x", weights=stored, opset=23)
    assert convert(given, tmp_path, allow_quantized=True).report.min_onnxruntime == "1.24"


def test_a_file_of_opset_23_becomes_native(tmp_path: Path) -> None:
    model, feeds = CASES["matmul-3d-narrow"](23)
    portable = convert(model, tmp_path)
    native = tmp_path / "native.onnx"
    done = convert_target(portable.path, native, to="native")
    assert "Linear" in {n.op_type for n in onnx.load(native).graph.node}
    assert done.min_onnxruntime == "1.23"
    assert error(newest(native, feeds)[0], newest(portable.path, feeds)[0]) < 0.02
