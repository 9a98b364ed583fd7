"""Damaged files: an error when the session opens, which names the node, and never a crash.

Every file is opened in a child process, some of whose outcomes would end it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper

from octavo.onnx import quantize_dynamic
from tests.core.layers import random_layer
from tests.graphs import mlp, normal, save
from tests.native_target.child import run_child
from tests.native_target.support import grouped_model, linear_model, opened

OPEN_ALL = """
import json, sys
import numpy as np
from tests.native_target.support import opened
from pathlib import Path
for path in sys.argv[2:]:
    try:
        session = opened(Path(path), threads=1)
    except Exception as error:
        print(json.dumps(" ".join(str(error).split())), flush=True)
        continue
    if sys.argv[1] == "run":
        shape = [3 if isinstance(d, str) else d for d in session.get_inputs()[0].shape]
        session.run(None, {"x": np.ones(shape, np.float32)})
    print(json.dumps(""), flush=True)
"""


def outcomes(paths: Sequence[Path], then: str = "open") -> list[str]:
    """What ONNX Runtime says of each file; "" where it opens (and, with `then="run"`, runs)."""
    lines = run_child(OPEN_ALL, then, *map(str, paths))
    assert len(lines) == len(paths)
    return [json.loads(line) for line in lines]


def written(folder: Path, *models: onnx.ModelProto) -> list[Path]:
    return [save(model, folder / f"{i}.onnx") for i, model in enumerate(models)]


def changed(model: onnx.ModelProto, name: str, content: bytes) -> onnx.ModelProto:
    """A copy whose tensor `name` holds `content`."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (tensor,) = [i for i in copy.graph.initializer if i.name == name]
    tensor.raw_data = content
    return copy


def bytes_of(model: onnx.ModelProto, name: str) -> bytes:
    (tensor,) = [i for i in model.graph.initializer if i.name == name]
    return bytes(tensor.raw_data)


def flipped(content: bytes, at: int, bit: int = 0) -> bytes:
    damaged = bytearray(content)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def test_a_flipped_bit_of_a_weight_is_found_wherever_it_is(tmp_path: Path) -> None:
    model = linear_model(random_layer(33, 22), ["m", 22])
    whole = bytes_of(model, "W")
    places = [*range(0, len(whole), 61), len(whole) - 1]  # padding too
    models = [changed(model, "W", flipped(whole, at, at % 8)) for at in places]
    for said in outcomes(written(tmp_path, *models)):
        assert "node 'dense' (ai.octavo.Linear): W does not hold what was written" in said
        assert "the file is damaged" in said


def test_a_flipped_bit_in_one_of_several_layers(tmp_path: Path) -> None:
    model = grouped_model([random_layer(n, 22, seed=n) for n in (33, 5)], ["m", 22])
    models = [changed(model, f"{i}_W", flipped(bytes_of(model, f"{i}_W"), 7)) for i in (0, 1)]
    for said in outcomes(written(tmp_path, *models)):
        assert "node 'qkv' (ai.octavo.GroupedLinear): W does not hold what was written" in said


def test_swapped_tensors_are_found(tmp_path: Path) -> None:
    """Two weights of one shape, and the two vectors of one length."""
    model = grouped_model([random_layer(16, 22, seed=n) for n in (1, 2)], ["m", 22])
    swapped = changed(model, "0_W", bytes_of(model, "1_W"))
    swapped = changed(swapped, "1_W", bytes_of(model, "0_W"))
    linear = linear_model(random_layer(33, 22), ["m", 22])
    vectors = onnx.ModelProto()
    vectors.CopyFrom(linear)
    names = vectors.graph.node[0].input
    names[2], names[4] = "B", "W_scale"
    said = outcomes(written(tmp_path, swapped, vectors))
    assert "W does not hold what was written" in said[0]
    assert "node 'dense'" in said[1] and "scales are finite and above 0" in said[1]


