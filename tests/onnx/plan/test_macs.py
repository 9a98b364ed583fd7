"""What inspect says a model multiplies, holds and has quantized already."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from octavo.onnx import inspect
from octavo.results.inspection import Inspection
from tests.graphs import convert, normal, text

Shapes = dict[str, tuple[int, ...]]
LINEAR = "[MatMul] y = MatMul (x, w)", "4, 64", {"w": (64, 64)}


def model(body: str, x: str, weights: Shapes, opset: int = 17) -> onnx.ModelProto:
    """The last of the nodes gives y."""
    stored = {name: normal(*shape) for name, shape in weights.items()}
    return text(body, f"float[{x}] x", weights=stored, opset=opset)


def counted(found: Inspection) -> dict[str, int | None]:
    return {d.layer.name: m for d, m in zip(found.decisions, found.macs, strict=True)}


# Each output is a sum: [2, 5, 8] of 64, [2, 16, 6, 6] of 3 * 9, ...
WORK: list[tuple[str, str, Shapes, int]] = [
    ("MatMul (x, w)", "2, 5, 64", {"w": (64, 8)}, 2 * 5 * 8 * 64),
    ("MatMul (w, x)", "64, 5", {"w": (8, 64)}, 8 * 5 * 64),
    ("Gemm <transB = 1> (x, w)", "7, 64", {"w": (8, 64)}, 7 * 8 * 64),
    ("Conv (x, w)", "2, 3, 8, 8", {"w": (16, 3, 3, 3)}, 2 * 16 * 36 * 27),
    ("Conv <group = 4> (x, w)", "1, 4, 10", {"w": (8, 1, 3)}, 8 * 8 * 3),
    ("ConvTranspose (x, w)", "1, 4, 10", {"w": (4, 8, 32)}, 10 * 4 * 8 * 32),
    ('Einsum <equation = "bij,jk->bik"> (x, w)', "2, 5, 64", {"w": (64, 32)}, 20480),
    ("Add (x, w)", "64, 64", {"w": (64, 64)}, 0),
    (
        "LSTM <hidden_size = 8> (x, w, r)", "6, 2, 16", {"w": (1, 32, 16), "r": (1, 32, 8)},
        6 * 2 * 32 * (16 + 8),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "x", "weights", "macs"), WORK, ids=[row[0] for row in WORK])
def test_work_is_counted_from_sizes_that_are_fixed(
    op: str, x: str, weights: Shapes, macs: int
) -> None:
    found = inspect(model(f"[layer] y = {op}", x, weights))
    assert counted(found) == {"layer": macs}
    assert found.sizes == ""


def test_open_sizes_are_those_of_inputs_made_up_and_said() -> None:
    found = inspect(model("[conv] y = Conv (x, w)", "n, 3, h, width", {"w": (16, 3, 3, 3)}))
    name, _, shape = found.sizes.partition("=")
    n, channels, height, width = map(int, shape.split("x"))
    assert (name, channels) == ("x", 3)
    assert counted(found) == {"conv": n * 16 * (height - 2) * (width - 2) * 27}


def test_what_cannot_be_counted_is_none_and_no_share_is_said() -> None:
    body = """places = NonZero (x)
        rows = Cast <to = 1> (places)
        turned = Transpose (rows)
        [late] late = MatMul (turned, w)
        [first] z = MatMul (x, v)
        [product] y = MatMul (z, late)"""
    found = inspect(model(body, "4, 2", {"w": (2, 64), "v": (2, 64)}))
    assert (counted(found)["first"], counted(found)["late"]) == (4 * 64 * 2, None)
    assert "%" not in str(found)


def test_a_layer_in_a_branch_runs_or_not_and_is_not_counted() -> None:
    body = """c = Cast <to = 9> (one)
        y = If (c) <then_branch = t () => (float[] o) { [a] o = MatMul (x, w) },
                    else_branch = e () => (float[] o) { [b] o = MatMul (x, w) }>"""
    found = inspect(model(body, "4, 64", {"w": (64, 64), "one": ()}))
    assert counted(found) == {"a": None, "b": None}
    assert "%" not in str(found)


def test_shared_weights_count_once() -> None:
    body = "[first] h = MatMul (x, w) turned = Transpose (w) [second] y = MatMul (h, turned)"
    found = inspect(model(body, "4, 64", {"w": (64, 64)}))
    assert found.weight_bytes == (64 * 64 * 4, 0)
    assert "2 layers with 16.4 kB of weights" in str(found)
    assert [layer["own_bytes"] for layer in found.to_dict()["layers"]] == [16384, 0]


@pytest.mark.parametrize("opset", [8, 13])
def test_the_opset_is_the_file_s_own(opset: int) -> None:
    found = inspect(model(*LINEAR, opset))
    assert found.opset == opset
    assert f"opset {opset}, IR version 8" in str(found)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_file_of_octavo_says_what_it_is(target: str, tmp_path: Path) -> None:
    found = inspect(convert(model(*LINEAR), tmp_path, target=target).path)
    assert found.quantized.startswith("1 of 1 layers, by Octavo ")
    assert found.quantized.endswith(f" (recipe int8, target {target})")
    assert "Quantized already: 1 of 1 layers" in str(found)


def test_what_multiplies_and_is_no_layer_leaves_no_share_to_be_said() -> None:
    body = '[layer] h = MatMul (x, w) [einsum] y = Einsum <equation = "ij,kj->ik"> (h, h)'
    found = inspect(model(body, "4, 64", {"w": (64, 64)}))
    assert (found.uncounted, counted(found)) == (1, {"layer": 4 * 64 * 64})
    assert "%" not in str(found)
    assert str(found).endswith("not counted: 1 node without weights")
    assert inspect(model(*LINEAR)).uncounted == 0
