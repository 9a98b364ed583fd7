"""Reading models: from paths and messages, with data beside them or behind links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from octavo.errors import ModelError
from octavo.onnx import quantize_dynamic
from octavo.onnx.read.load import load
from octavo.onnx.read.validate import stored_tensors
from tests.graphs import F32, build, convert, mlp, normal, refused, run, save, text


def external(tmp_path: Path, **options: Any) -> Path:
    return save(mlp(), tmp_path / "m.onnx", **{"external": "m.data", **options})


def changed_place(path: Path, **entries: object) -> None:
    """Changes where the tensors say they lie (the first one, but for `location`)."""
    model = onnx.load(path, load_external_data=False)
    for key, value in entries.items():
        for tensor in model.graph.initializer[: 2 if key == "location" else 1]:
            next(e for e in tensor.external_data if e.key == key).value = str(value)
    path.write_bytes(model.SerializeToString())


def test_what_a_source_says(tmp_path: Path) -> None:
    path = external(tmp_path)
    source = load(str(path))
    assert source.path == path and source.label == str(path) and source.proto is None
    assert source.data_files == {tmp_path / "m.data"}
    assert source.files == {path, tmp_path / "m.data"}
    assert source.bytes == sum(f.stat().st_size for f in source.files)
    for name, tensor in source.model.graph.initializers.items():
        assert tensor.const_value is not None
        stored = numpy_helper.to_array(
            next(t for t in onnx.load(path).graph.initializer if t.name == name)
        )
        assert np.array_equal(tensor.const_value.numpy(), stored)


def test_a_message(tmp_path: Path) -> None:
    model = mlp()
    source = load(model)
    assert source.path is None and source.label == "(ModelProto)" and not source.files
    assert source.bytes == model.ByteSize()


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    external(tmp_path)
    monkeypatch.chdir(tmp_path)
    report = quantize_dynamic("m.onnx", "out.onnx")
    assert (report.source, report.output) == ("m.onnx", "out.onnx")
    assert report.verification.status == "passed"
    source = load("m.onnx")
    monkeypatch.chdir("/")  # what was read of it does not depend on the folder any more
    assert all(v.const_value.numpy().any() for v in source.model.graph.initializers.values())  # type: ignore[union-attr]


def function_model() -> onnx.ModelProto:
    """A local function whose body holds a Constant with the weight."""
    imports = [helper.make_opsetid("", 17)]
    value = numpy_helper.from_array(normal(32, 32), "k")
    body = [
        helper.make_node("Constant", [], ["k"], value=value),
        helper.make_node("MatMul", ["a", "k"], ["b"], name="inside"),
    ]
    own = helper.make_function("own", "Own", ["a"], ["b"], body, imports)
    call = helper.make_node("Own", ["x"], ["y"], name="call", domain="own")
    shape = (F32, ["m", 32])
    return build([call], {"x": shape}, {"y": shape}, functions=[own], domains=["own"])


@pytest.mark.parametrize(
    ("make", "recipe"),
    [
        (mlp, "int8"),
        (mlp, "float16"),
        (function_model, "int8"),
        (function_model, "int8-block"),
    ],
)
def test_the_callers_message_is_not_changed(tmp_path: Path, make: Any, recipe: str) -> None:
    model = make()
    before = model.SerializeToString(deterministic=True)
    report = quantize_dynamic(model, tmp_path / "out.onnx", recipe=recipe)
    assert report.verification.status == "passed" and report.quantized
    assert model.SerializeToString(deterministic=True) == before
    as_file = convert(save(model, tmp_path / "m.onnx"), tmp_path, recipe=recipe).path
    x = {"x": normal(4, 32, seed=9)}
    assert np.array_equal(run(tmp_path / "out.onnx", x)[0], run(as_file, x)[0])


def test_a_message_whose_data_lies_in_a_file(tmp_path: Path) -> None:
    path = external(tmp_path)
    model = onnx.load(path, load_external_data=False)
    with refused(tmp_path, ModelError, "'w0' in an external file", "path of the .onnx file"):
        quantize_dynamic(model, tmp_path / "out.onnx")


def test_missing_data(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "m.data").rename(tmp_path / "elsewhere")
    with refused(
        tmp_path, ModelError, str(path), f"{tmp_path / 'm.data'} of tensor 'w", "is missing",
        "put it beside the model",
    ):  # fmt: skip
        quantize_dynamic(path, tmp_path / "out.onnx")
    (tmp_path / "m.data").mkdir()
    with refused(tmp_path, ModelError, "is missing"):
        quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.mark.parametrize(("length", "linked"), [(0, False), (4096, False), (8191, True)])
def test_truncated_data(tmp_path: Path, length: int, linked: bool) -> None:
    path = external(tmp_path)
    os.truncate(tmp_path / "m.data", length)
    if linked:  # as in a hub's cache
        (tmp_path / "m.data").rename(tmp_path / "blob")
        (tmp_path / "m.data").symlink_to("blob")
    with refused(
        tmp_path, ModelError, "m.data is truncated: tensor 'w1' ends at byte 8192",
        f"the file has {length}", "get the file again",
    ):  # fmt: skip
        quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.mark.parametrize(
    "location",
    ["../m.data", "sub/../../m.data", "/etc/passwd", "", ".", "..", "sub/.."],
)
def test_data_outside_of_the_models_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = external(folder)
    (folder / "m.data").rename(tmp_path / "m.data")
    changed_place(path, location=location)
    with refused(
        tmp_path, ModelError, f"'w0' claims to lie in {location!r}", "must lie beside the model"
    ):
        quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"offset": -8}, "-8"),
        ({"offset": "x"}, "is not a valid ONNX model"),
        ({"offset": 1 << 40}, "is truncated"),
        ({"length": 4000}, "holds 4000 bytes, and its shape (32, 32) of float takes 4096"),
        ({"length": 5000}, "holds 5000 bytes"),
    ],
)
def test_places_that_do_not_fit(tmp_path: Path, entries: dict[str, object], problem: str) -> None:
    path = external(tmp_path)
    changed_place(path, **entries)
    with refused(tmp_path, ModelError, str(path), problem):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_a_misspelt_key_of_a_place(tmp_path: Path) -> None:
    """Without its offset the tensor would be read from the beginning of the file."""
    path = external(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"offset", b"offsat"))
    with refused(tmp_path, ModelError, "says 'offsat' of its place", "location, offset, length"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_data_in_a_subfolder(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "m.data").rename(tmp_path / "sub" / "m.data")
    changed_place(path, location="sub/m.data")
    assert quantize_dynamic(path, tmp_path / "out.onnx").verification.status == "passed"


def test_the_own_files_name_in_a_model_is_harmless(tmp_path: Path) -> None:
    """A model that states the mark by which `skeleton` refers to the file reads its own bytes."""
    path = external(tmp_path)
    changed_place(path, location="<the model's own file>", offset=0)
    with refused(tmp_path, ModelError, "is truncated"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def constant_model() -> onnx.ModelProto:
    """The weight is the attribute of a Constant, once in a branch of an If."""
    body = """[weight] k = Constant <value = float[1] {0}> ()
        [mm] h = MatMul (x, k)
        y = If (c) <
            then_branch = then () => (float[m, 64] o) {
                then_b = Constant <value = float[1] {0}> ()
                [then_mm] o = MatMul (h, then_b)
            },
            else_branch = else () => (float[m, 64] p) {
                else_b = Constant <value = float[1] {0}> ()
                [else_mm] p = MatMul (h, else_b)
            }>"""
    model = text(body, "float[m, 64] x, bool c", "float[m, 64] y")
    branches = [attribute.g for attribute in model.graph.node[2].attribute]
    for i, graph in enumerate([model.graph, *branches]):
        value = numpy_helper.from_array(normal(64, 64, seed=min(i, 1)))
        graph.node[0].attribute[0].t.CopyFrom(value)
    return model


@pytest.mark.parametrize(
    "options", [{}, {"recipe": "int8-per-tensor"}, {"nodes_to_exclude": ["mm"]}]
)
def test_attributes_in_external_files(tmp_path: Path, options: dict[str, Any]) -> None:
    """`convert_attribute=True` of onnx.save puts the tensors of Constants into the data file."""
    model = constant_model()
    feed = {"x": normal(3, 64), "c": np.array(False)}
    plain = run(model, feed)[0]
    (tmp_path / "in").mkdir()
    path = save(model, tmp_path / "in" / "m.onnx", external="m.data", convert_attribute=True)
    assert path.stat().st_size < 2000
    report = quantize_dynamic(path, tmp_path / "out.onnx", **{"cpu": "any", **options})
    assert report.verification.status in ("passed", "compared", "unchecked")
    assert len(report.quantized) == 3 - len(options.get("nodes_to_exclude", ()))
    (tmp_path / "in").rename(tmp_path / "away")
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
    difference = run(tmp_path / "out.onnx", feed)[0] - plain
    assert np.abs(difference).max() < 0.05 * np.abs(plain).max()
    (tmp_path / "away" / "m.data").unlink()
    with pytest.raises(ModelError, match=r"of tensor .Constant '(then|else)_b', value"):
        load(tmp_path / "away" / "m.onnx")


def hub(tmp_path: Path, model: onnx.ModelProto) -> Path:
    """The layout of a model hub's cache: links in a snapshot to blobs named by their hash."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save(model, tmp_path / "model.onnx", external="model.onnx_data")
    for name, digest in (("model.onnx", "1f00"), ("model.onnx_data", "9d3a")):
        (tmp_path / name).rename(blobs / digest)
        (snapshot / name).symlink_to(Path("..", "..", "blobs", digest))
    return snapshot / "model.onnx"


