"""What a package offers, by name: pages of the reference have it in a clone, too."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType


def names(module: str, _: str = "") -> Iterator[str]:
    """A table of the public names, each with the first sentence of its docstring."""
    yield from ("| name | what it is |", "|---|---|")
    package = importlib.import_module(module)
    for name in _public(package):
        yield f"| `{name}` | {_first_sentence(getattr(package, name))} |"


def _public(package: ModuleType) -> list[str]:
    """Those of `__all__`; without one, the classes that are written there."""
    found: list[str] | None = getattr(package, "__all__", None)
    if found is not None:
        return found
    classes = inspect.getmembers(package, inspect.isclass)
    return [name for name, value in classes if value.__module__ == package.__name__]


def _first_sentence(value: object) -> str:
    """Nothing of data, whose docstring is that of its type."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return ""
    paragraph = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:]) (?=[A-Z`])|(?<=:)$", paragraph)[0].rstrip(".:")
    return sentence.replace("|", "\\|")
