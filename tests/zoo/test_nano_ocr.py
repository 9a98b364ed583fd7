"""The words are drawn as they should be, and the float model reads them as it should."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.zoo import nano_ocr

pytestmark = [pytest.mark.slow, pytest.mark.models]


def test_float_figures() -> None:
    read = nano_ocr.transcribe(nano_ocr.torch_model(), 300, batch=20)
    # FreeType draws the words: another release may move a pixel, so a word or two.
    assert nano_ocr.word_accuracy(read) == pytest.approx(0.960, abs=0.007)
    assert nano_ocr.character_error_rate(read) == pytest.approx(0.0059, abs=0.001)


def test_a_picture_is_black_on_white_up_to_its_margin() -> None:
    picture = nano_ocr.draw("Word", "DejaVuSans")
    assert picture.shape == (nano_ocr.HEIGHT, nano_ocr.WIDTH)
    border = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    assert border.min() > 250
    assert picture.min() < 10
    assert 0.1 < (picture < 128).mean() < 0.5


def test_mistakes_are_counted() -> None:
    wanted = list(nano_ocr.texts(10))
    read = [wanted[0] + "x", *wanted[1:]]
    assert nano_ocr.word_accuracy(read) == 0.9
    assert nano_ocr.character_error_rate(read) == 1 / sum(map(len, wanted))
