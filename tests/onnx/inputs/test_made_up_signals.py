"""Pictures, sounds and features: sizes by strides, numbers that look like the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from octavo.core.samples import picture, sound
from octavo.onnx.inputs.roles import Role
from tests.graphs import F32, build, normal
from tests.onnx.inputs.made_up_graphs import I64, accepted, embedded, guesses, kinds, node

U8 = TensorProto.UINT8


def convolved(
    strides: list[Any], shape: list[Any], tail: list[onnx.NodeProto], **weights: Any
) -> onnx.ModelProto:
    """image -> a Conv of 4 channels for each of `strides` -> h -> `tail` -> y."""
    nodes, x, channels = [], "image", 3
    for i, stride in enumerate(strides):
        pair = [stride, stride] if isinstance(stride, int) else list(stride)
        weights[f"k{i}"] = normal(4, channels, 3, 3) / 5
        out = "h" if i == len(strides) - 1 else f"h{i}"
        nodes.append(node("Conv", f"{x} k{i}", out, strides=pair, pads=[1, 1, 1, 1]))
        x, channels = out, 4
    return build([*nodes, *tail], [("image", F32, shape)], [("y", F32, None)], weights)


OPEN = ["n", 3, "height", "width"]
POOLED = [node("GlobalAveragePool", "h", "y")]


def first_sizes(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    return [feed["image"].shape for _, feed, _ in accepted(model)]


def test_a_classifier_sees_224_pixels_first_and_then_a_rectangle() -> None:
    assert first_sizes(convolved([2] * 5, OPEN, POOLED))[:2] == [(1, 3, 224, 224), (2, 3, 224, 256)]


def test_what_scales_up_again_gets_multiples_of_its_strides() -> None:
    """Each scale is joined with the one before it, which only fits where sizes divide."""
    scales = np.float32([1, 1, 64, 64])
    tail = [
        node("Conv", "h k", "deep"),
        node("Resize", "deep _ scales", "up"),
        node("Conv", "image k1x1", "skip"),
        node("Concat", "up skip", "y", axis=1),
    ]
    model = convolved(
        [2] * 6, OPEN, tail, k=normal(4, 4, 1, 1), k1x1=normal(4, 3, 1, 1), scales=scales
    )
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, _ in found:
        h, w = feed["image"].shape[2:]
        assert h % 64 == 0 and w % 64 == 0 and 192 <= h <= 640
    assert len({feed["image"].shape for _, feed, _ in found}) == 3


@pytest.mark.parametrize("height", ["height", 48, 32])
def test_readers_of_text_lines_see_lines(height: Any) -> None:
    model = convolved([(2, 2), (2, 1), (2, 1), (2, 1)], ["n", 3, height, "width"], POOLED)
    _, _, h, w = first_sizes(model)[0]
    assert h == (48 if height == "height" else height) and w == 320


def test_a_table_of_positions_says_the_size() -> None:
    """Patches of 16 pixels and 49 + 1 positions: 112 pixels."""
    nodes = [
        node("Conv", "image k", "h", strides=[16, 16]),
        node("Reshape", "h flat", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1]),
        node("Shape", "t", "n", start=0, end=1),
        node("Concat", "n rest", "cs", axis=0),
        node("Expand", "class cs", "c"),
        node("Concat", "c t", "ct", axis=1),
        node("Add", "ct positions", "y"),
    ]
    weights = {
        "k": normal(8, 3, 16, 16), "flat": np.array([0, 8, -1]), "class": normal(1, 1, 8),
        "positions": normal(1, 50, 8), "rest": np.array([1, 8]),
    }  # fmt: skip
    model = build(nodes, [("image", F32, OPEN)], [("y", F32, None)], weights)
    found = accepted(model, 2)
    assert [(n, f["image"].shape) for n, f, _ in found] == [
        (0, (1, 3, 112, 112)),
        (3, (2, 3, 112, 112)),
    ]


def test_frames_that_a_table_of_positions_asks_for() -> None:
    nodes = [
        node("Conv", "mel k", "h", strides=[2], pads=[1, 1]),
        node("Transpose", "h", "t", perm=[0, 2, 1]),
        node("Add", "t positions", "y"),
    ]
    weights = {"k": normal(8, 20, 3), "positions": normal(150, 8)}
    model = build(nodes, [("mel", F32, ["n", 20, "frames"])], [("y", F32, None)], weights)
    assert kinds(model)["mel"].role is Role.FEATURES
    assert [f["mel"].shape for _, f, _ in accepted(model, 2)] == [(1, 20, 300), (2, 20, 300)]


def test_channels_at_the_end() -> None:
    nodes = [
        node("Cast", "image", "f", to=F32),
        node("Transpose", "f", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t k", "h", strides=[8, 8]),
        node("GlobalAveragePool", "h", "y"),
    ]
    weights = {"k": normal(8, 3, 8, 8)}
    for code in (F32, U8):
        model = build(nodes, [("image", code, ["n", "h", "w", 3])], [("y", F32, None)], weights)
        kind = kinds(model)["image"]
        assert kind.role is Role.IMAGE and kind.channels_last and kind.to_255 == (code == U8)
        image = accepted(model, 1)[0][1]["image"]
        assert image.shape == (1, 224, 224, 3)
        assert image.max() == (255 if code == U8 else 1) and image.min() == 0


def test_a_model_that_divides_by_255_gets_numbers_up_to_255() -> None:
    tail = [node("GlobalAveragePool", "h", "y")]
    nodes = [node("Div", "image d", "x"), node("Conv", "x k", "h", strides=[8, 8]), *tail]
    weights = {"k": normal(4, 3, 8, 8), "d": np.float32(255)}
    model = build(nodes, [("image", F32, OPEN)], [("y", F32, None)], weights)
    assert guesses(model)[0]["image"].max() == 255


def test_fixed_sizes_stay_and_large_work_makes_pictures_small() -> None:
    assert first_sizes(convolved([2], [1, 3, 37, 41], POOLED))[0] == (1, 3, 37, 41)
    weights = {"k": np.broadcast_to(np.float32(0.01), (512, 3, 31, 31))}
    wide = [node("Conv", "image k", "h"), *POOLED]
    model = build(wide, [("image", F32, OPEN)], [("y", F32, None)], weights)
    _, _, h, w = guesses(model)[0]["image"].shape
    assert h * w * 512 * 3 * 31 * 31 <= 2e10


@given(
    shape=st.lists(st.integers(1, 40), min_size=0, max_size=4),
    channels_last=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_pictures_of_any_shape_lie_between_0_and_1(
    shape: list[int], channels_last: bool, seed: int
) -> None:
    found = picture(tuple(shape), channels_last, np.random.default_rng(seed))
    assert found.shape == tuple(shape) and 0 <= found.min() <= found.max() <= 1
    again = picture(tuple(shape), channels_last, np.random.default_rng(seed))
    assert np.array_equal(found, again)


def test_pictures_are_smooth_shapes_over_lines_of_print() -> None:
    found = picture((1, 3, 128, 128), False, np.random.default_rng(0))
    top, page = found[:, :, :64], found[:, :, 64:]
    assert top.std() > 0.1 and np.abs(np.diff(top, axis=-1)).mean() < top.std() / 2
    is_dark = page < 0.3
    assert 0.1 < is_dark.mean() < 0.5
    lines = is_dark.any(axis=(0, 1, 3)).astype(int)  # by pixel from top to bottom
    assert (np.diff(lines) == 1).sum() >= 5


# Sounds ------------------------------------------------------------------------------------------


def raw() -> onnx.ModelProto:
    nodes = [
        node("Unsqueeze", "x one", "u"),
        node("Conv", "u k", "h", strides=[5]),
        node("Relu", "h", "y"),
    ]
    weights = {"one": np.array([1]), "k": normal(8, 1, 10)}
    return build(nodes, [("x", F32, ["batch", "samples"])], [("y", F32, None)], weights)


def with_channel() -> onnx.ModelProto:
    nodes = [node("Conv", "x k", "y", strides=[160])]
    return build(
        nodes, [("x", F32, ["batch", 1, "n"])], [("y", F32, None)], {"k": normal(8, 1, 400)}
    )


def spectrum() -> onnx.ModelProto:
    nodes = [node("STFT", "x step window", "y")]
    weights = {"step": np.array(160), "window": np.ones(400, np.float32)}
    return build(nodes, [("x", F32, ["batch", "n", 1])], [("y", F32, None)], weights)


def framed() -> onnx.ModelProto:
    """Cut into frames by a Reshape, as Keras writes an STFT."""
    nodes = [
        node("Reshape", "x frames", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1]),
        node("Conv", "t k", "y"),
    ]
    weights = {"frames": np.array([-1, 100, 160]), "k": normal(8, 160, 2)}
    return build(nodes, [("x", F32, ["batch", 16000])], [("y", F32, None)], weights)


@pytest.mark.parametrize("make", [raw, with_channel, framed])
def test_sounds_last_a_second(make: Any) -> None:
    model = make()
    assert kinds(model)["x"].role is Role.AUDIO
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, (output, *_) in found:
        x = feed["x"]
        assert 8000 <= x.shape[-1] <= 32000 and np.abs(x).max() <= 1 and x.std() > 0.02
        assert output.std() > 0
    assert found[0][1]["x"].shape[-1] == 16000 and len(found[1][1]["x"]) == 2


def test_what_a_spectrum_is_taken_of_is_a_sound() -> None:
    assert kinds(spectrum())["x"].role is Role.AUDIO


def test_a_sound_is_no_noise() -> None:
    x = sound((1, 16000), 16000, np.random.default_rng(0))[0]
    power = np.abs(np.fft.rfft(x)) ** 2
    assert power[:2000].sum() > 5 * power[4000:].sum()


# Features ----------------------------------------------------------------------------------------


def test_states_of_recurrent_layers_have_the_batch_in_the_middle() -> None:
    nodes = [node("LSTM", "x W R _ _ h c", "y", hidden_size=8)]
    inputs: list[Any] = [
        ("x", F32, [None, None, 4]), ("h", F32, [1, None, 8]), ("c", F32, [1, None, 8]),
    ]  # fmt: skip
    weights = {"W": normal(1, 32, 4), "R": normal(1, 32, 8)}
    model = build(nodes, inputs, [("y", F32, None)], weights)
    assert kinds(model)["h"].role is Role.STATE
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert [feed["x"].shape[1] for _, feed, _ in found] == [1, 2, 1]


def test_spectrograms_are_no_pictures() -> None:
    model = convolved([2, 2], ["n", 3, "frames", 161], POOLED)
    assert kinds(model)["image"].role is Role.FEATURES


def test_settings_of_a_voice_are_about_1() -> None:
    nodes = [node("Mul", "x speed", "a"), node("Mul", "a scales", "y")]
    inputs: list[Any] = [("x", F32, ["n", 3]), ("speed", F32, [1]), ("scales", F32, [3])]
    feed = guesses(build(nodes, inputs, [("y", F32, None)], {}))[0]
    for name in ("speed", "scales"):
        assert (feed[name] >= 0.5).all() and (feed[name] <= 1.5).all()


def test_thresholds_and_counts_of_boxes() -> None:
    nodes = [node("NonMaxSuppression", "boxes scores most iou least", "y")]
    inputs: list[Any] = [
        ("boxes", F32, [1, "b", 4]), ("scores", F32, [1, 2, "b"]), ("most", I64, [1]),
        ("iou", F32, [1]), ("least", F32, [1]),
    ]  # fmt: skip
    model = build(nodes, inputs, [("y", I64, None)], {})
    feed = accepted(model, 1)[0][1]
    assert 0 < feed["iou"].item() < 1 and 0 < feed["least"].item() < 1 and feed["most"].item() > 1


def test_a_vector_beside_tokens_has_a_length_of_one() -> None:
    """That of a speaker; features of more rows, or beside no tokens, are normal."""
    steps = [node("Add", "e w", "p"), node("MatMul", "style v", "s"), node("Add", "p s", "y")]
    weights = {"w": normal(1, 1, 16), "v": normal(256, 16)}
    model = embedded(steps, [("style", F32, [1, 256])], weights)
    for feed in guesses(model):
        assert np.linalg.norm(feed["style"]) == pytest.approx(1, abs=0.2)
    alone = build([node("MatMul", "style v", "y")], [("style", F32, ["b", 256])],
                  [("y", F32, None)], {"v": normal(256, 16)})  # fmt: skip
    for feed in guesses(alone):
        assert np.linalg.norm(feed["style"], axis=1).min() > 10
