"""What lies beside a file that is not there."""

from __future__ import annotations

import contextlib
from pathlib import Path

from octavo.errors import near_misses


def near(path: Path) -> str:
    """` Did you mean 'm.onnx'?` of files in the folder of `path` that end as it does, or "".

    The name of a Python module is meant for a PyTorch model.
    """
    if path.name == str(path) and Path(f"{path}.py").is_file():
        return f" {path}.py may make a PyTorch model: name the callable too, {path}:<callable>."
    beside: list[str] = []
    with contextlib.suppress(OSError):
        beside = [p.stem for p in path.parent.iterdir() if p.suffix == path.suffix]
    return near_misses(path.stem, beside, path.suffix)


def near_module(name: str) -> str:
    """The same for the module `name`, of modules and packages in the current folder."""
    packages = [p.parent.name for p in Path().glob("*/__init__.py")]
    return near_misses(name, [*packages, *(p.stem for p in Path().glob("*.py"))])
