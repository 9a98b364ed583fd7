"""ai.octavo.Attention over other layouts than rows, and what hides keys."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.graphs import BOOL, Array, normal
from tests.native_target.nodes import inferred, refuses, run

B, H, S, T, D, E = 2, 4, 5, 7, 8, 6
ROWS, INSIDE, OUTSIDE = 0, 1, 2
Shape = tuple[int, ...]
SHAPES: dict[str, Shape] = {"Q": (B, H, S, D), "K": (B, H, T, D), "V": (B, H, T, E)}


def drawn(shapes: dict[str, Shape] | None = None) -> dict[str, Array]:
    return {n: normal(*s, seed=i) for i, (n, s) in enumerate((shapes or SHAPES).items())}


def in_groups(kv_heads: int) -> dict[str, Array]:
    return drawn(SHAPES | {"K": (B, kv_heads, T, D), "V": (B, kv_heads, T, E)})


def outside(feeds: dict[str, Array], **attributes: Any) -> Array:
    """The operator over [B, H, L, D]."""
    return run("Attention", feeds, **{"heads": H, "layouts": [OUTSIDE] * 4, **attributes})


def laid(x: Array, layout: int) -> Array:
    """[B, H, L, D] as the layout has it."""
    if layout == OUTSIDE:
        return x
    inside = np.ascontiguousarray(x.swapaxes(1, 2))
    return inside if layout == INSIDE else inside.reshape(*inside.shape[:2], -1)


def exact(x: dict[str, Array], bias: Any = 0.0, counts: Any = True, softcap: float = 0.0) -> Array:
    """float64, any leading axes; rows without keys are 0."""
    q, k, v = (x[name].astype(np.float64) for name in "QKV")
    if q.ndim > 2 and 1 < k.shape[-3] < q.shape[-3]:
        k, v = (np.repeat(a, q.shape[-3] // k.shape[-3], axis=-3) for a in (k, v))
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


def assert_rounded(found: Array, wanted: Array) -> None:
    """With operands of bfloat16."""
    np.testing.assert_allclose(found, wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("q", "k", "v"), [*product(range(3), repeat=3)])
def test_every_layout_of_each(q: int, k: int, v: int) -> None:
    x, out = drawn(), (q + k + v) % 3
    feeds = {name: laid(x[name], layout) for name, layout in zip("QKV", (q, k, v), strict=True)}
    y = run("Attention", feeds, heads=H, layouts=[q, k, v, out])
    assert_close(y, laid(exact(x), out))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("layout", [ROWS, INSIDE, OUTSIDE])
def test_heads_in_groups(kv_heads: int, layout: int) -> None:
    x = in_groups(kv_heads)
    feeds = {name: laid(array, layout) for name, array in x.items()}
    y = run("Attention", feeds, heads=H, groups=H // kv_heads, layouts=[layout] * 3 + [OUTSIDE])
    assert_close(y, exact(x))


@pytest.mark.parametrize(
    "shapes",
    [
        {"Q": (S, D), "K": (T, D), "V": (T, E)},
        {"Q": (H, S, D), "K": (H, T, D), "V": (H, T, E)},
        {"Q": (H, S, D), "K": (1, T, D), "V": (H, T, E)},
        {"Q": (2, 3, H, S, D), "K": (3, H, T, D), "V": (2, 1, H, T, E)},
        {"Q": (1, 3, 1, S, D), "K": (2, 1, H, T, D), "V": (2, 3, H, T, E)},
        {"Q": (2, 1, 2, H, S, D), "K": (2, 3, 2, H, T, D), "V": (H, T, E)},
    ],
    ids=str,
)
def test_leading_axes_broadcast(shapes: dict[str, Shape]) -> None:
    x = drawn(shapes)
    assert_close(outside(x, heads=0), exact(x))


def test_a_bias_of_windows() -> None:
    x = drawn({name: (B, 3, *shape[1:]) for name, shape in SHAPES.items()})
    bias = normal(3, 1, S, T, seed=4)
    assert_close(outside(x | {"bias": bias}, heads=0), exact(x, bias))


@pytest.mark.parametrize("shape", [(B, 1, 1, T), (1, H, S, T), (S, T), (B, H, S, 1), ()], ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["mask", "bias-and-mask"])
def test_masks(shape: Shape, biased: bool) -> None:
    """A query whose mask hides every key gives 0."""
    x, mask, bias = drawn(), np.asarray(normal(*shape, seed=3) < 0.3), normal(1, H, S, T, seed=5)
    more = {"bias": bias, "mask": mask} if biased else {"mask": mask}
    y = outside(x | more, given=" ".join(more))
    assert_close(y, exact(x, bias if biased else 0.0, mask))


def test_hidden_queries_may_give_the_mean() -> None:
    """As where the same large number took the place of every score."""
    x, mask = in_groups(2), np.ones((B, 1, S, T), bool)
    mask[1, 0, 2] = mask[0, 0, :, 3:] = False
    y = outside(x | {"mask": mask}, groups=2, given="mask", hidden=1)
    wanted = exact(x, 0.0, mask)
    wanted[1, :, 2] = np.repeat(x["V"][1].astype(np.float64).mean(axis=1), 2, axis=0)
    assert_close(y, wanted)


def test_guarded_weights() -> None:
    """Not a number in Q, and a bias of -inf, give 0; what is no number in V stays."""
    x, bias = drawn(), np.zeros((B, 1, S, T), np.float32)
    x["Q"][0, 1, 2] = x["V"][1, 3, 4, 5] = np.nan
    bias[1, 0, 0] = -np.inf
    y = outside(x | {"bias": bias}, guard=1)
    assert not y[0, 1, 2].any() and not y[1, :3, 0].any()
    assert np.isnan(y[1, 3, 1:, 5]).all() and not np.isnan(y[1, 3, 1:, :5]).any()
    assert not np.isnan(y[0]).any()


def test_a_bias_that_hides_every_key() -> None:
    """Guarded for that alone: queries that are no numbers stay so."""
    x, bias = drawn(), np.zeros((1, H, S, 1), np.float32)
    x["Q"][0, 1, 2] = np.nan
    bias[0, 2, 0] = -np.inf
    y = outside(x | {"bias": bias}, guard=2)
    assert not y[:, 2, 0].any() and np.isnan(y[0, 1, 2]).all()
    assert np.isnan(y).sum() == E


class Padded(NamedTuple):
    """Attention whose keys have a padded start, which a bias hides: as many in each batch item."""

    queries: int
    keys: int
    kv_heads: int
    padding: tuple[int, int]
    attributes: dict[str, Any]
    one: bool = False
    """Whether all queries have one row of the bias."""

    def counts(self) -> Array:
        """Which keys causality and the window leave, [S, T]."""
        last = self.keys - self.queries if self.attributes.get("causal", 0) == 2 else 0
        late = np.arange(self.keys)[None] - np.arange(self.queries)[:, None] - last
        return np.asarray((late <= 0) & (late > -(self.attributes.get("window", 0) or self.keys)))

    def feeds(self, fill: float = -np.inf) -> dict[str, Array]:
        sizes = {"Q": (H, self.queries, D), "K": (self.kv_heads, self.keys, D)}
        sizes["V"] = (self.kv_heads, self.keys, E)
        x = drawn({name: (B, *shape) for name, shape in sizes.items()})
        bias = normal(B, 1, 1 if self.one else self.queries, self.keys, seed=9)
        for item, padding in enumerate(self.padding):
            bias[item, ..., :padding] = fill
        return x | {"bias": bias}

    def run(self, fill: float = -np.inf, **more: int) -> Array:
        return outside(self.feeds(fill), groups=H // self.kv_heads, **self.attributes, **more)


PADDED = [
    Padded(2, 7, 4, (1, 0), {"causal": 1}, one=True),
    Padded(5, 7, 4, (2, 3), {"causal": 1}),
    Padded(5, 7, 2, (2, 0), {"causal": 1, "softcap": 1.5}, one=True),
    Padded(1, 300, 1, (1, 0), {"causal": 1}),
    Padded(2, 600, 2, (599, 598), {"causal": 2}),
    Padded(70, 330, 4, (270, 300), {"causal": 2}, one=True),
    Padded(70, 330, 4, (3, 300), {"causal": 1, "bfloat16": 1}),
    Padded(70, 90, 2, (10, 40), {"causal": 1, "window": 4, "softcap": 2.0}),
]


@pytest.mark.parametrize("case", PADDED, ids=str)
@pytest.mark.parametrize("fill", [-np.inf, np.finfo(np.float32).min], ids=["endless", "lowest"])
def test_causality_and_a_bias_may_hide_every_key(case: Padded, fill: float) -> None:
    """As ONNX's Attention with `is_causal` and a mask of float32 has it: such a query gives 0."""
    x = case.feeds()
    wanted = exact(x, x["bias"], case.counts(), case.attributes.get("softcap", 0.0))
    assert (wanted == 0).all(axis=-1).any() and (wanted != 0).any()
    close = assert_rounded if "bfloat16" in case.attributes else assert_close
    close(case.run(fill, guard=2), wanted)


