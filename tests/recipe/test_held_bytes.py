"""What weights take is counted as kernels pack them."""

from __future__ import annotations

import pytest

from octavo.core.kernels import WeightFormat
from octavo.core.kernels.packing import packed_bytes
from octavo.core.layer import Kind, Layer
from octavo.core.qparams import QType
from octavo.recipe import FLOAT, Scheme, WeightScheme
from octavo.recipe.held_bytes import Storage, held_bytes
from octavo.recipe.scheme import SCHEMES

FORMATS = [f for f in WeightFormat if f.group and not f.minimum]


@pytest.mark.parametrize("held", FORMATS, ids=[f.value for f in FORMATS])
def test_groups_count_as_they_are_packed(held: WeightFormat) -> None:
    for n in (1, 16, 500):
        for k in (1, 32, 100, 192, 4096):
            found = Storage.PACKED.groups(n, k, held.bits, held.group, held.affine)
            assert found == packed_bytes(n, k, held) + 5 * n


def _layer(kind: Kind, *shape: int) -> Layer:
    return Layer("a", kind, "A", (("a.w", shape),), 4 * 7, None)


@pytest.mark.parametrize(
    ("scheme", "storage", "least", "most"),
    [
        (FLOAT, Storage.PACKED, 28, 28),
        (SCHEMES["float16"], Storage.STOCK, 2 * 64 * 256, 2 * 64 * 256),
        (Scheme(), Storage.STOCK, 64 * 256 + 64 * 4, 65 * 256 + 5 * 256),
        (Scheme(WeightScheme(QType.UINT8)), Storage.PACKED, 64 * 256, 64 * 256 + 8 * 256),
        (SCHEMES["int4"], Storage.STOCK, 64 * 256 * 5 // 8, 64 * 256 * 5 // 8),
        (SCHEMES["int4"], Storage.PACKED, 64 * 256 * 9 // 16, 64 * 256 * 5 // 8 + 13 * 256),
    ],
)
def test_schemes_count_by_what_they_store(
    scheme: Scheme, storage: Storage, least: int, most: int
) -> None:
    for shape in ((64, 256), (256, 64)):
        assert least <= held_bytes(_layer(Kind.LINEAR, *shape), scheme.weight, storage) <= most


def test_a_filter_has_its_outputs_first_and_a_stack_in_its_matrices() -> None:
    weight = Scheme().weight
    assert held_bytes(_layer(Kind.CONV, 32, 8, 3, 3), weight, Storage.STOCK) == 32 * (72 + 5)
    stack = held_bytes(_layer(Kind.LINEAR, 2, 64, 64), weight, Storage.STOCK)
    assert stack == 2 * 64 * (64 + 5)