def test_the_layout_of_a_model_hub(tmp_path: Path) -> None:
    path = hub(tmp_path, mlp())
    blobs = {p.name: p.read_bytes() for p in (tmp_path / "blobs").iterdir()}
    for name in ("elsewhere.onnx", "snapshots/abc/beside.onnx"):
        report = quantize_dynamic(path, tmp_path / name, use_external_data_format=True)
        assert report.verification.status == "passed", report.verification.detail
    assert {p.name: p.read_bytes() for p in (tmp_path / "blobs").iterdir()} == blobs
    assert load(path).data_files == {path.parent / "model.onnx_data"}


def test_nothing_that_is_read_stays_open(tmp_path: Path) -> None:
    path = external(tmp_path)
    os.link(tmp_path / "m.data", tmp_path / "another")  # as package managers share files
    before = set(Path("/proc/self/fd").iterdir())
    maps = Path("/proc/self/maps")
    for _ in range(3):
        quantize_dynamic(path, tmp_path / "out.onnx", verify=False)
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 1
    assert str(tmp_path) not in maps.read_text()


def test_tensors_in_every_place_are_found() -> None:
    model = ir.from_proto(constant_model())
    names = [name for name, _ in stored_tensors(model)]
    assert sorted(names) == [f"Constant '{n}', value" for n in ("else_b", "then_b", "weight")]
    inside = [name for name, _ in stored_tensors(ir.from_proto(function_model()))]
    assert inside == ["Constant 'k', value"]


def test_raising_the_opset_says_nothing_by_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The report does; of which converter was taken nobody has to know."""
    model = mlp()
    model.opset_import[0].version = 9
    with caplog.at_level("WARNING"):
        notes = convert(model, tmp_path).report.notes
    assert any("opset raised from 9" in note for note in notes)
    assert caplog.records == []