@pytest.mark.parametrize("case", PADDED, ids=str)
def test_such_queries_may_give_the_mean(case: Padded) -> None:
    """As where keys that come too late keep a score, of one large number."""
    x = case.feeds()
    wanted = exact(x, x["bias"], case.counts(), case.attributes.get("softcap", 0.0))
    lowest = np.finfo(np.float32).min * ~case.counts().astype(bool)
    means = exact(x | {"Q": 0 * x["Q"]}, np.where(np.isinf(x["bias"]), -np.inf, lowest))
    wanted = np.where((wanted == 0).all(axis=-1, keepdims=True), means, wanted)
    close = assert_rounded if "bfloat16" in case.attributes else assert_close
    close(case.run(hidden=1), wanted)


@pytest.mark.parametrize(("causal", "offset"), [(1, 0), (2, T - S)])
@pytest.mark.parametrize("window", [0, 1, 3])
def test_causal(causal: int, offset: int, window: int) -> None:
    x = drawn()
    late = np.arange(T)[None] - np.arange(S)[:, None] - offset
    counts = (late <= 0) & ((late > -window) if window else True)
    assert_close(outside(x, causal=causal, window=window), exact(x, 0.0, counts))


def test_softcap() -> None:
    x, bias = drawn(), normal(S, T, seed=8)
    assert_close(outside(x | {"bias": bias}, softcap=0.7), exact(x, bias, softcap=0.7))