@pytest.mark.parametrize("name", ["W", "W_scale", "W_zero_point", "B"])
def test_a_tensor_of_fewer_or_more_bytes_than_it_says(tmp_path: Path, name: str) -> None:
    model = linear_model(random_layer(33, 22), ["m", 22])
    whole = bytes_of(model, name)
    models = [
        changed(model, name, c) for c in (whole[:-1], whole[: len(whole) // 2], b"", whole * 2)
    ]
    for said in outcomes(written(tmp_path, *models)):
        assert said  # ONNX Runtime's own words


def test_sizes_that_are_not_the_weights(tmp_path: Path) -> None:
    models = []
    for name in ("N", "K"):
        for value in (1, 16, 48, 49, 2**31 - 1, 2**63 - 1, -(2**63), 0):
            model = linear_model(random_layer(33, 22), ["m", 22])
            (found,) = [a for a in model.graph.node[0].attribute if a.name == name]
            found.i = value
            models.append(model)
    for said in outcomes(written(tmp_path, *models)):
        assert "node 'dense' (ai.octavo.Linear)" in said


def test_inputs_left_out_in_the_middle(tmp_path: Path) -> None:
    models = []
    for i in range(5):
        model = linear_model(random_layer(33, 22), ["m", 22], ["m", 33])
        model.graph.node[0].input[i] = ""
        models.append(model)
    for model, said in zip(
        written(tmp_path, *models), outcomes(written(tmp_path, *models)), strict=True
    ):
        assert said, model


def test_many_more_inputs_and_outputs_than_there_are(tmp_path: Path) -> None:
    more = linear_model(random_layer(33, 22), ["m", 22], ["m", 33])
    more.graph.node[0].input.extend(["residual"] * 3)
    outs = linear_model(random_layer(33, 22), ["m", 22])
    outs.graph.node[0].output.extend(["y2"])
    none = linear_model(random_layer(33, 22), ["m", 22])
    del none.graph.node[0].input[:]
    for said in outcomes(written(tmp_path, more, outs, none)):
        assert "dense" in said


# --- weights in a file of their own ---------------------------------------------------------------


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native file with its weights beside it, as Octavo writes it."""
    folder = tmp_path_factory.mktemp("external")
    quantize_dynamic(mlp(2, 300), folder / "q.onnx", target="native", use_external_data_format=True)
    return folder / "q.onnx"


def data_file(model: Path) -> Path:
    (found,) = [p for p in model.parent.iterdir() if p.name != model.name]
    return found


def copied(model: Path, folder: Path, content: bytes) -> Path:
    """The model with other bytes in its data file."""
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


def test_weights_lie_on_cache_lines(external: Path) -> None:
    """They are used where they are mapped."""
    found = weights_of(external)
    assert len(found) == 2
    assert all(offset % 64 == 0 for offset, _ in found)


def test_whole_it_runs(external: Path) -> None:
    assert outcomes([external], "run") == [""]


def test_a_flipped_bit_in_the_data_file(external: Path, tmp_path: Path) -> None:
    whole = data_file(external).read_bytes()
    paths = [
        copied(external, tmp_path / f"{i}_{j}", flipped(whole, offset + at, 6))
        for i, (offset, length) in enumerate(weights_of(external))
        for j, at in enumerate((0, length // 2, length - 1))
    ]
    for i, said in enumerate(outcomes(paths)):
        assert f"node 'layer{i // 3}' (ai.octavo.Linear): W does not hold what was written" in said


def test_swapped_weights_in_the_data_file(external: Path, tmp_path: Path) -> None:
    whole = bytearray(data_file(external).read_bytes())
    (a, size), (b, _) = weights_of(external)
    whole[a : a + size], whole[b : b + size] = whole[b : b + size], whole[a : a + size]
    (said,) = outcomes([copied(external, tmp_path / "swapped", bytes(whole))])
    assert "W does not hold what was written" in said


def test_a_data_file_cut_short(external: Path, tmp_path: Path) -> None:
    """Also in the middle of a page: what is mapped and is not there would be a SIGBUS."""
    whole = data_file(external).read_bytes()
    lengths = [0, 1, 4096, len(whole) // 2, len(whole) - 8192, len(whole) - 1]
    paths = [copied(external, tmp_path / str(n), whole[:n]) for n in lengths]
    for said in outcomes(paths, "run"):
        assert said


def test_no_data_file(external: Path, tmp_path: Path) -> None:
    path = copied(external, tmp_path / "none", b"")
    data_file(path).unlink()
    (said,) = outcomes([path])
    assert said


@pytest.mark.parametrize(
    ("offset", "length"), [(1 << 40, None), (-4096, None), (None, 1 << 40), (None, 5)], ids=str
)
def test_bytes_beyond_the_data_file(
    external: Path, tmp_path: Path, offset: int | None, length: int | None
) -> None:
    proto = onnx.load(external, load_external_data=False)
    tensor = next(i for i in proto.graph.initializer if len(i.dims) == 4)
    for entry in tensor.external_data:
        if entry.key == "offset" and offset is not None:
            entry.value = str(offset)
        if entry.key == "length" and length is not None:
            entry.value = str(length)
    path = copied(external, tmp_path / "beyond", data_file(external).read_bytes())
    path.write_bytes(proto.SerializeToString())
    (said,) = outcomes([path], "run")
    assert said


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
    x = normal(7, 300)
    assert np.array_equal(
        opened(path).run(None, {"x": x})[0], opened(external).run(None, {"x": x})[0]
    )
