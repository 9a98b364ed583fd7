"""What is done with a code block of each language."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from ruamel.yaml import YAML
from sybil import Example
from sybil.evaluators.python import PythonEvaluator

from octavo.recipe import load_recipe
from octavo.tune import load_config
from tests.docs.blocks import Evaluator
from tests.docs.commands import console

OLD_CALLS = (
    r"torch\.ao\.quantization is deprecated",
    r"torch\.(quint8|qint8|qint32|quantize_per_tensor|quantize_per_channel)",
    r".*quantized.*deprecated",
)
"""Starts of the warnings that the calls of other libraries, shown beside ours, give."""

_TUNING = {"model", "quantization", "tuning", "evaluation", "device"}
_LOOKS_LIKE_CODE = re.compile(r"\s*(\$ |octavo \w|pip |make \w|python |import \w|from \w+ import )")
_SUFFIXES = (".py", ".yaml", ".yml")


def python(example: Example) -> None:
    """Runs it after the blocks before it. A title that is a file's name makes it that file too."""
    _keep(example)
    example.namespace.setdefault("__name__", "example")
    with warnings.catch_warnings():
        for message in OLD_CALLS:
            warnings.filterwarnings("ignore", message)
        PythonEvaluator()(example)


def yaml(example: Example) -> None:
    """Reads it as the recipe or the tuning configuration that it is."""
    _keep(example)
    data = YAML(typ="safe").load(str(example.parsed))
    read = load_config if _TUNING & set(data) else load_recipe
    with TemporaryDirectory() as folder:
        path = Path(folder) / "block.yaml"
        path.write_text(str(example.parsed))
        read(path)


def text(example: Example) -> str | None:
    """Pictures, formulas and output: nothing that somebody would run."""
    code = next((line for line in example.parsed.split("\n") if _LOOKS_LIKE_CODE.match(line)), None)
    return None if code is None else f"this looks like code, and nothing runs text: {code!r}"


EVALUATORS: dict[str, Evaluator] = {
    "python": python,
    "yaml": yaml,
    "console": console,
    "text": text,
}


def _keep(example: Example) -> None:
    """Writes a block whose title is a file's name to the current folder."""
    title = str(example.region.lexemes["title"])
    if title.endswith(_SUFFIXES):
        Path(title).parent.mkdir(parents=True, exist_ok=True)
        Path(title).write_text(str(example.parsed))
