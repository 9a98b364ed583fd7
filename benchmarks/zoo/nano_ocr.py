"""nano-ocr, a CRNN (Conv, bidirectional LSTM, Linear) that reads words, on words drawn with Pillow.

    model = torch_model()
    read = transcribe(model)                       # the text of each of images()
    word_accuracy(read), character_error_rate(read)   # 0.968, 0.0048
    transcribe(open_session(onnx_path()))             # the same

The words are CMUdict's, in lower case, capitalized and in capitals, drawn in DejaVu's typefaces
with grain over them: without it the float model reads .995 of them, which leaves little to lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo import g2p
from benchmarks.zoo.export import cached, export_images, versions
from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Array, Session

if TYPE_CHECKING:
    import torch
    from PIL import ImageFont


COUNT = 1000
HEIGHT, WIDTH = 32, 128  # of the model's input
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.- "
FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSansMono")
_SIZE, _MARGIN = 28, 4  # pixels before the picture is scaled to the model's size
_LETTERS = range(3, 13)
_GRAIN = 30  # standard deviation, of 0..255
_RECIPE = 1  # raise when the export changes, so that nobody reads an older file
Pixels = NDArray[np.uint8]


def torch_model() -> torch.nn.Module:
    """Float32, in eval mode: images `[n, 1, 32, 128]` of -1..1 to logits `[33, n, 66]`.

    Class 0 is CTC's blank, class i the character i - 1.
    """
    import torch
    from torch import nn

    class CRNN(nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        """The package's module, whose own file needs torchvision."""

        def __init__(self) -> None:
            super().__init__()
            self.cnn = nn.Sequential(*_convolutions())
            self.rnn = nn.LSTM(512, 256, bidirectional=True, batch_first=True)
            self.fc = nn.Linear(512, len(CHARACTERS) + 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            columns = self.cnn(x).squeeze(2).permute(0, 2, 1)
            logits: torch.Tensor = self.fc(self.rnn(columns)[0]).permute(1, 0, 2)
            return logits

    model = CRNN()
    path: Path = fetch("nano-ocr") / "nano_ocr" / "model" / "nano_ocr_ftr.pth"
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.eval()


def onnx_path() -> Path:
    """The float32 file, exported now if the cache lacks it; the batch is free.

    ``images`` float32 ``[n, 1, 32, 128]`` -> ``logits`` float32 ``[33, n, 66]``.
    """

    def make(path: Path) -> None:
        export_images(torch_model(), images(4), {"images": 0, "logits": 1}, path)

    return cached(f"nano-ocr-{versions('torch')}-r{_RECIPE}.onnx", make)


def _convolutions() -> list[torch.nn.Module]:
    from torch.nn import BatchNorm2d, Conv2d, MaxPool2d, ReLU

    half, flat = (2, 2), ((2, 2), (2, 1), (0, 1))
    return [
        *(Conv2d(1, 64, 3, padding=1), ReLU(True), MaxPool2d(*half)),
        *(Conv2d(64, 128, 3, padding=1), ReLU(True), MaxPool2d(*half)),
        *(Conv2d(128, 256, 3, padding=1), BatchNorm2d(256), ReLU(True)),
        *(Conv2d(256, 256, 3, padding=1), ReLU(True), MaxPool2d(*flat)),
        *(Conv2d(256, 512, 3, padding=1), BatchNorm2d(512), ReLU(True), MaxPool2d(*flat)),
        *(Conv2d(512, 512, 2), BatchNorm2d(512), ReLU(True)),
    ]


@lru_cache
def texts(count: int = COUNT) -> tuple[str, ...]:
    """What `images` show, always the same."""
    found = [w.letters for w in g2p.words(4 * count) if len(w.letters) in _LETTERS][:count]
    cases = (str.lower, str.capitalize, str.upper)
    return tuple(cases[i % len(cases)](word) for i, word in enumerate(found))


@lru_cache
def images(count: int = COUNT) -> torch.Tensor:
    """float32 `[count, 1, 32, 128]` of -1..1: `texts`, the typefaces in turn."""
    import torch

    drawn = [draw(text, FONTS[i % len(FONTS)]) for i, text in enumerate(texts(count))]
    grain = np.random.RandomState(0).standard_normal((count, HEIGHT, WIDTH)) * _GRAIN
    seen = np.clip(np.stack(drawn) + grain, 0, 255).astype(np.uint8)
    scaled = seen.astype(np.float32) / np.float32(127.5) - np.float32(1)
    return torch.from_numpy(scaled[:, np.newaxis])


def draw(text: str, font: str) -> Pixels:
    """`[32, 128]`, black on white with a margin, brought to that size as the package does it."""
    from PIL import Image, ImageDraw

    face = typeface(font)
    left, top, right, bottom = face.getbbox(text)
    size = (int(right - left) + 2 * _MARGIN, int(bottom - top) + 2 * _MARGIN)
    picture = Image.new("L", size, 255)
    ImageDraw.Draw(picture).text((_MARGIN - left, _MARGIN - top), text, fill=0, font=face)
    return np.asarray(picture.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR))


@lru_cache
def typeface(name: str) -> ImageFont.FreeTypeFont:
    """One of the typefaces that come with matplotlib."""
    from PIL import ImageFont

    folder = fetch("matplotlib") / "matplotlib" / "mpl-data" / "fonts" / "ttf"
    # The plain layout engine: the other one depends on the machine's libraries.
    return ImageFont.truetype(
        str(folder / f"{name}.ttf"), _SIZE, layout_engine=ImageFont.Layout.BASIC
    )


def transcribe(model: torch.nn.Module | Session, count: int = COUNT, batch: int = 1) -> list[str]:
    """What `model` reads in each of `images`, greedily decoded; one by one, as the package does."""
    found = []
    for part in images(count).split(batch):
        found += [_text(columns) for columns in _logits(model, part).argmax(-1).T.tolist()]
    return found


def _logits(model: torch.nn.Module | Session, part: torch.Tensor) -> Array:
    import torch

    if isinstance(model, Session):
        return model.run(None, {"images": part.numpy()})[0]
    with torch.inference_mode():
        found: Array = model(part).numpy()
    return found


def _text(columns: Sequence[int]) -> str:
    """CTC: repeated classes are one, blanks are nothing."""
    kept = (c for i, c in enumerate(columns) if c and (i == 0 or columns[i - 1] != c))
    return "".join(CHARACTERS[c - 1] for c in kept)


def word_accuracy(read: Sequence[str]) -> float:
    """Share of the words that are read without a mistake, capitals included."""
    pairs = zip(read, texts(len(read)), strict=True)
    return sum(a == b for a, b in pairs) / len(read)


def character_error_rate(read: Sequence[str]) -> float:
    """Edits from `read` to `texts`, as a share of the characters of `texts`."""
    wanted = texts(len(read))
    edits = sum(g2p.distance(a, b) for a, b in zip(read, wanted, strict=True))
    return edits / sum(map(len, wanted))
