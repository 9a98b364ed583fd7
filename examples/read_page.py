"""Reads the words of a picture with an ONNX model in 8 bits, and with the float model beside it.

    python read_page.py                              # a sample: nano-ocr, and three lines of text
    python read_page.py page.png --model reader.onnx

Pictures are dark on light, their lines level. The model reads words: float32 [words, 1, height,
width] of -1 to 1 in, [places, words, classes] out. Class 0 is CTC's blank, the others CHARACTERS.
"""

import argparse
import sys
import time

import numpy as np

from octavo import OctavoError

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.- "


def runs(ink: np.ndarray, gap: int) -> list[slice]:
    """Where there is ink; holes of up to `gap` pixels belong to it."""
    at = np.flatnonzero(ink)
    parts = np.split(at, np.flatnonzero(np.diff(at) > gap) + 1)
    return [slice(part[0], part[-1] + 1) for part in parts if len(part)]


def read(session, line: np.ndarray) -> str:
    """Read the words of a line, uint8 [height, width]."""
    from PIL import Image

    (pixels,), found = session.get_inputs(), []
    for columns in runs((line < 128).any(axis=0), gap=len(line) // 3):
        (rows,) = runs((line[:, columns] < 128).any(axis=1), gap=len(line))
        word = Image.fromarray(np.pad(line[rows, columns], 4, constant_values=255))
        scaled = word.resize(pixels.shape[:1:-1], Image.Resampling.BILINEAR)
        found.append(np.asarray(scaled, np.float32)[None] / 127.5 - 1)
    best = session.run(None, {pixels.name: np.stack(found)})[0].argmax(axis=-1).T
    kept = [row[(np.diff(row, prepend=0) != 0) & (row > 0)] for row in best]
    return " ".join("".join(CHARACTERS[i - 1] for i in row) for row in kept)


def main() -> None:
    """Quantizes the model, then reads with both."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("picture", nargs="?", help="PNG, JPEG, ..")
    parser.add_argument("--model", help="the float model, an ONNX file")
    parser.add_argument("-o", default="reader.native.onnx", help="the 8-bit model to write")
    given = parser.parse_args()
    if not (given.picture and given.model):
        from samples import sample

        given.picture = given.picture or sample("page")
        given.model = given.model or sample("reader")
    from PIL import Image

    import octavo.onnx

    print(f"quantizing {given.model}", file=sys.stderr)
    octavo.onnx.quantize_dynamic(given.model, given.o, target="native", recipe="int8")
    page = np.asarray(Image.open(given.picture).convert("L"))
    for path in (given.model, given.o):
        session, start = octavo.onnx.session(path), time.perf_counter()
        for rows in runs((page < 128).any(axis=1), gap=3):
            print(read(session, page[rows]))
        print(f"    {1000 * (time.perf_counter() - start):.0f} ms: {path}", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ImportError, OSError, OctavoError) as error:
        sys.exit(f"error: {error}")
