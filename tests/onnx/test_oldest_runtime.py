"""Converted files in the oldest ONNX Runtime that they are made for, beside the newest.

The other interpreter is $OCTAVO_ORT117_PYTHON, or .venv-ort117/bin/python as `make setup` makes it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from octavo.graph.analysis.requirements import least_onnxruntime
from octavo.onnx import custom_ops_library, session
from tests.graphs import (
    BOOL,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    MS,
    PER_TENSOR,
    Array,
    Converted,
    build,
    convert,
    error,
    node,
    run,
    values,
    weight,
)

VARIABLE = "OCTAVO_ORT117_PYTHON"
DEFAULT = Path(__file__).parents[2] / ".venv-ort117" / "bin" / "python"
OPSETS = [10, 13, 17, 20]
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

    def run(self, model: Path, feeds: dict[str, Array]) -> list[Array]:
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


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldRuntime]:
    stated = os.environ.get(VARIABLE)
    python = Path(stated) if stated else DEFAULT
    if not python.exists():
        assert not stated, f"{VARIABLE} names {stated}, which does not exist"
        pytest.skip(
            f"NOT TESTED with ONNX Runtime 1.17: there is no {python}. `make setup` makes it; "
            f"{VARIABLE} names another interpreter"
        )
    runtime = OldRuntime(python, tmp_path_factory.mktemp("oldest"))
    assert runtime.version.startswith("1.17."), runtime.version
    yield runtime
    runtime.close()


# --- models --------------------------------------------------------------------------------------

Case = tuple[Any, dict[str, Array]]
NARROW, WIDE = 48, 1040


def gelu(x: str, y: str) -> list[Any]:
    """x * 0.5 * (1 + erf(x / sqrt 2)) as exporters write it."""
    return [
        node("Div", [x, "root"], [f"{y}_d"]),
        node("Erf", [f"{y}_d"], [f"{y}_e"]),
        node("Add", [f"{y}_e", "one"], [f"{y}_a"]),
        node("Mul", [x, f"{y}_a"], [f"{y}_m"]),
        node("Mul", [f"{y}_m", "half"], [y]),
    ]


def numbers() -> dict[str, Array]:
    return {
        "root": np.array(np.sqrt(2), np.float32),
        "one": np.array(1, np.float32),
        "half": np.array(0.5, np.float32),
    }


def linear(rank: int, width: int, before: str = "", op: str = "MatMul") -> Callable[[int], Case]:
    """One layer over rows of `width` numbers, perhaps after an activation function."""

    def make(opset: int) -> Case:
        shape: list[Any] = ["b", "s", "t"][: rank - 1]
        stored: dict[str, Any] = {"w": weight(width, 40, spread=False)}
        nodes, x = [], "x"
        if before == "relu":
            nodes, x = [node("Relu", ["x"], ["a"])], "a"
        elif before == "gelu":
            nodes, x = gelu("x", "a"), "a"
            stored |= numbers()
        if op == "Gemm":
            stored["w"] = np.ascontiguousarray(stored["w"].T)
            stored["c"] = values(40, seed=7)
            nodes.append(node("Gemm", [x, "w", "c"], ["y"], transB=1, alpha=0.5, beta=2.0))
        else:
            nodes.append(node("MatMul", [x, "w"], ["y"]))
        model = build(nodes, {"x": (FLOAT, [*shape, width])}, ["y"], stored, opset=opset)
        return model, {"x": values(*[5, 3, 2][: rank - 1], width)}

    return make


def lookup(opset: int) -> Case:
    table = weight(512, 40, axis=0, spread=False)
    nodes = [node("Gather", ["table", "i"], ["y"])]
    model = build(nodes, {"i": (INT64, ["b", "s"])}, ["y"], {"table": table}, opset=opset)
    return model, {"i": np.arange(512, dtype=np.int64).reshape(2, -1)}


def lstm(opset: int) -> Case:
    stored = {
        "w": weight(2, 96, 20, spread=False),
        "r": weight(2, 96, 24, spread=False),
        "b": values(2, 192) / 4,
    }
    attributes = {"hidden_size": 24, "direction": "bidirectional"}
    nodes = [node("LSTM", ["x", "w", "r", "b"], ["y", "y_h", "y_c"], **attributes)]
    outputs = ["y", "y_h", "y_c"]
    model = build(nodes, {"x": (FLOAT, ["t", "b", 20])}, outputs, stored, opset=opset)
    return model, {"x": values(7, 3, 20)}


MASK = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]], np.int32)


def attention(opset: int) -> Case:
    stored = {"w": weight(32, 96, spread=False), "b": values(96) / 4}
    nodes = [node("Attention", ["x", "w", "b", "mask"], ["y"], domain=MS, num_heads=4)]
    inputs = {"x": (FLOAT, ["b", "s", 32]), "mask": (INT32, ["b", "s"])}
    model = build(nodes, inputs, ["y"], stored, opset=opset)
    return model, {"x": values(2, 6, 32), "mask": MASK}


def causal(opset: int) -> Case:
    model, feeds = attention(opset)
    model.graph.node[0].attribute.append(helper.make_attribute("unidirectional", 1))
    return model, feeds


def fused(opset: int) -> Case:
    attributes = {"transB": 1, "alpha": 0.25}
    nodes = [node("FusedMatMul", ["x", "w"], ["y"], domain=MS, **attributes)]
    stored = {"w": weight(40, 48, axis=0, spread=False)}
    model = build(nodes, {"x": (FLOAT, ["b", "s", 48])}, ["y"], stored, opset=opset)
    return model, {"x": values(2, 6, 48)}


def batched(opset: int) -> Case:
    """A weight of rank 3 and a vector."""
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])]
    stored = {"w": weight(3, 48, 40, spread=False), "v": weight(40, spread=False)}
    model = build(nodes, {"x": (FLOAT, [3, "s", 48])}, ["y"], stored, opset=opset)
    return model, {"x": values(3, 6, 48)}


def embedding(opset: int) -> Case:
    stored = {
        "word": weight(200, 32, seed=3, spread=False),
        "position": weight(16, 32, seed=4, spread=False),
        "segment": weight(2, 32, seed=5, spread=False),
        "gamma": 1 + values(32, seed=6) / 8,
        "beta": values(32, seed=7) / 8,
    }
    operands = ["ids", "segments", "word", "position", "segment", "gamma", "beta", "mask"]
    nodes = [node("EmbedLayerNormalization", operands, ["y", "index"], domain=MS, epsilon=1e-6)]
    inputs = {n: (INT32, ["b", "s"]) for n in ("ids", "segments", "mask")}
    outputs = {"y": (FLOAT, None), "index": (INT32, None)}
    model = build(nodes, inputs, outputs, stored, opset=opset)
    ids = np.random.default_rng(3).integers(0, 200, (2, 6)).astype(np.int32)
    return model, {"ids": ids, "segments": (ids % 2).astype(np.int32), "mask": MASK}


def convolution(opset: int) -> Case:
    stored = {"w": weight(16, 8, 3, 3, spread=False) / 3, "b": values(16)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    ]
    model = build(nodes, {"x": (FLOAT, ["n", 8, 9, 9])}, ["y"], stored, opset=opset)
    return model, {"x": values(3, 8, 9, 9)}


def branches(opset: int) -> Case:
    def body(name: str, w: Array) -> Any:
        info = [helper.make_tensor_value_info(name, FLOAT, None)]
        stored = [numpy_helper.from_array(w, "v")]
        nodes = [
            node("MatMul", ["x", "w"], [f"{name}_0"]),
            node("MatMul", [f"{name}_0", "v"], [name]),
        ]
        return helper.make_graph(nodes, name, [], info, stored)

    nodes = [
        node("MatMul", ["x", "w"], ["z"]),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=body("t", weight(48, 48, seed=8, spread=False)),
            else_branch=body("e", weight(48, 48, seed=9, spread=False)),
        ),
    ]
    inputs = {"x": (FLOAT, ["m", 48]), "c": (BOOL, [])}
    stored = {"w": weight(48, 48, spread=False)}
    model = build(nodes, inputs, ["y", "z"], stored, opset=opset)
    return model, {"x": values(9, 48), "c": np.array(True)}


def half(opset: int) -> Case:
    """float16 inside, also at the graph's input and output."""
    stored = {
        "w": weight(48, 64, spread=False).astype(np.float16),
        "v": weight(40, 64, axis=0, spread=False).astype(np.float16),
        "c": values(40).astype(np.float16),
    }
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Gemm", ["h", "v", "c"], ["y"], transB=1),
    ]
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
    "gather": lookup,
    "lstm": lstm,
    "attention": attention,
    "attention-causal": causal,
    "fused-matmul": fused,
    "batched-and-vector": batched,
    "embed-layer-normalization": embedding,
    "conv": convolution,
    "if": branches,
    "float16": half,
}
LINEAR = [name for name in CASES if name.startswith(("matmul", "gemm"))]


