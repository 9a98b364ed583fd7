"""Weights in a data file beside the model: asked for, kept, or needed for its size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from octavo.errors import ModelError
from octavo.files.protobuf import tag, varint
from octavo.onnx import quantize_dynamic
from octavo.onnx.read.tensor_store import ALIGNMENT, INLINE_BELOW, TensorStore
from octavo.onnx.session import metadata, session
from octavo.onnx.write import save as module
from octavo.results.report import Report
from tests.graphs import F32, mlp, normal, run, save, snapshot, text


def quantized(source: Path | str | onnx.ModelProto, out: Path | str, **options: Any) -> Report:
    """Unverified, where a test does not ask for more."""
    return quantize_dynamic(source, out, **{"verify": False, **options})


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def places(path: Path) -> dict[str, dict[str, str]]:
    model = onnx.load(path, load_external_data=False)
    return {
        t.name: {e.key: e.value for e in t.external_data}
        for t in model.graph.initializer
        if t.data_location == TensorProto.EXTERNAL
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return save(mlp(3, 128), tmp_path / "in" / "m.onnx", external="m.weights")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "q.onnx"


X = {"x": normal(4, 128, seed=3)}


def test_a_small_result_is_one_file(source: Path, out: Path) -> None:
    before = snapshot(source.parent)
    report = quantized(source, out, verify=True)
    assert report.verification.status == "passed" and names(out.parent) == ["q.onnx"]
    assert not places(out) and "octavo.data_file" not in metadata(out)
    assert report.model_bytes_before == sum(p.stat().st_size for p in source.parent.iterdir())
    assert report.model_bytes_after == out.stat().st_size
    assert snapshot(source.parent) == before
    shutil.rmtree(source.parent)
    run(out, X)


@pytest.mark.parametrize("recipe", ["int8", "int8-block", "float16"])
def test_a_data_file_when_asked_for(source: Path, out: Path, recipe: str) -> None:
    report = quantized(source, out, use_external_data_format=True, recipe=recipe)
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]
    assert metadata(out)["octavo.data_file"] == "q.onnx.data"
    assert report.model_bytes_after == sum(p.stat().st_size for p in out.parent.iterdir())
    assert not [note for note in report.notes if "MatMulNBits" not in note]
    found = places(out)
    assert len(found) >= 3
    assert {p["location"] for p in found.values()} == {"q.onnx.data"}
    spans = sorted((int(p["offset"]), int(p["length"])) for p in found.values())
    for (a, length), (b, _) in pairwise(spans):
        assert a + length <= b < a + length + ALIGNMENT
    assert all(offset % ALIGNMENT == 0 and length >= INLINE_BELOW for offset, length in spans)
    assert sum(spans[-1]) == (out.parent / "q.onnx.data").stat().st_size
    onnx.checker.check_model(out)
    quantized(source, out.parent / "one.onnx", recipe=recipe)
    assert np.array_equal(run(out, X)[0], run(out.parent / "one.onnx", X)[0])


def test_a_model_without_large_tensors_gets_no_data_file(out: Path) -> None:
    quantized(mlp(2, 16), out, use_external_data_format=True)
    assert names(out.parent) == ["q.onnx"] and "octavo.data_file" not in metadata(out)


def test_it_loads_from_any_folder_and_after_a_move(
    source: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(out.parent)
    quantized(os.path.relpath(source), "q.onnx", use_external_data_format=True)
    expected = run(out, X)[0]
    shutil.rmtree(source.parent)
    out.parent.rename(tmp_path / "moved")
    monkeypatch.chdir("/")
    assert np.array_equal(run(tmp_path / "moved" / "q.onnx", X)[0], expected)
    opened = session(tmp_path / "moved" / "q.onnx")
    assert np.array_equal(opened.run(None, X)[0], expected)


def test_subgraphs_keep_their_weights_in_the_data_file(out: Path) -> None:
    branch = "() => (float[] o) { [inside] o = MatMul (x, large) }"
    body = f"y = If (c) <then_branch = t {branch}, else_branch = e {branch}>"
    model = text(body, "float[m, 128] x, bool c", weights={"large": normal(128, 128)})
    for each in model.graph.node[0].attribute:
        stored = model.graph.initializer[0]
        each.g.initializer.append(stored)
        each.g.initializer[0].name = each.g.node[0].input[1] = f"{each.name}_large"
    del model.graph.initializer[:]
    report = quantized(model, out, use_external_data_format=True, verify=True)
    assert report.verification.status == "passed"
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]
    assert out.stat().st_size < 12_000 < 128 * 128


def test_strings_stay_in_the_model(out: Path) -> None:
    model = mlp(1, 64)
    words = helper.make_tensor("words", TensorProto.STRING, [500], [b"word"] * 500)
    model.graph.initializer.append(words)
    model.graph.node.append(helper.make_node("Identity", ["words"], ["texts"]))
    model.graph.output.append(helper.make_tensor_value_info("texts", TensorProto.STRING, [500]))
    for external in (False, True):
        quantized(model, out, use_external_data_format=external)
        assert list(run(out, {"x": normal(1, 64)})[1]) == ["word"] * 500


def test_a_result_is_replaced_by_another_twice(source: Path, out: Path) -> None:
    quantized(source, out, use_external_data_format=True)
    other = mlp(2, 200, seed=9)
    quantized(other, out, use_external_data_format=True)
    assert names(out.parent) == ["q.onnx", "q.onnx.1.data"]
    run(out, {"x": normal(2, 200)})
    quantized(source, out, use_external_data_format=True)
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]
    run(out, X)
    quantized(other, out)
    assert names(out.parent) == ["q.onnx"]
    run(out, {"x": normal(2, 200)})


def test_beside_the_input_nothing_of_it_changes(source: Path) -> None:
    before = snapshot(source.parent)
    out = source.with_name("m.int8.onnx")
    for _ in range(2):
        quantized(source, out, use_external_data_format=True)
    after = snapshot(source.parent)
    assert {n: after[n] for n in before} == before and len(after) == len(before) + 2


def test_one_data_file_of_two_models(source: Path, out: Path) -> None:
    """A copy of a result shares its data file, and is quantized over the first."""
    quantized(source, out, nodes_to_quantize=["layer0"], use_external_data_format=True)
    copied = out.with_name("copy.onnx")
    shutil.copy(out, copied)
    report = quantized(copied, out, allow_quantized=True)
    assert len(report.quantized) == 2
    assert names(out.parent) == ["copy.onnx", "q.onnx", "q.onnx.data"]
    run(copied, X)


def test_the_rest_of_a_result_with_a_data_file_is_quantized(source: Path, out: Path) -> None:
    """The new file says nothing of the old one's data."""
    quantized(source, out, nodes_to_quantize=["layer0"], use_external_data_format=True)
    final = out.with_name("final.onnx")
    quantized(out, final, allow_quantized=True)
    assert "octavo.data_file" not in metadata(final)
    quantized(out, final, allow_quantized=True, use_external_data_format=True)
    assert metadata(final)["octavo.data_file"] == "final.onnx.data"
    quantized(source, final)
    assert names(out.parent) == ["final.onnx", "q.onnx", "q.onnx.data"]
    run(out, X)


