"""com.microsoft.GroupQueryAttention in target native gives what ONNX Runtime's own gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from octavo.errors import ModelError
from octavo.onnx import convert_target, session
from tests.graphs import MS, Array, build, convert, node, rng, run, weight
from tests.onnx.rules.attention_graphs import assert_same

HEADS, KV_HEADS, DEPTH, POSITIONS = 6, 2, 16, 32
ORDER = (
    *("query", "key", "value", "past_key", "past_value", "lengths", "total", "cos", "sin"),
    *("positions", "bias", "sinks", "k_scale", "v_scale", "q_norm", "k_norm", "counts"),
)
OUTPUTS = ("o", "present_key", "present_value")
CONSTANTS = ("cos", "sin", "sinks")


def noise(*shape: int, seed: int = 0) -> Array:
    return np.asarray(rng(seed).standard_normal(shape), np.float32)


def angles(width: int = DEPTH // 2) -> dict[str, Array]:
    turned = noise(POSITIONS, width, seed=9)
    return {"cos": np.cos(turned), "sin": np.sin(turned)}


def step(
    rows: int, before: tuple[int, ...], *, packed: bool = False, room: int | None = None
) -> dict[str, Array]:
    """New rows of as many items as `before` says how long their past is.

    The cache has `room` rows, by default as many as the longest past; a prompt that has none has no
    cache.
    """
    batch, total = len(before), max(before) + rows
    sizes = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
    fresh = {
        name: noise(batch, rows, heads * DEPTH, seed=i)
        for i, (name, heads) in enumerate(sizes.items())
    }
    if packed:
        fresh = {"query": np.concatenate(list(fresh.values()), axis=2)}
    room = max(before) if room is None else room
    past = {
        f"past_{name}": noise(batch, KV_HEADS, room, DEPTH, seed=i)
        for i, name in enumerate(("key", "value"), 5)
    }
    lengths = np.array([n + rows - 1 for n in before], np.int32)
    return {**fresh, **past, "lengths": lengths, "total": np.array(total, np.int32)}


def model(feeds: Mapping[str, Array], **attributes: Any) -> onnx.ModelProto:
    """A layer behind the node, so that there is something to quantize."""
    names = [name if name in feeds else "" for name in ORDER]
    while not names[-1]:
        names.pop()
    stated = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}
    nodes = [
        node("GroupQueryAttention", names, OUTPUTS, name="gqa", domain=MS, **stated),
        node("MatMul", ["o", "w"], ["y"]),
    ]
    constants = {"w": weight(HEADS * DEPTH, 16)} | {n: feeds[n] for n in CONSTANTS if n in feeds}
    kind = helper.np_dtype_to_tensor_dtype
    inputs = {
        name: (kind(a.dtype), [f"{name}_{i}" for i in range(a.ndim)])
        for name, a in given(feeds).items()
    }
    return build(nodes, inputs, [*OUTPUTS, "y"], constants, ir=10)


def given(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array for name, array in feeds.items() if name not in CONSTANTS}


BIAS = noise(2, 1, 5, 5, seed=11)
PADDED = np.where(np.arange(5) < 2, np.float32(-np.inf), np.float32(0)) * np.ones(
    (2, 1, 5, 1), np.float32
)
"""Padding on the left: with the causal rule it leaves the first queries without a key."""
CASES: dict[str, tuple[dict[str, Array], dict[str, Any]]] = {
    "a prompt": (step(5, (0, 0)), {}),
    "a packed prompt": (step(5, (0, 0), packed=True) | angles(), {"do_rotary": 1}),
    "a long prompt": (step(70, (0, 0)), {"local_window_size": 9}),
    "scale, softcap": (step(5, (0,)), {"scale": 0.3, "softcap": 2.0}),
    "smooth": (step(5, (0,)), {"smooth_softmax": 1}),
    "sinks": (step(20, (0, 0)) | {"sinks": noise(HEADS, seed=3)}, {}),
    "sinks of one token": (step(1, (7, 3)) | {"sinks": noise(HEADS, seed=3)}, {}),
    "bias": (step(5, (0, 0)) | {"bias": BIAS}, {}),
    "padding on the left": (step(5, (0, 0)) | {"bias": PADDED}, {}),
    "lowest padding on the left": (
        step(5, (0, 0)) | {"bias": np.maximum(PADDED, np.finfo(np.float32).min)}, {},
    ),
    "all of one token hidden": (
        step(1, (4,)) | {"bias": np.full((1, 1, 1, 5), -np.inf, np.float32)}, {},
    ),
    "bias of heads": (step(1, (4,)) | {"bias": noise(1, HEADS, 1, 5, seed=11)}, {}),
    "rotary": (step(5, (0, 0)) | angles(), {"do_rotary": 1}),
    "rotary of a part": (step(5, (0, 0)) | angles(8), {"do_rotary": 1}),
    "rotary of neighbours": (
        step(5, (0, 0)) | angles(), {"do_rotary": 1, "rotary_interleaved": 1},
    ),
    "one token": (step(1, (7, 7)) | angles(), {"do_rotary": 1}),
    "one packed token": (step(1, (7, 7), packed=True) | angles(), {"do_rotary": 1}),
    "one token of different lengths": (step(1, (7, 2, 0)) | angles(), {"do_rotary": 1}),
    "one token in a window": (step(1, (7, 7)) | angles(), {"local_window_size": 3}),
    "one token in a buffer": (step(1, (7, 2), room=12) | angles(), {"do_rotary": 1}),
    "a prompt in a buffer": (step(5, (0, 0), room=12) | angles(), {"do_rotary": 1}),
    "more of a prompt": (step(4, (7,)) | angles(), {"do_rotary": 1}),
    "more of a prompt in a buffer": (
        step(4, (7,), room=14) | angles(), {"do_rotary": 1, "local_window_size": 5},
    ),
    "positions": (
        step(1, (7, 2)) | angles() | {"positions": np.array([[9], [4]])}, {"do_rotary": 1},
    ),
    "positions of a prompt": (
        step(5, (0,)) | angles() | {"positions": np.arange(3, 8)[None]}, {"do_rotary": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_onnx_runtime_gives(tmp_path: Path, case: str) -> None:
    feeds, attributes = CASES[case]
    source = model(feeds, **attributes)
    done = convert(source, tmp_path, target="native")
    assert [n.op_type for n in done.proto.graph.node] == ["CachedAttention", "Linear"]
    assert not [note for note in done.report.notes if "left to" in note]
    exact = run(source, given(feeds))
    found = session(done.path).run(None, given(feeds))
    convert_target(done.path, tmp_path / "portable.onnx", to="portable", verify=False)
    stock = run(tmp_path / "portable.onnx", given(feeds))
    for i in range(3):
        assert_same(found[i], exact[i])
        assert_same(stock[i], exact[i])


def test_presents_are_written_where_there_is_no_new_row(tmp_path: Path) -> None:
    """ONNX Runtime's node is not made for that; the past comes out as it was."""
    done = convert(model(step(1, (7, 3)) | angles(), do_rotary=1), tmp_path, target="native")
    feeds = given(step(0, (7, 7)))
    _, key, value, y = session(done.path).run(None, feeds)
    np.testing.assert_array_equal(key, feeds["past_key"])
    np.testing.assert_array_equal(value, feeds["past_value"])
    assert y.shape[:2] == (2, 0)