@pytest.mark.parametrize("shape", [(B * H, S, T), (1, S, T), (B * H, 1, T)], ids=str)
def test_a_bias_of_batch_and_heads_as_one_axis(shape: Shape) -> None:
    x, bias = drawn(), normal(*shape, seed=6)
    apart = bias if shape[0] == 1 else bias.reshape(B, H, *shape[1:])
    assert_close(outside(x | {"bias": bias}, joined_bias=1), exact(x, apart))


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ({"K": (B, 3, T, D), "V": (B, 3, T, E)}, {}, "Q has 4 heads, K 3 and V 3"),
        ({"V": (B, 2, T, E)}, {}, "Q has 4 heads, K 4 and V 2"),
        ({"K": (B, H, T, D + 1)}, {}, "depth of a head"),
        ({"V": (B, H, T + 1, E)}, {}, "their length"),
        ({"Q": (D,)}, {}, "two dimensions"),
        ({"bias": (3, B, H, S, T)}, {"fits": 1}, "no larger"),
        ({"mask": (S, T)}, {"given": "mask"}, "mask is float32; it has to be bool"),
        ({}, {"heads": 0, "layouts": [0] * 4}, "heads is 0"),
        ({}, {"layouts": [0, 0, 3, 0]}, "layouts has to be four numbers in 0..2"),
        ({}, {"layouts": [0, 0]}, "layouts has to be four numbers in 0..2"),
        ({}, {"groups": 3}, "groups has to divide heads"),
        ({}, {"causal": 3}, "causal has to be 0, 1 or 2"),
        ({}, {"guard": 3}, "guard has to be 0, 1 or 2"),
        ({}, {"softcap": -1.0}, "softcap is not finite, or below 0"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    shapes: dict[str, Shape], attributes: dict[str, Any], message: str
) -> None:
    feeds = {name: np.zeros(shape, np.float32) for name, shape in (SHAPES | shapes).items()}
    refuses(message, "Attention", feeds, **{"heads": H, "layouts": [OUTSIDE] * 4, **attributes})


@pytest.mark.parametrize(
    ("layouts", "q", "k", "v", "heads", "expected"),
    [
        ([2, 2, 2, 2], ["b", 4, "s", 8], ["b", 2, "t", 8], ["b", 2, "t", 6], 0, ["b", 4, "s", 6]),
        ([2, 2, 0, 1], ["b", 4, "s", 8], ["b", 2, "t", 8], ["b", "t", 12], 4, ["b", "s", 4, 6]),
        ([0, 0, 0, 0], ["b", "s", 32], ["b", "t", 16], ["b", "t", 12], 4, ["b", "s", 24]),
        ([2, 2, 2, 2], ["s", 8], ["t", 8], ["t", 6], 0, ["s", 6]),
        (
            *([2, 2, 2, 2], ["b", "w", 4, "s", 8], ["b", "w", 4, "t", 8], ["b", "w", 4, "t", 6]),
            *(0, ["b", "w", 4, "s", 6]),
        ),
    ],
)
def test_shapes_are_inferred(
    layouts: list[int], q: Any, k: Any, v: Any, heads: int, expected: list[Any]
) -> None:
    attributes = {"layouts": layouts, "heads": heads} | ({"groups": 2} if heads else {})
    shapes: dict[str, Any] = {"Q": q, "K": k, "V": v}
    assert inferred("Attention", shapes, **attributes) == expected
    shapes["mask"], attributes["given"] = ["s", "t"], "mask"
    assert inferred("Attention", shapes, kinds={"mask": BOOL}, **attributes) == expected
