"""Pictures, sounds and features: sizes by strides, numbers that look like the real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.core.samples import picture, sound
from octavo.onnx.inputs.roles import Role
from tests.graphs import normal, text
from tests.onnx.inputs.made_up_graphs import accepted, embedded, guesses, kinds

OPEN, POOLED = "float[n, 3, height, width] image", "y = GlobalAveragePool (h)"
BY_8 = {"k": normal(4, 3, 8, 8)}


def convolved(strides: list[int | tuple[int, int]], image: str, tail: str, **weights: Any) -> Any:
    """image -> a Conv of 4 channels for each of `strides` -> h -> `tail` -> y."""
    body, x, channels = "", "image", 3
    for i, stride in enumerate(strides):
        pair = [stride, stride] if isinstance(stride, int) else list(stride)
        weights[f"k{i}"] = normal(4, channels, 3, 3) / 5
        out = "h" if i == len(strides) - 1 else f"h{i}"
        body += f"{out} = Conv <strides = {pair}, pads = [1, 1, 1, 1]> ({x}, k{i}) "
        x, channels = out, 4
    return text(body + tail, image, weights=weights)


def first_sizes(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    return [feed["image"].shape for _, feed, _ in accepted(model)]


def test_a_classifier_sees_224_pixels_first_and_then_a_rectangle() -> None:
    assert first_sizes(convolved([2] * 5, OPEN, POOLED))[:2] == [(1, 3, 224, 224), (2, 3, 224, 256)]


def test_what_scales_up_again_gets_multiples_of_its_strides() -> None:
    """Each scale is joined with the one before it, which only fits where sizes divide."""
    tail = """deep = Conv (h, k)
        up = Resize (deep, , scales)
        skip = Conv (image, k1x1)
        y = Concat <axis = 1> (up, skip)"""
    weights = {"k": normal(4, 4, 1, 1), "k1x1": normal(4, 3, 1, 1)}
    scales = np.float32([1, 1, 64, 64])
    found = accepted(convolved([2] * 6, OPEN, tail, scales=scales, **weights))
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, _ in found:
        h, w = feed["image"].shape[2:]
        assert h % 64 == 0 and w % 64 == 0 and 192 <= h <= 640
    assert len({feed["image"].shape for _, feed, _ in found}) == 3


@pytest.mark.parametrize("height", ["height", 48, 32])
def test_readers_of_text_lines_see_lines(height: Any) -> None:
    strides: list[Any] = [(2, 2), (2, 1), (2, 1), (2, 1)]
    _, _, h, w = first_sizes(convolved(strides, f"float[n, 3, {height}, width] image", POOLED))[0]
    assert h == (48 if height == "height" else height) and w == 320


def test_a_table_of_positions_says_the_size() -> None:
    """Patches of 16 pixels and 49 + 1 positions: 112 pixels."""
    body = """h = Conv <strides = [16, 16]> (image, k)
        r = Reshape (h, flat)
        t = Transpose <perm = [0, 2, 1]> (r)
        n = Shape <start = 0, end = 1> (t)
        cs = Concat <axis = 0> (n, rest)
        c = Expand (class, cs)
        ct = Concat <axis = 1> (c, t)
        y = Add (ct, positions)"""
    weights: dict[str, Any] = {"k": normal(8, 3, 16, 16), "class": normal(1, 1, 8)}
    weights |= {"flat": np.array([0, 8, -1]), "rest": np.array([1, 8])}
    found = accepted(text(body, OPEN, weights=weights | {"positions": normal(1, 50, 8)}), 2)
    shapes = [(0, (1, 3, 112, 112)), (3, (2, 3, 112, 112))]
    assert [(n, f["image"].shape) for n, f, _ in found] == shapes


def test_frames_that_a_table_of_positions_asks_for() -> None:
    body = """h = Conv <strides = [2], pads = [1, 1]> (mel, k)
        t = Transpose <perm = [0, 2, 1]> (h)
        y = Add (t, positions)"""
    weights = {"k": normal(8, 20, 3), "positions": normal(150, 8)}
    model = text(body, "float[n, 20, frames] mel", weights=weights)
    assert kinds(model)["mel"].role is Role.FEATURES
    assert [f["mel"].shape for _, f, _ in accepted(model, 2)] == [(1, 20, 300), (2, 20, 300)]


@pytest.mark.parametrize(("code", "most"), [("float", 1), ("uint8", 255)])
def test_channels_at_the_end(code: str, most: int) -> None:
    body = """f = Cast <to = 1> (image)
        t = Transpose <perm = [0, 3, 1, 2]> (f)
        h = Conv <strides = [8, 8]> (t, k)
        y = GlobalAveragePool (h)"""
    model = text(body, f"{code}[n, h, w, 3] image", weights=BY_8)
    kind = kinds(model)["image"]
    assert kind.role is Role.IMAGE and kind.channels_last and kind.to_255 == (most == 255)
    image = accepted(model, 1)[0][1]["image"]
    assert image.shape == (1, 224, 224, 3)
    assert image.max() == most and image.min() == 0


def test_a_model_that_divides_by_255_gets_numbers_up_to_255() -> None:
    body = f"x = Div (image, d) h = Conv <strides = [8, 8]> (x, k) {POOLED}"
    model = text(body, OPEN, weights=BY_8 | {"d": np.float32(255)})
    assert guesses(model)[0]["image"].max() == 255


def test_fixed_sizes_stay_and_large_work_makes_pictures_small() -> None:
    fixed = convolved([2], "float[1, 3, 37, 41] image", POOLED)
    assert first_sizes(fixed)[0] == (1, 3, 37, 41)
    weights = {"k": np.broadcast_to(np.float32(0.01), (512, 3, 31, 31))}
    model = text(f"h = Conv (image, k) {POOLED}", OPEN, weights=weights)
    _, _, h, w = guesses(model)[0]["image"].shape
    assert h * w * 512 * 3 * 31 * 31 <= 2e10


@given(
    shape=st.lists(st.integers(1, 40), min_size=0, max_size=4),
    channels_last=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=30, deadline=None)
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


SOUNDS = {
    "raw": (
        "u = Unsqueeze (x, one) h = Conv <strides = [5]> (u, k) y = Relu (h)",
        "float[batch, samples] x", {"one": np.array([1]), "k": normal(8, 1, 10)},
    ),
    "with a channel": (
        "y = Conv <strides = [160]> (x, k)", "float[batch, 1, n] x", {"k": normal(8, 1, 400)},
    ),
    # Cut into frames by a Reshape, as Keras writes an STFT.
    "framed": (
        "r = Reshape (x, frames) t = Transpose <perm = [0, 2, 1]> (r) y = Conv (t, k)",
        "float[batch, 16000] x", {"frames": np.array([-1, 100, 160]), "k": normal(8, 160, 2)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUNDS)
def test_sounds_last_a_second(name: str) -> None:
    body, inputs, weights = SOUNDS[name]
    model = text(body, inputs, weights=weights)
    assert kinds(model)["x"].role is Role.AUDIO
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    for _, feed, (output, *_) in found:
        x = feed["x"]
        assert 8000 <= x.shape[-1] <= 32000 and np.abs(x).max() <= 1 and x.std() > 0.02
        assert output.std() > 0
    assert found[0][1]["x"].shape[-1] == 16000 and len(found[1][1]["x"]) == 2


def test_what_a_spectrum_is_taken_of_is_a_sound() -> None:
    weights = {"step": np.array(160), "window": np.ones(400, np.float32)}
    model = text("y = STFT (x, step, window)", "float[batch, n, 1] x", weights=weights)
    assert kinds(model)["x"].role is Role.AUDIO


def test_a_sound_is_no_noise() -> None:
    x = sound((1, 16000), 16000, np.random.default_rng(0))[0]
    power = np.abs(np.fft.rfft(x)) ** 2
    assert power[:2000].sum() > 5 * power[4000:].sum()


def test_states_of_recurrent_layers_have_the_batch_in_the_middle() -> None:
    model = text(
        "y = LSTM <hidden_size = 8> (x, W, R, , , h, c)",
        "float[?, ?, 4] x, float[1, ?, 8] h, float[1, ?, 8] c",
        weights={"W": normal(1, 32, 4), "R": normal(1, 32, 8)},
    )
    assert kinds(model)["h"].role is Role.STATE
    found = accepted(model)
    assert [number for number, _, _ in found] == [0, 1, 2]
    assert [feed["x"].shape[1] for _, feed, _ in found] == [1, 2, 1]


def test_spectrograms_are_no_pictures() -> None:
    model = convolved([2, 2], "float[n, 3, frames, 161] image", POOLED)
    assert kinds(model)["image"].role is Role.FEATURES


def test_settings_of_a_voice_are_about_1() -> None:
    body, inputs = "a = Mul (x, speed) y = Mul (a, scales)", "float[n, 3] x, float[1] speed"
    feed = guesses(text(body, f"{inputs}, float[3] scales"))[0]
    for name in ("speed", "scales"):
        assert (feed[name] >= 0.5).all() and (feed[name] <= 1.5).all()


def test_thresholds_and_counts_of_boxes() -> None:
    body = "y = NonMaxSuppression (boxes, scores, most, iou, least)"
    inputs = "float[1, b, 4] boxes, float[1, 2, b] scores, int64[1] most, float[1] iou"
    model = text(body, f"{inputs}, float[1] least", "int64[] y")
    feed = accepted(model, 1)[0][1]
    assert 0 < feed["iou"].item() < 1 and 0 < feed["least"].item() < 1 and feed["most"].item() > 1


def test_a_vector_beside_tokens_has_a_length_of_one() -> None:
    """That of a speaker; features of more rows, or beside no tokens, are normal."""
    weights = {"w": normal(1, 1, 16), "v": normal(256, 16)}
    body = "p = Add (e, w) s = MatMul (style, v) y = Add (p, s)"
    for feed in guesses(embedded(body, "float[1, 256] style", weights)):
        assert np.linalg.norm(feed["style"]) == pytest.approx(1, abs=0.2)
    for feed in guesses(text("y = MatMul (style, v)", "float[b, 256] style", weights=weights)):
        assert np.linalg.norm(feed["style"], axis=1).min() > 10
