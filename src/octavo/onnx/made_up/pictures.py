"""Sizes of pictures that a network is likely to see, by its strides and by what it costs.

Sizes are multiples of the product of the strides, so that what is scaled up again fits what it is
joined with. Networks that end in an average see 224 pixels, those that scale up or find boxes 320
or 640, readers of text lines 48 x 320: their height shrinks faster than their width.
"""

from __future__ import annotations

from octavo.onnx.made_up.strides import Picture, Strides

MOST_WORK = 2e10
"""Multiply-accumulates of convolutions on one picture: a second or so."""
_LINES: tuple[Picture, ...] = ((48, 320), (32, 320), (48, 160), (32, 100), (64, 256))
_SCALED_UP: tuple[Picture, ...] = ((320, 320), (256, 320), (640, 640), (512, 512), (224, 224))
_AVERAGED: tuple[Picture, ...] = ((224, 224), (224, 256), (256, 256), (320, 320), (299, 299))
_SHALLOW: tuple[Picture, ...] = ((64, 64), (64, 96), (128, 128), (224, 224), (256, 256))
_LAST: tuple[Picture, ...] = (
    (32, 32), (28, 28), (96, 96), (112, 112), (160, 160), (84, 84), (384, 384), (640, 640),
    (16, 16), (8, 8),
)  # fmt: skip


def pictures(strides: Strides, channels: int | None, height: int | None) -> list[Picture]:
    """Sizes to try, the likeliest first. `height` is that which the model has fixed."""
    is_line = strides.down >= 2 * strides.across and strides.down >= 8
    if is_line or (height is not None and height <= 64):
        likely = _LINES
    elif channels not in (None, 1, 3):
        likely = _SHALLOW
    elif strides.scales_up and strides.down > 1:
        likely = _SCALED_UP
    elif strides.down > 4 or strides.averages:
        likely = _AVERAGED
    else:
        likely = _SHALLOW
    fitting = [_fitted(picture, strides) for picture in likely]
    if strides.picture is not None:
        fitting = [strides.picture, *fitting]
    return list(dict.fromkeys([*fitting, *(_bounded(picture, strides) for picture in _LAST)]))


def _fitted(picture: Picture, strides: Strides) -> Picture:
    """A multiple of the strides that is not too much work."""
    h, w = _bounded(picture, strides)
    return _multiple(h, strides.down), _multiple(w, strides.across)


def _multiple(size: int, of: int) -> int:
    return max(1, round(size / of)) * of


def _bounded(picture: Picture, strides: Strides) -> Picture:
    h, w = picture
    while strides.work * h * w > MOST_WORK and min(h, w) >= 2 * max(strides.down, strides.across):
        h, w = h // 2, w // 2
    return h, w
