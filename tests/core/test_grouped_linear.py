"""Linear layers over weights in groups: against their definition, and the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat
from octavo.core.linear import Linear, linear_together
from tests.core import statement
from tests.core.layers import random_rows
from tests.core.statement import assert_same_bits
from tests.core.tables import on_every_table

f = np.float32
FORMATS = [form for form in WeightFormat if form.group]
MINIMA = WeightFormat.INT4_32_MINIMUM
every_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.value)
SHAPES = [(1, 1, 1), (2, 37, 130), (5, 48, 64), (9, 33, 300), (40, 100, 129), (61, 41, 600)]


def weight(n: int, k: int, form: WeightFormat) -> GroupedWeight:
    rng = np.random.default_rng(n + 1000 * k)
    shape = n, form.groups(k)
    return GroupedWeight(
        rng.integers(0, 2**form.bits, (n, k), np.uint8),
        rng.uniform(0.001, 0.02, shape).astype(np.float16),
        rng.integers(0, 2**form.bits, shape, np.uint8) if form.affine else None,
        np.exp2(rng.integers(-2, 3, n)).astype(f),
        form,
        rng.uniform(-0.2, 0.1, shape).astype(np.float16) if form.minimum else None,
    )


def layer(held: GroupedWeight, each: bool, bias: Any = None, activation: str = "none") -> Linear:
    group = held.format.group if each else 0
    packed = PackedWeight(held.pack(), held.n, held.k, held.channel_scale, None, group, held.format)
    return Linear.from_packed(packed, bias, activation)


def integers(x: Any, group: int, each: bool) -> tuple[Any, Any, Any]:
    """x' [M, K], scale and zero point less 128 [M, groups] of docs/numbers.md, in float32."""
    m, k = x.shape
    if not each:
        q, scale, zero = statement.quantize_rows(x)
        groups = -(-k // group)
        return q.astype(int) - 128, np.repeat(scale, groups, 1), np.repeat(zero - 128, groups, 1)
    parts = statement.sections(k, group)
    size = np.stack([np.abs(x[:, part]).max(1) for part in parts], 1)
    scale = size / f(127)
    scale = np.where(scale < f(1e-30), f(1), scale)
    inverse = f(1) / scale
    q = np.concatenate(
        [np.rint(x[:, part] * inverse[:, [j]]) for j, part in enumerate(parts)], axis=1
    )
    return q.astype(int), scale, np.zeros((m, len(parts)), int)


def defined(held: GroupedWeight, x: Any, each: bool, bias: Any) -> tuple[Any, Any]:
    """The layer's outputs in float64, and the sizes that bound what float32 may round away."""
    group = held.format.group
    q, scale, zero = integers(x, group, each)
    w, lows = held.q.astype(int), np.zeros_like(held.scale)
    centre = 2 ** (held.format.bits - 1)
    if held.minimum is not None:
        centre, lows = 0, held.minimum
    total = size = np.zeros((len(x), held.n))
    for j, part in enumerate(statement.sections(held.k, group)):
        z = centre if held.zero is None else held.zero[:, j].astype(int)[:, None]
        sw, low = (
            a[:, [j]].astype(np.float64) * held.channel_scale[:, None] for a in (held.scale, lows)
        )
        terms, sx = (w[:, part] - z) * sw, scale[:, [j]].astype(np.float64)
        total = total + (q[:, part] - zero[:, [j]]) @ (terms + low).T * sx
        sizes = np.abs(terms) + np.abs(low)
        size = size + (np.abs(q[:, part]) @ sizes.T + 128 * sizes.sum(1)) * sx
    return total + bias, size + np.abs(bias)


@every_format
@pytest.mark.parametrize("each", [False, True], ids=["rows", "groups"])
def test_every_table_computes_what_is_defined(form: WeightFormat, each: bool) -> None:
    for m, n, k in SHAPES:
        held, x = weight(n, k, form), random_rows(m, k)
        bias = np.random.default_rng(0).standard_normal(n).astype(f)
        made, (stated, size) = layer(held, each, bias), defined(held, x, each, bias)
        found = on_every_table(lambda threads: made(x, threads=threads), (1, 2))  # noqa: B023
        bound = (held.format.groups(k) + 4) * 2.0**-23 * size + 1e-30
        assert (np.abs(found - stated) <= bound).all()


@every_format
@pytest.mark.parametrize("each", [False, True], ids=["rows", "groups"])
def test_a_row_has_the_same_bits_in_any_batch(form: WeightFormat, each: bool) -> None:
    held, x = weight(70, 640, form), random_rows(33, 640)
    made = layer(held, each, activation="silu")
    together = made(x, threads=1)
    for m in (1, 2, 3, 4, 5, 7, 13, 28, 33):
        on_every_table(lambda t: made(x[:m].copy(), threads=t), (1, 2))  # noqa: B023
        assert_same_bits(made(x[:m].copy()), together[:m])
    assert_same_bits(made(x, residual=together), together + together)


@every_format
def test_packing_gives_back_what_it_took(form: WeightFormat) -> None:
    for n, k in ((1, 1), (17, 131), (64, 256)):
        held = weight(n, k, form)
        back = GroupedWeight.unpack(held.pack(), n, k, held.channel_scale, form)
        np.testing.assert_array_equal(back.q, held.q)
        assert_same_bits(back.scale, held.scale)
        if held.zero is not None:
            np.testing.assert_array_equal(back.zero, held.zero)


@pytest.mark.parametrize("each", [False, True], ids=["rows", "groups"])
def test_a_row_without_numbers_gives_none_and_the_others_stay(each: bool) -> None:
    held, x = weight(40, 96, WeightFormat.INT4_32), random_rows(6, 96)
    made = layer(held, each)
    expected = made(x)
    x[2, 5], x[4, 95] = np.nan, np.inf
    found = made(x)
    assert np.isnan(found[[2, 4]]).all()
    assert_same_bits(found[[0, 1, 3, 5]], expected[[0, 1, 3, 5]])


def test_layers_of_one_length_of_groups_share_their_rows() -> None:
    x = random_rows(5, 256)
    four = layer(weight(48, 256, WeightFormat.INT4_64), True)
    eight = layer(weight(33, 256, WeightFormat.INT8_64_AFFINE), True)
    for made, alone in zip(linear_together([four, eight], x), (four(x), eight(x)), strict=True):
        assert_same_bits(made, alone)
    other = layer(weight(48, 256, WeightFormat.INT4_32), True)
    with pytest.raises(ValueError, match="same"):
        linear_together([four, other], x)


def test_what_does_not_fit_is_named() -> None:
    held = weight(16, 64, WeightFormat.INT4_32)
    packed = held.pack()
    with pytest.raises(ValueError, match=r"group: 128 .* 32, with int4-32"):
        PackedWeight(packed, 16, 64, held.channel_scale, None, 128, held.format)
    with pytest.raises(ValueError, match="zero_point: int4-32 has its own"):
        PackedWeight(packed, 16, 64, held.channel_scale, np.zeros(16, np.int32), 0, held.format)
    with pytest.raises(ValueError, match="q: holds values above 15"):
        GroupedWeight(held.q + 16, held.scale, None, held.channel_scale, held.format)
    with pytest.raises(ValueError, match="scale"):
        GroupedWeight(held.q, held.scale[:, :1].copy(), None, held.channel_scale, held.format)


def test_packed_rows_are_those_of_the_weight() -> None:
    torch = pytest.importorskip("torch")
    from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding

    held = weight(33, 200, MINIMA)
    table = QuantizedPackedEmbedding(33, 200, format=MINIMA.value)
    table._fill(packed=torch.from_numpy(held.pack()), scale=torch.from_numpy(held.channel_scale))
    assert_same_bits(table(torch.arange(33)).numpy(), held.dequantize())


def test_a_minimum_goes_with_its_format_alone() -> None:
    held = weight(5, 40, MINIMA)
    with pytest.raises(ValueError, match=r"minimum: .*int4-32-minimum is one"):
        GroupedWeight(held.q, held.scale, None, held.channel_scale, MINIMA)
    with pytest.raises(ValueError, match=r"minimum: .*int4-32 is none"):
        GroupedWeight(
            held.q, held.scale, None, held.channel_scale, WeightFormat.INT4_32, held.minimum
        )
