"""Damaged files: an error when the session opens, which names the node, and never a crash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper

from octavo.onnx import quantize_dynamic
from tests.core.layers import random_layer
from tests.graphs import mlp, normal, save
from tests.native_target.nodes import grouped_model, linear_model, opened


def outcomes(paths: Sequence[Path], *, run: bool = False) -> list[str]:
    """What ONNX Runtime says of each file; "" where it opens (and, with `run`, runs)."""
    return [outcome(path, run) for path in paths]


def outcome(path: Path, run: bool) -> str:
    try:
        session = opened(path)
    except Exception as error:  # noqa: BLE001  # of ONNX Runtime or of an operator
        return str(error)
    if run:
        shape = [3 if isinstance(d, str) else d for d in session.get_inputs()[0].shape]
        session.run(None, {"x": np.ones(shape, np.float32)})
    return ""


NAMES = ["x", "W", "W_scale", "W_zero_point", "B", "residual"]


def linear() -> onnx.ModelProto:
    return linear_model(random_layer(33, 22), ["m", 22])


def grouped(*sizes: int) -> onnx.ModelProto:
    layers = [random_layer(n, 22, seed=i) for i, n in enumerate(sizes)]
    return grouped_model(layers, ["m", 22])


def changed(model: onnx.ModelProto, contents: Mapping[str, bytes]) -> onnx.ModelProto:
    """The model, whose tensors of these names hold these bytes."""
    for tensor in model.graph.initializer:
        tensor.raw_data = contents.get(tensor.name, tensor.raw_data)
    return model


def bytes_of(model: onnx.ModelProto, name: str) -> bytes:
    (tensor,) = [i for i in model.graph.initializer if i.name == name]
    return bytes(tensor.raw_data)


def flipped(content: bytes, at: int, bit: int = 0) -> bytes:
    damaged = bytearray(content)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def with_size(name: str, value: int) -> onnx.ModelProto:
    model = linear()
    (found,) = [a for a in model.graph.node[0].attribute if a.name == name]
    found.i = value
    return model


def with_inputs(inputs: Sequence[str], outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    model = linear_model(random_layer(33, 22), ["m", 22], ["m", 33])
    model.graph.node[0].input[:], model.graph.node[0].output[:] = inputs, outputs
    return model


def cut(name: str) -> list[onnx.ModelProto]:
    whole = bytes_of(linear(), name)
    contents = (whole[:-1], whole[: len(whole) // 2], b"", whole * 2)
    return [changed(linear(), {name: content}) for content in contents]


LINEAR, GROUPED = "node 'dense' (ai.octavo.Linear)", "node 'dense' (ai.octavo.GroupedLinear)"
DAMAGED = "W does not hold what was written"
W = bytes_of(linear(), "W")
FIRST, SECOND = (bytes_of(grouped(16, 16), name) for name in ("0_W", "1_W"))
CASES: dict[str, tuple[list[onnx.ModelProto], tuple[str, ...]]] = {
    "a bit flipped wherever it is": (  # padding too
        [changed(linear(), {"W": flipped(W, i, i % 8)}) for i in (*range(0, len(W), 61), -1)],
        (LINEAR, DAMAGED, "the file is damaged"),
    ),
    "a bit flipped in one of several layers": (
        [
            changed(grouped(16, 16), {"0_W": flipped(FIRST, 7)}),
            changed(grouped(16, 16), {"1_W": flipped(SECOND, 7)}),
        ],
        (GROUPED, DAMAGED),
    ),
    "swapped weights": (
        [changed(grouped(16, 16), {"0_W": SECOND, "1_W": FIRST})],
        (GROUPED, DAMAGED),
    ),
    "swapped vectors": (
        [with_inputs(["x", "W", "B", "W_zero_point", "W_scale"])],
        (LINEAR, "scales are finite and above 0"),
    ),
    "other numbers of bytes": (  # ONNX Runtime's own words
        [model for name in ("W", "W_scale", "W_zero_point", "B") for model in cut(name)],
        (),
    ),
    "other sizes": (
        [
            with_size(name, value)
            for name in ("N", "K")
            for value in (1, 16, 48, 49, 2**31 - 1, 2**63 - 1, -(2**63), 0)
        ],
        (LINEAR,),
    ),
    "no input in the middle": (
        [with_inputs([*NAMES[:i], "", *NAMES[i + 1 :]]) for i in range(5)],
        (),
    ),
    "other numbers of inputs and outputs": (
        [
            with_inputs([*NAMES, "residual", "residual", "residual"]),
            with_inputs(NAMES, ["y", "y2"]),
            with_inputs([]),
        ],
        ("dense",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_model_is_refused(tmp_path: Path, case: str) -> None:
    models, words = CASES[case]
    paths = [save(model, tmp_path / f"{i}.onnx") for i, model in enumerate(models)]
    for said in outcomes(paths):
        assert said
        assert all(part in said for part in words), said


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("external") / "q.onnx"
    options = {"use_external_data_format": True, "verify": False}
    quantize_dynamic(mlp(2, 300), path, target="native", **options)
    return path


def data_file(model: Path) -> Path:
    (found,) = [p for p in model.parent.iterdir() if p.name != model.name]
    return found


def copied(model: Path, folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / data_file(model).name).write_bytes(content)
    path = folder / model.name
    path.write_bytes(model.read_bytes())
    return path


def weights_of(model: Path) -> list[tuple[int, int]]:
    """Offset and length of each packed weight in the data file."""
    proto = onnx.load(model, load_external_data=False)
    found = []
    for tensor in proto.graph.initializer:
        if external_data_helper.uses_external_data(tensor) and len(tensor.dims) == 4:
            info = external_data_helper.ExternalDataInfo(tensor)
            found.append((int(info.offset), int(info.length)))
    return found


def test_whole_it_runs_and_its_weights_lie_on_cache_lines(external: Path) -> None:
    """They are used where they are mapped."""
    assert outcomes([external], run=True) == [""]
    found = weights_of(external)
    assert len(found) == 2
    assert all(offset % 64 == 0 for offset, _ in found)


def test_damaged_weights_in_the_data_file(external: Path, tmp_path: Path) -> None:
    whole, places = data_file(external).read_bytes(), weights_of(external)
    paths = [
        copied(external, tmp_path / f"{i}_{j}", flipped(whole, offset + at, 6))
        for i, (offset, length) in enumerate(places)
        for j, at in enumerate((0, length // 2, length - 1))
    ]
    (a, size), (b, _) = places
    swapped = bytearray(whole)
    swapped[a : a + size], swapped[b : b + size] = whole[b : b + size], whole[a : a + size]
    *said, of_swapped = outcomes([*paths, copied(external, tmp_path / "swapped", bytes(swapped))])
    for i, words in enumerate(said):
        assert f"node 'layer{i // 3}' (ai.octavo.Linear): {DAMAGED}" in words
    assert DAMAGED in of_swapped


def test_a_data_file_cut_short_or_not_there(external: Path, tmp_path: Path) -> None:
    """Also in the middle of a page: what is mapped and is not there would be a SIGBUS."""
    whole = data_file(external).read_bytes()
    lengths = [0, 1, 4096, len(whole) // 2, len(whole) - 8192, len(whole) - 1]
    paths = [copied(external, tmp_path / str(n), whole[:n]) for n in lengths]
    paths.append(copied(external, tmp_path / "none", b""))
    data_file(paths[-1]).unlink()
    assert all(outcomes(paths, run=True))


def with_places(model: Path, folder: Path, content: bytes, **places: int) -> Path:
    """The model whose first weight is said to have another offset or length."""
    proto = onnx.load(model, load_external_data=False)
    tensor = next(i for i in proto.graph.initializer if len(i.dims) == 4)
    for entry in tensor.external_data:
        entry.value = str(places.get(entry.key, entry.value))
    path = copied(model, folder, content)
    path.write_bytes(proto.SerializeToString())
    return path


def test_bytes_beyond_the_data_file(external: Path, tmp_path: Path) -> None:
    whole = data_file(external).read_bytes()
    places = [{"offset": 1 << 40}, {"offset": -4096}, {"length": 1 << 40}, {"length": 5}]
    paths = [with_places(external, tmp_path / str(i), whole, **p) for i, p in enumerate(places)]
    assert all(outcomes(paths, run=True))


def test_a_weight_that_begins_anywhere_is_copied_to_a_cache_line(
    external: Path, tmp_path: Path
) -> None:
    """Other tools write data files anew, without our alignment: the results are the same bits."""
    proto = onnx.load(external, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "offset":
                entry.value = str(int(entry.value) + 4)
    path = copied(external, tmp_path / "moved", bytes(4) + data_file(external).read_bytes())
    path.write_bytes(proto.SerializeToString())
    assert all(offset % 64 == 4 for offset, _ in weights_of(path))
    feed = {"x": normal(7, 300)}
    found, whole = (opened(model).run(None, feed)[0] for model in (path, external))
    assert np.array_equal(found, whole)
