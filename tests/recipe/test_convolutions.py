"""The rule by which presets quantize convolutions, over filters and strides."""

from __future__ import annotations

import pytest

from octavo.recipe.convolutions import Filters, Place, are_stem, gains_nothing

NOTHING = (
    ((64, 16, 3), 4, (1,), "16 outputs, each a sum of 48 products"),
    ((8, 16, 3, 3), 1, (1, 1), "8 outputs, each a sum of 144 products"),
    ((16, 96, 1), 1, (1,), "16 outputs, each a sum of 96 products"),
    ((64, 32, 1, 1), 1, (1, 1), "64 outputs, each a sum of 32 products"),
    ((1, 64, 3, 3), 1, (1, 1), "of 1 output, each"),
    ((32, 1, 3, 3), 32, (1, 1), "filters see one channel each"),
    ((512, 1, 31), 512, (1,), "filters see one channel each"),
    ((512, 1, 10), 1, (5,), "filters see one channel each"),
    ((258, 1, 256), 1, (128,), "over one raw signal (256 taps"),
    ((32, 16, 3, 3, 3), 1, (1, 1, 1), "over 3 axes"),
    ((64, 0, 3, 3), 1, (1, 1), "its weight has no elements"),
    ((96, 3, 5, 5), 1, (5, 5), "of 15 products for each number"),
)
GAIN = {
    "ViT, 16 x 16 patches": ((768, 3, 16, 16), 1, (16, 16)),
    "DeiT-tiny, 16 x 16 patches": ((192, 3, 16, 16), 1, (16, 16)),
    "DINOv2, 14 x 14 patches": ((768, 3, 14, 14), 1, (14, 14)),
    "Whisper, over time": ((384, 80, 3), 1, (1,)),
    "Whisper, every other frame": ((384, 384, 3), 1, (2,)),
    "wav2vec 2.0, features": ((512, 512, 2), 1, (2,)),
    "wav2vec 2.0, positions": ((768, 48, 128), 16, (1,)),
    "ResNet, 3 x 3": ((64, 64, 3, 3), 1, (1, 1)),
    "ResNet, strided and pointwise": ((128, 64, 1, 1), 1, (2, 2)),
    "ResNet, the first": ((64, 3, 7, 7), 1, (2, 2)),
    "YOLO": ((32, 16, 3, 3), 1, (2, 2)),
    "MobileNet, pointwise": ((384, 64, 1, 1), 1, (1, 1)),
}


@pytest.mark.parametrize(("shape", "group", "strides", "reason"), NOTHING, ids=str)
def test_float_where_integers_gain_nothing(
    shape: tuple[int, ...], group: int, strides: tuple[int, ...], reason: str
) -> None:
    said = gains_nothing(Filters(shape, group, strides), "ask for it")
    assert said is not None and reason in said


@pytest.mark.parametrize("layer", GAIN)
def test_integers_where_they_gain(layer: str) -> None:
    assert gains_nothing(Filters(*GAIN[layer]), "ask for it") is None


def test_products_for_each_number_that_is_moved() -> None:
    assert Filters((64, 64, 1, 1), 1, (1, 1)).products_a_number == 32
    assert Filters((64, 64, 1, 1), 1, (2, 2)).products_a_number == 64 * 64 / (256 + 64)
    assert Filters((32, 3, 2, 2), 1, (1, 1)).products_a_number == 32 * 12 / (16 + 32)
    assert Filters((64, 64, 3), 2, (1,)).products_a_number == 32 * 192 / (64 + 32)


def test_a_stem_is_small_beside_the_linear_layers() -> None:
    assert are_stem(1, 48) and are_stem(2, 4)
    assert not are_stem(2, 3) and not are_stem(53, 100) and not are_stem(0, 1)


def test_reasons_say_how_to_ask() -> None:
    for place in Place:
        assert place.reason("ask so").endswith("it is float by default; ask so")