def converted_case(name: str, opset: int, folder: Path, **options: Any) -> tuple[Converted, Any]:
    if name in ("embed-layer-normalization", "attention-causal"):
        opset = max(opset, 11)  # its form needs a Range, or a DynamicQuantizeLinear
    model, feeds = CASES[name](opset)
    if name == "conv":
        options["op_types_to_quantize"] = ["Conv"]
    if name == "batched-and-vector":  # of one output
        options["op_types_to_quantize"] = ["MatMul"]
    converted = convert(model, folder, verify=True, check_inputs=feeds, **options)
    assert converted.report.verification.status == "passed"
    assert all(o.quantized for o in converted.report.layers)
    return converted, feeds


def newest(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """The outputs here, on one thread as there: ONNX Runtime's LSTM depends on how many."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return list(session(path, sess_options=options).run(None, feeds))


def agrees(oldest: OldRuntime, converted: Converted, feeds: dict[str, Array]) -> None:
    """Both releases give the same numbers. (Verification has compared the newest with float.)"""
    assert converted.report.min_onnxruntime == "1.17"
    new, old = newest(converted.path, feeds), oldest.run(converted.path, feeds)
    assert len(new) == len(old)
    for a, b in zip(new, old, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        bound = 1e-3 if a.dtype == np.float16 else SAME  # float16 has steps of 1e-3
        assert error(b, a) <= bound


# --- the tests -----------------------------------------------------------------------------------


@pytest.mark.sweep(5)
@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("name", CASES)
def test_int8(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path)
    assert converted.report.verification.error < (PER_TENSOR if name == "lstm" else 2 * INT8)
    agrees(oldest, converted, feeds)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("opset", [10, 17])
@pytest.mark.parametrize("name", CASES)
def test_int8_for_any_cpu(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path, cpu="any")
    agrees(oldest, converted, feeds)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("opset", [11, 13, 20])
@pytest.mark.parametrize("name", [n for n in CASES if n != "embed-layer-normalization"])
def test_int8_per_tensor(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path, recipe="int8-per-tensor")
    agrees(oldest, converted, feeds)


@pytest.mark.sweep(7)
@pytest.mark.parametrize("opset", [11, 13, 20])
@pytest.mark.parametrize("name", [*LINEAR, "gather", "if", "float16", "batched-and-vector"])
def test_qdq(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path, quant_format="qdq")
    agrees(oldest, converted, feeds)


@pytest.mark.parametrize("opset", [10, 20])
@pytest.mark.parametrize("name", [*LINEAR, "gather", "lstm", "if"])
def test_float16_recipe(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path, recipe="float16")
    assert converted.report.verification.error < 1e-3
    agrees(oldest, converted, feeds)


@pytest.mark.parametrize("opset", [10, 20])
@pytest.mark.parametrize("name", [*LINEAR, "gather", "if", "batched-and-vector"])
def test_int8_accurate(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    converted, feeds = converted_case(name, opset, tmp_path, recipe="int8-accurate")
    agrees(oldest, converted, feeds)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("opset", [10, 13, 20])
@pytest.mark.parametrize("name", CASES)
def test_native(oldest: OldRuntime, tmp_path: Path, name: str, opset: int) -> None:
    """Octavo's operators ask no more of ONNX Runtime than the interface of 1.17."""
    converted, feeds = converted_case(name, opset, tmp_path, target="native")
    agrees(oldest, converted, feeds)


@pytest.mark.parametrize("name", LINEAR)
def test_native_layers_have_the_same_bits(oldest: OldRuntime, tmp_path: Path, name: str) -> None:
    model, feeds = CASES[name](17)
    if any(n.op_type in ("Div", "Erf") for n in model.graph.node):
        pytest.skip("its GELU before the layer is ONNX Runtime's own, which changes")
    converted = convert(model, tmp_path, target="native")
    (new,), (old,) = newest(converted.path, feeds), oldest.run(converted.path, feeds)
    assert np.array_equal(new, old)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", [n for n in LINEAR if "relu" not in n])
def test_what_is_not_finite_reaches_the_output(
    oldest: OldRuntime, tmp_path: Path, name: str, bad: float
) -> None:
    """The row of the output is not finite; the other rows are as they were, bit for bit."""
    converted, feeds = converted_case(name, 17, tmp_path)
    before = oldest.run(converted.path, feeds)[0]
    spoilt = feeds["x"].copy()
    spoilt.reshape(-1, spoilt.shape[-1])[1, 3] = bad
    for runtime in (oldest.run, run):
        after = runtime(converted.path, {"x": spoilt})[0].reshape(-1, before.shape[-1])
        assert not np.isfinite(after[1]).any()
    old = oldest.run(converted.path, {"x": spoilt})[0].reshape(-1, before.shape[-1])
    rest = [i for i in range(len(old)) if i != 1]
    assert np.array_equal(old[rest], before.reshape(old.shape)[rest])


def test_blocks_need_a_newer_release_and_say_so(oldest: OldRuntime, tmp_path: Path) -> None:
    model, feeds = CASES["matmul-2d-narrow"](17)
    converted = convert(model, tmp_path, recipe="int8-block")
    assert converted.report.min_onnxruntime == "1.22"
    with pytest.raises(RuntimeError, match=r"1\.17"):
        oldest.run(converted.path, feeds)


# --- what files need, as tried with 1.17.3 and the last releases of 1.18 to 1.28 -----------------

LEAST_FOR_OPSET = {
    10: "1.17", 17: "1.17", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23", 24: "1.24",
    25: "1.24", 26: "1.25",
}  # fmt: skip
LEAST_FOR_IR = {8: "1.17", 9: "1.17", 10: "1.18", 11: "1.23", 12: "1.24", 13: "1.24"}


@pytest.mark.parametrize("opset", LEAST_FOR_OPSET)
def test_least_onnxruntime_of_an_opset(tmp_path: Path, opset: int) -> None:
    model, _ = CASES["matmul-2d-narrow"](opset)
    assert convert(model, tmp_path).report.min_onnxruntime == LEAST_FOR_OPSET[opset]


@pytest.mark.parametrize("version", LEAST_FOR_IR)
def test_least_onnxruntime_of_a_file_format(tmp_path: Path, version: int) -> None:
    model, _ = CASES["matmul-2d-narrow"](17)
    model.ir_version = version
    converted = convert(model, tmp_path)
    assert converted.report.min_onnxruntime == LEAST_FOR_IR[version]
    said = {p.key: p.value for p in converted.proto.metadata_props}
    assert said["octavo.min_onnxruntime"] == LEAST_FOR_IR[version]


def test_the_greater_need_counts(tmp_path: Path) -> None:
    model, _ = CASES["matmul-2d-narrow"](22)
    model.ir_version = 13
    assert least_onnxruntime(onnx_ir.from_proto(model)) == "1.24"
    block = convert(model, tmp_path, recipe="int8-block").report
    assert block.min_onnxruntime == "1.24"


def test_this_release_is_new_enough_for_all_of_them() -> None:
    here = tuple(int(i) for i in onnxruntime.__version__.split(".")[:2])
    newest = max((*LEAST_FOR_OPSET.values(), *LEAST_FOR_IR.values()))
    assert here >= tuple(int(i) for i in newest.split("."))