def test_a_large_result_of_a_model_with_external_data_keeps_one(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ONE_FILE_LIMIT", 40_000)
    report = quantized(source, out)
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]
    assert report.notes == ("the weights are in q.onnx.data: the model is too large for one file",)
    quantized(mlp(3, 128), out)  # whose input is one file
    assert names(out.parent) == ["q.onnx"]


@pytest.mark.parametrize("early", [True, False], ids=["expected", "found out when written"])
def test_what_protobuf_cannot_hold_goes_to_a_data_file(
    out: Path, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    monkeypatch.setattr(module, "PROTOBUF_LIMIT", 40_000)
    if not early:
        monkeypatch.setattr("octavo.onnx.produce.needs_data_file", lambda *_: False)
    report = quantized(mlp(3, 128), out, verify=True)
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]
    assert report.verification.status == "passed"
    assert any("q.onnx.data" in note for note in report.notes)
    onnx.checker.check_model(out)


def test_the_estimate_counts_shared_weights_once(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlp(6, 128)
    for node in model.graph.node:
        node.input[:] = ["w0" if i.startswith("w") else i for i in node.input]
    del model.graph.initializer[1:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(300, 300), "unused"))
    model.graph.node.append(helper.make_node("Identity", ["unused"], ["kept"]))
    model.graph.output.append(helper.make_tensor_value_info("kept", F32, [300, 300]))
    monkeypatch.setattr(module, "PROTOBUF_LIMIT", 300 * 300 * 4)
    monkeypatch.setattr(TensorStore, "spill", lambda *_: pytest.fail("this was to be expected"))
    quantized(model, out)
    assert names(out.parent) == ["q.onnx", "q.onnx.data"]