WINDOWS = [
    *((8, 5, (0, 0)), (8, 12, (0, 0)), (8, 1, (7, 7)), (8, 1, (8, 8)), (8, 1, (29, 12))),
    *((8, 4, (6,)), (8, 16, (17,)), (11, 12, (0, 0)), (11, 30, (0, 0)), (11, 1, (10, 10))),
    *((11, 1, (11, 11)), (11, 1, (5, 25)), (11, 4, (6,)), (11, 4, (17,)), (11, 16, (17,))),
]


@pytest.mark.parametrize(("capacity", "rows", "before"), WINDOWS)
def test_a_cache_of_a_window_gives_what_onnx_runtime_gives(
    tmp_path: Path, capacity: int, rows: int, before: tuple[int, ...]
) -> None:
    """Rows that stay are those of ONNX Runtime; behind them nothing is promised."""
    feeds = step(rows, before, room=capacity) | angles() | {"sinks": noise(HEADS, seed=3)}
    feeds |= {name: np.tile(feeds[name], (3, 1)) for name in ("cos", "sin")}
    attributes = {"sliding_window_cache": 1, "local_window_size": 8, "do_rotary": 1}
    source = model(feeds, **attributes)
    done = convert(source, tmp_path, target="native", verify=False)
    assert [n.op_type for n in done.proto.graph.node] == ["CachedAttention", "Linear"]
    exact, found = run(source, given(feeds)), session(done.path).run(None, given(feeds))
    assert_same(found[0], exact[0])
    at_once = capacity - 8 + 1
    for item, count in enumerate(feeds["lengths"] + 1):
        evicted = max(0, -(-(count - capacity) // at_once)) * at_once
        for ours, theirs in zip(found[1:3], exact[1:3], strict=True):
            assert_same(ours[item, :, : count - evicted], theirs[item, :, : count - evicted])


def test_rows_of_a_padded_prompt_count(tmp_path: Path) -> None:
    """What padding gives nobody reads; what is before it does not depend on it."""
    feeds = step(6, (0, 0)) | angles()
    feeds["lengths"] = np.array([5, 2], np.int32)
    source = model(feeds, do_rotary=1)
    done = convert(source, tmp_path, target="native")
    exact, found = run(source, given(feeds)), session(done.path).run(None, given(feeds))
    for item, rows in enumerate((6, 3)):
        assert_same(found[0][item, :rows], exact[0][item, :rows])
        assert_same(found[1][item, :, :rows], exact[1][item, :, :rows])


def test_a_cache_in_one_buffer_is_written_in_place(tmp_path: Path) -> None:
    """Bound as input and output: only new rows are written, as ONNX Runtime GenAI has it."""
    feeds = step(1, (7, 2), room=12) | angles()
    source = model(feeds, do_rotary=1)
    done = convert(source, tmp_path, target="native")
    s = session(done.path)
    exact = s.run(None, given(feeds))
    binding, buffers = s.io_binding(), {}
    for name, array in given(feeds).items():
        if name.startswith("past"):
            buffers[name] = ort.OrtValue.ortvalue_from_numpy(array.copy())
            binding.bind_ortvalue_input(name, buffers[name])
            binding.bind_ortvalue_output(name.replace("past", "present"), buffers[name])
        else:
            binding.bind_cpu_input(name, array)
    binding.bind_output("o")
    s.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[-1], exact[0])
    for name, place in (("past_key", 1), ("past_value", 2)):
        buffer, rows = buffers[name].numpy(), np.arange(12)
        for item, before in enumerate((7, 2)):
            known = rows <= before
            np.testing.assert_array_equal(buffer[item][:, known], exact[place][item][:, known])
            np.testing.assert_array_equal(buffer[item][:, ~known], feeds[name][item][:, ~known])


LEFT: dict[str, tuple[dict[str, Array], dict[str, Any], str]] = {
    "not causal": (step(5, (0,)), {"causal": 0}, "it is not causal"),
    "normalized": (
        step(5, (0,)) | {"q_norm": noise(DEPTH), "k_norm": noise(DEPTH)},
        {},
        "it normalizes queries and keys",
    ),
    "counts": (
        step(5, (0,)) | {"counts": np.array([5], np.int32)},
        {},
        "each item of the batch has a number of queries of its own",
    ),
    "bias and a cache of a window": (
        step(1, (7,), room=8) | {"bias": noise(1, 1, 1, 8)},
        {"sliding_window_cache": 1, "local_window_size": 8},
        "its cache holds no more than the window, and it has a bias",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_is_in_the_report(tmp_path: Path, case: str) -> None:
    feeds, attributes, reason = LEFT[case]
    done = convert(model(feeds, **attributes), tmp_path, target="native", verify=False)
    assert [n.op_type for n in done.proto.graph.node] == ["GroupQueryAttention", "Linear"]
    (note,) = [note for note in done.report.notes if "left to ONNX Runtime" in note]
    assert reason in note and "gqa" in note


BROKEN: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "no lengths": (("lengths",), {}, "has no input seqlens_k"),
    "half a cache": (("past_value",), {}, "has an input past_key and no past_value"),
    "keys without values": (("value",), {}, "has an input key and no value"),
    "no tables": (("cos", "sin"), {"do_rotary": 1}, "has do_rotary 1 and no inputs cos_cache"),
    "no heads": ((), {"kv_num_heads": 0}, "has num_heads 6 and kv_num_heads 0"),
    "heads": ((), {"kv_num_heads": 4}, "has num_heads 6 and kv_num_heads 4"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_no_run_can_do_is_an_error(tmp_path: Path, case: str) -> None:
    missing, attributes, message = BROKEN[case]
    feeds = {n: a for n, a in (step(5, (0,)) | angles()).items() if n not in missing}
    with pytest.raises(ModelError, match=f"'gqa' .*GroupQueryAttention. {message}"):
        convert(model(feeds, **attributes), tmp_path, target="native", verify=False)
    assert not list(tmp_path.glob("*native*"))
