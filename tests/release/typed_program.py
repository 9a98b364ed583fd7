"""What a user may write, for mypy: `make wheel` checks it strictly against the installed wheel.

Each comment allows a mistake, which mypy finds where it sees Octavo's types, and nowhere else.
"""

from functools import partial
from pathlib import Path

import octavo
from octavo.measure import bench
from octavo.onnx import inspect, quantize_dynamic, session


def smallest(model: Path, recipes: list[str]) -> Path:
    """The smallest of the files that `recipes` make of `model`."""
    sizes: dict[Path, int] = {}
    for recipe in recipes:
        made = model.with_suffix(f".{recipe}.onnx")
        report: octavo.Report = quantize_dynamic(model, made, recipe=recipe)
        names: list[str] = [outcome.layer.name for outcome in report.quantized]
        sizes[made] = report.model_bytes_after if names else 0
    return min(sizes, key=sizes.__getitem__)


def opened(first: Path, second: Path) -> float:
    """The time in which the second file opens, over that of the first."""
    found = bench({path.name: partial(session, path) for path in (first, second)})
    ratio: float = found.rows[0].ratio
    return ratio


def mistakes(model: Path) -> None:
    """One in an argument, one in a result, one in a name that is loaded late."""
    quantize_dynamic(model, 8)  # type: ignore[arg-type]
    layers: int = inspect(model).decisions  # type: ignore[assignment]
    print(octavo.__version__ + 1, layers)  # type: ignore[operator]
    octavo.Recipe.from_yaml_text("")  # type: ignore[attr-defined]