LARGE = """
import sys
from octavo.onnx import quantize_dynamic
report = quantize_dynamic(sys.argv[1], sys.argv[2], ["MatMul"], verify=False)
assert len(report.quantized) == 1, report
with open("/proc/self/status") as status:
    peak = next(line for line in status if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024, *report.notes)
"""


def beyond_two_gigabytes(path: Path, external: bool) -> int:
    """A model with 2.5 GB of zeros, as a hole in a file, behind one real layer."""
    rows, columns = 10_000, 64_000
    size = rows * columns * 4
    body = """[layer0] h = MatMul (x, w0)
        [table] g = Gather (big, i)
        s = ReduceSum <keepdims = 0> (g)
        y = Add (h, s)"""
    model = text(body, "float[m, 512] x, int64 i", weights={"w0": normal(512, 512)})
    big = TensorProto(name="big", data_type=F32, dims=[rows, columns])
    if external:
        big.data_location = TensorProto.EXTERNAL
        for key, entry in (("location", "big.data"), ("offset", 0), ("length", size)):
            big.external_data.add(key=key, value=str(entry))
        with path.with_name("big.data").open("wb") as file:
            file.truncate(size)
        model.graph.initializer.append(big)
        path.write_bytes(model.SerializeToString())
        return size
    # One file above 2 GB: onnx cannot write it, but protobuf's format does not forbid it.
    head = big.SerializeToString() + varint(tag(9, 2)) + varint(size)
    entry = varint(tag(5, 2)) + varint(len(head) + size) + head
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    start = model.SerializeToString() + varint(tag(7, 2))
    start += varint(len(graph) + len(entry) + size) + graph + entry
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + size)
    return size


def empty(folder: Path) -> None:
    """pytest keeps the folders of three runs, which would be many gigabytes."""
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("external", [True, False], ids=["external data", "one file"])
def test_models_above_two_gigabytes(tmp_path: Path, external: bool) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    size = beyond_two_gigabytes(path, external)
    done = subprocess.run(
        [sys.executable, "-c", LARGE, path, out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    peak, note = done.stdout.split(" ", 1)
    assert "q.onnx.data" in note and int(peak) < 1000, done.stdout
    assert out.stat().st_size < 100_000
    assert size < (tmp_path / "q.onnx.data").stat().st_size < size + 600_000
    x = {"x": normal(2, 512), "i": np.array(3)}
    expected = x["x"] @ normal(512, 512)
    assert np.abs(run(out, x)[0] - expected).max() < 0.05 * np.abs(expected).max()
    empty(tmp_path)


def test_what_is_put_away_can_be_read_again(tmp_path: Path) -> None:
    store = TensorStore(tmp_path / "data")
    array = normal(40, 50)
    put = store.put(array, "a")
    adopted = store.adopt(ir.Tensor(array[::-1], name="b", doc_string="text"), "b")
    small = store.put(array[:1], "c")
    store.close()
    store.close()
    assert np.array_equal(put.numpy(), array) and np.array_equal(adopted.numpy(), array[::-1])
    assert adopted.doc_string == "text"
    assert isinstance(small, ir.Tensor) and (tmp_path / "data").stat().st_size == 2 * 8000
    assert store.adopt(put, "a") is put


def test_an_input_that_goes_away_meanwhile(tmp_path: Path) -> None:
    path = save(mlp(3, 128), tmp_path / "m.onnx", external="m.data")

    def remove(stage: str, done: int, total: int) -> None:
        if stage == "quantizing" and done == 1:
            (tmp_path / "m.data").unlink()

    with pytest.raises(ModelError, match=r"m\.data"):
        quantized(path, tmp_path / "out.onnx", nodes_to_exclude=["layer2"], progress=remove)
    assert names(tmp_path) == ["m.onnx"]
