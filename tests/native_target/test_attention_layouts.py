"""ai.octavo.Attention over other layouts than rows, and what hides keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.native_target.nodes import REFUSALS, inferred, run, session

B, H, S, T, D, E = 2, 4, 5, 7, 8, 6
ROWS, INSIDE, OUTSIDE = 0, 1, 2
FLOAT, BOOL = np.dtype(np.float32), np.dtype(np.bool_)
Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heads_outside(kv_heads: int = H) -> dict[str, Array]:
    return {
        "Q": random(B, H, S, D),
        "K": random(B, kv_heads, T, D, seed=1),
        "V": random(B, kv_heads, T, E, seed=2),
    }


def laid(x: Array, layout: int) -> Array:
    """[B, H, L, D] as the layout has it."""
    if layout == OUTSIDE:
        return x
    inside = np.ascontiguousarray(x.swapaxes(1, 2))
    return inside if layout == INSIDE else inside.reshape(*inside.shape[:2], -1)


def exact(
    x: dict[str, Array],
    bias: Any = 0.0,
    counts: Any = True,
    softcap: float = 0.0,
) -> Array:
    """float64, any leading axes; rows without keys are 0."""
    q, k, v = (x[name].astype(np.float64) for name in "QKV")
    if q.ndim > 2 and 1 < k.shape[-3] < q.shape[-3]:
        groups = q.shape[-3] // k.shape[-3]
        k, v = (np.repeat(a, groups, axis=-3) for a in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    scores = np.where(counts, scores + bias, -np.inf)
    most = np.max(scores, axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(most), 0, most))
    total = weights.sum(axis=-1, keepdims=True)
    found: Array = (weights / np.where(total == 0, 1, total)) @ v
    return found


def assert_close(found: Array, wanted: Array) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("out", [ROWS, INSIDE, OUTSIDE])
@pytest.mark.parametrize("v", [ROWS, INSIDE, OUTSIDE])
@pytest.mark.parametrize("k", [ROWS, INSIDE, OUTSIDE])
@pytest.mark.parametrize("q", [ROWS, INSIDE, OUTSIDE])
def test_every_layout_of_each(q: int, k: int, v: int, out: int) -> None:
    x = heads_outside()
    feeds = {name: laid(x[name], layout) for name, layout in zip("QKV", (q, k, v), strict=True)}
    y = run("Attention", feeds, {}, heads=H, layouts=[q, k, v, out])
    assert_close(y, laid(exact(x), out).astype(np.float64))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("layout", [ROWS, INSIDE, OUTSIDE])
def test_heads_in_groups(kv_heads: int, layout: int) -> None:
    x = heads_outside(kv_heads)
    feeds = {name: laid(array, layout) for name, array in x.items()}
    y = run("Attention", feeds, {}, heads=H, groups=H // kv_heads, layouts=[layout] * 3 + [OUTSIDE])
    assert_close(y, exact(x))


@pytest.mark.parametrize(
    "shapes",
    [
        {"Q": (S, D), "K": (T, D), "V": (T, E)},
        {"Q": (H, S, D), "K": (H, T, D), "V": (H, T, E)},
        {"Q": (H, S, D), "K": (1, T, D), "V": (H, T, E)},
        {"Q": (2, 3, H, S, D), "K": (2, 3, H, T, D), "V": (2, 3, H, T, E)},
        {"Q": (2, 3, H, S, D), "K": (3, H, T, D), "V": (2, 1, H, T, E)},
        {"Q": (1, 3, 1, S, D), "K": (2, 1, H, T, D), "V": (2, 3, H, T, E)},
        {"Q": (2, 1, 2, H, S, D), "K": (2, 3, 2, H, T, D), "V": (H, T, E)},
    ],
    ids=str,
)
def test_leading_axes_broadcast(shapes: dict[str, tuple[int, ...]]) -> None:
    x = {name: random(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    y = run("Attention", x, {}, heads=0, layouts=[OUTSIDE] * 4)
    assert_close(y, exact(x))


def test_a_bias_of_windows() -> None:
    x = {"Q": random(2, 3, H, S, D), "K": random(2, 3, H, T, D), "V": random(2, 3, H, T, E)}
    bias = random(3, 1, S, T, seed=4)
    y = run("Attention", x | {"bias": bias}, {}, heads=0, layouts=[OUTSIDE] * 4)
    assert_close(y, exact(x, bias))


@pytest.mark.parametrize("shape", [(B, 1, 1, T), (1, H, S, T), (S, T), (B, H, S, 1), ()], ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["mask", "bias-and-mask"])
def test_masks(shape: tuple[int, ...], biased: bool) -> None:
    """A query whose mask hides every key gives 0."""
    x = heads_outside()
    mask = np.asarray(random(*shape, seed=3) < 0.3)
    bias = random(1, H, S, T, seed=5)
    more = {"bias": bias, "mask": mask} if biased else {"mask": mask}
    given = "bias mask" if biased else "mask"
    y = run("Attention", x | more, {}, heads=H, layouts=[OUTSIDE] * 4, given=given)
    assert_close(y, exact(x, bias if biased else 0.0, mask))


def test_hidden_queries_may_give_the_mean() -> None:
    """As where the same large number took the place of every score."""
    x = heads_outside(2)
    mask = np.ones((B, 1, S, T), bool)
    mask[1, 0, 2] = mask[0, 0, :, 3:] = False
    attributes = {"heads": H, "groups": 2, "layouts": [OUTSIDE] * 4, "given": "mask"}
    y = run("Attention", x | {"mask": mask}, {}, hidden=1, **attributes)
    wanted = exact(x, 0.0, mask)
    wanted[1, :, 2] = np.repeat(x["V"][1].astype(np.float64).mean(axis=1), 2, axis=0)
    assert_close(y, wanted)


def test_guarded_weights() -> None:
    """Not a number in Q, and a bias of -inf, give 0; what is no number in V stays."""
    x = heads_outside()
    x["Q"][0, 1, 2] = np.nan
    x["V"][1, 3, 4, 5] = np.nan
    bias = np.zeros((B, 1, S, T), np.float32)
    bias[1, 0, 0] = -np.inf
    y = run("Attention", x | {"bias": bias}, {}, heads=H, layouts=[OUTSIDE] * 4, guard=1)
    assert not y[0, 1, 2].any() and not y[1, :3, 0].any()
    assert np.isnan(y[1, 3, 1:, 5]).all() and not np.isnan(y[1, 3, 1:, :5]).any()
    assert not np.isnan(y[0]).any()


def test_a_bias_that_hides_every_key() -> None:
    """Guarded for that alone: queries that are no numbers stay so."""
    x = heads_outside()
    x["Q"][0, 1, 2] = np.nan
    bias = np.zeros((1, H, S, 1), np.float32)
    bias[0, 2, 0] = -np.inf
    y = run("Attention", x | {"bias": bias}, {}, heads=H, layouts=[OUTSIDE] * 4, guard=2)
    assert not y[:, 2, 0].any() and np.isnan(y[0, 1, 2]).all()
    assert np.isnan(y).sum() == E


@pytest.mark.parametrize("causal,offset", [(1, 0), (2, T - S)])
@pytest.mark.parametrize("window", [0, 1, 3])
def test_causal(causal: int, offset: int, window: int) -> None:
    x = heads_outside()
    late = np.arange(T)[None] - np.arange(S)[:, None] - offset
    counts = (late <= 0) & ((late > -window) if window else True)
    y = run("Attention", x, {}, heads=H, layouts=[OUTSIDE] * 4, causal=causal, window=window)
    assert_close(y, exact(x, 0.0, counts))


def test_softcap() -> None:
    x, bias = heads_outside(), random(S, T, seed=8)
    y = run("Attention", x | {"bias": bias}, {}, heads=H, layouts=[OUTSIDE] * 4, softcap=0.7)
    assert_close(y, exact(x, bias, softcap=0.7))


@pytest.mark.parametrize("shape", [(B * H, S, T), (1, S, T), (B * H, 1, T)], ids=str)
def test_a_bias_of_batch_and_heads_as_one_axis(shape: tuple[int, ...]) -> None:
    x, bias = heads_outside(), random(*shape, seed=6)
    apart = bias if shape[0] == 1 else bias.reshape(B, H, *shape[1:])
    y = run("Attention", x | {"bias": bias}, {}, heads=H, layouts=[OUTSIDE] * 4, joined_bias=1)
    assert_close(y, exact(x, apart))


def test_a_bias_that_has_to_fit() -> None:
    x = heads_outside() | {"bias": random(3, B, H, S, T)}
    with pytest.raises(REFUSALS, match="give one that is no larger"):
        run("Attention", x, {}, heads=H, layouts=[OUTSIDE] * 4, fits=1)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"K": (B, 3, T, D), "V": (B, 3, T, E)}, "Q has 4 heads, K 3 and V 3"),
        ({"V": (B, 2, T, E)}, "Q has 4 heads, K 4 and V 2"),
        ({"K": (B, H, T, D + 1)}, "their depth of a head has to be the same"),
        ({"V": (B, H, T + 1, E)}, "their length has to be the same"),
        ({"Q": (D,)}, "it has to have two dimensions or more"),
    ],
    ids=str,
)
def test_heads_that_do_not_fit(change: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"Q": (B, H, S, D), "K": (B, H, T, D), "V": (B, H, T, E)} | change
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(REFUSALS, match=message):
        run("Attention", feeds, {}, heads=H, layouts=[OUTSIDE] * 4)


def test_a_mask_is_bool() -> None:
    feeds = heads_outside() | {"mask": np.zeros((S, T), np.float32)}
    with pytest.raises(REFUSALS, match="mask is float32; it has to be bool"):
        run("Attention", feeds, {}, heads=H, layouts=[OUTSIDE] * 4, given="mask")


@pytest.mark.parametrize(
    "attributes,message",
    [
        ({"heads": 0}, "heads is 0"),
        ({"heads": 4, "layouts": [0, 0, 3, 0]}, "layouts has to be four numbers in 0..2"),
        ({"heads": 4, "layouts": [0, 0]}, "layouts has to be four numbers in 0..2"),
        ({"heads": 4, "groups": 3}, "groups has to divide heads"),
        ({"heads": 4, "causal": 3}, "causal has to be 0, 1 or 2"),
        ({"heads": 4, "guard": 3}, "guard has to be 0, 1 or 2"),
        ({"heads": 4, "softcap": -1.0}, "softcap is not finite, or below 0"),
    ],
    ids=str,
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    shapes: Any = {name: ["b", "s", 8] for name in "QKV"}
    with pytest.raises(REFUSALS, match=message):
        session("Attention", dict.fromkeys(shapes, FLOAT), shapes, {}, **attributes)


@pytest.mark.parametrize(
    "layouts,shapes,attributes,expected",
    [
        (
            [OUTSIDE] * 4,
            {"Q": ["b", 4, "s", 8], "K": ["b", 2, "t", 8], "V": ["b", 2, "t", 6]},
            {},
            ["b", 4, "s", 6],
        ),
        (
            [OUTSIDE, OUTSIDE, ROWS, INSIDE],
            {"Q": ["b", 4, "s", 8], "K": ["b", 2, "t", 8], "V": ["b", "t", 12]},
            {"heads": 4, "groups": 2},
            ["b", "s", 4, 6],
        ),
        (
            [ROWS, ROWS, ROWS, ROWS],
            {"Q": ["b", "s", 32], "K": ["b", "t", 16], "V": ["b", "t", 12]},
            {"heads": 4, "groups": 2},
            ["b", "s", 24],
        ),
        (
            [OUTSIDE] * 4,
            {"Q": ["s", 8], "K": ["t", 8], "V": ["t", 6]},
            {},
            ["s", 6],
        ),
        (
            [OUTSIDE] * 4,
            {"Q": ["b", "w", 4, "s", 8], "K": ["b", "w", 4, "t", 8], "V": ["b", "w", 4, "t", 6]},
            {},
            ["b", "w", 4, "s", 6],
        ),
    ],
)
def test_shapes_are_inferred(
    layouts: list[int], shapes: Any, attributes: dict[str, int], expected: list[Any]
) -> None:
    dtypes = dict.fromkeys(shapes, FLOAT)
    attributes = {"heads": 0} | attributes
    assert inferred("Attention", dtypes, shapes, {}, layouts=layouts, **attributes) == expected


def test_shapes_with_a_mask_are_inferred() -> None:
    shapes: Any = {"Q": ["b", 4, "s", 8], "K": ["b", 4, "t", 8], "V": ["b", 4, "t", 6]}
    shapes |= {"mask": ["b", 1, "s", "t"]}
    dtypes = dict.fromkeys(shapes, FLOAT) | {"mask": BOOL}
    attributes = {"heads": 0, "layouts": [OUTSIDE] * 4, "given": "mask"}
    assert inferred("Attention", dtypes, shapes, {}, **attributes) == ["b", 4, "s", 6]
