"""Weights in groups with a float16 minimum: w = scale q + minimum, on every table the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.kernels import GroupedWeight, PackedWeight, WeightFormat
from octavo.core.linear import Linear
from tests.core.statement import assert_same_bits
from tests.core.tables import on_every_table

FORMAT = WeightFormat.INT4_32_MINIMUM


def weight(n: int, k: int) -> GroupedWeight:
    rng = np.random.default_rng(n * k)
    groups = FORMAT.groups(k)
    return GroupedWeight(
        rng.integers(0, 16, (n, k), np.uint8),
        rng.uniform(0.01, 0.02, (n, groups)).astype(np.float16),
        None,
        np.exp2(rng.integers(-1, 2, n)).astype(np.float32),
        FORMAT,
        rng.uniform(-0.2, 0.1, (n, groups)).astype(np.float16),
    )


def layer(held: GroupedWeight, group: int) -> Linear:
    packed = PackedWeight(
        held.pack(), held.n, held.k, held.channel_scale, group=group, format=FORMAT
    )
    return Linear.from_packed(packed)


def whole_numbers(rows: int, k: int, group: int) -> Any:
    """Inputs that are integers already: each group, or each row, has a scale of 1."""
    x = np.random.default_rng(k).integers(-126, 128, (rows, k)).astype(np.float32)
    if group:
        x[:, ::group] = 127
    else:
        x[:, 0], x[:, 1] = 127, -128
    return x


@pytest.mark.parametrize("group", [0, 32], ids=["row", "group"])
@pytest.mark.parametrize("rows", [1, 3, 33])
@pytest.mark.parametrize(("n", "k"), [(48, 128), (33, 200), (5, 40)])
def test_products_are_those_of_the_weight(group: int, rows: int, n: int, k: int) -> None:
    held, x = weight(n, k), whole_numbers(rows, k, group)
    exact = x.astype(np.float64) @ held.dequantize().astype(np.float64).T
    size = np.abs(x).astype(np.float64) @ np.abs(held.dequantize()).astype(np.float64).T
    stated = on_every_table(lambda _: layer(held, group)(x), [1])
    assert (np.abs(stated - exact) <= 2.0**-20 * size).all()
    noisy = np.random.default_rng(1).normal(size=(rows, k)).astype(np.float32)
    expected = on_every_table(lambda _: layer(held, group)(noisy), [1])
    assert_same_bits(layer(held, group)(noisy[:1]), expected[:1])


def test_packed_rows_are_those_of_the_weight() -> None:
    torch = pytest.importorskip("torch")
    from octavo.torch.layers.packed_embedding import QuantizedPackedEmbedding

    held = weight(33, 200)
    table = QuantizedPackedEmbedding(33, 200, format=FORMAT.value)
    table._fill(packed=torch.from_numpy(held.pack()), scale=torch.from_numpy(held.channel_scale))
    assert_same_bits(table(torch.arange(33)).numpy(), held.dequantize())


def test_a_minimum_goes_with_its_format_alone() -> None:
    held = weight(5, 40)
    with pytest.raises(ValueError, match=r"minimum: .*int4-32-minimum is one"):
        GroupedWeight(held.q, held.scale, None, held.channel_scale, FORMAT)
    with pytest.raises(ValueError, match=r"minimum: .*int4-32 is none"):
        GroupedWeight(
            held.q, held.scale, None, held.channel_scale, WeightFormat.INT4_32, held.minimum
        )
