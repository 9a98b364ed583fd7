"""The sizes that a traced call was told true for: a function of all sizes of a call's tensors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import sympy
from torch.utils._sympy.printers import PythonPrinter

from octavo.torch.blocks.nodes import UnknownStep
from octavo.torch.blocks.trace.tracing import Trace

_MANY = 4096


class Sizes:
    """Which sizes of inputs a trace is about."""

    def __init__(self, trace: Trace) -> None:
        self.inputs = trace.inputs
        flat = [size for shape in trace.inputs for size in shape]
        places: dict[Any, int] = {}
        for place, size in enumerate(flat):
            if isinstance(size, sympy.Symbol):
                places.setdefault(size, place)
        self.symbols = list(places)
        named = {s: sympy.Symbol(f"s[{i}]", integer=True) for s, i in places.items()}
        self._named = named
        said = [
            f"s[{i}] == {_code(size, named)}"
            for i, size in enumerate(flat)
            if not (isinstance(size, sympy.Symbol) and places[size] == i)
        ]
        for guard in trace.shapes.guards:
            expression = trace.shapes.replace(guard.expr)
            if expression != sympy.true:
                said.append(_code(expression, named))
        self.code = " and ".join(said) or "True"
        """What is asked of all sizes `s`, as an expression of Python."""
        self.ask = _function(self.code)
        self._known: dict[tuple[int, ...], bool] = {}

    def fit(self, sizes: tuple[int, ...]) -> bool:
        """Tell whether the trace holds for tensors of these sizes, all in one tuple."""
        known = self._known.get(sizes)
        if known is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            known = self._known[sizes] = bool(self.ask(sizes))
        return known

    def function(self, shape: Sequence[Any]) -> Callable[[Sequence[int]], Any]:
        """Return a function from all sizes of a call's inputs to this shape."""
        return _function("(" + "".join(f"{_code(size, self._named)}, " for size in shape) + ")")

    def shapes(self, values: dict[Any, int]) -> list[tuple[int, ...]]:
        """Return the inputs' shapes for these values of the symbols."""
        return [
            tuple(s if isinstance(s, int) else int(s.subs(values)) for s in shape)
            for shape in self.inputs
        ]

    def examples(self, sizes: Sequence[int], count: int) -> list[list[tuple[int, ...]]]:
        """Return shapes of inputs that fit, small and different ones; `sizes` are known to fit.

        Sizes equal in `sizes` are equal here: a trace does not ask for all that has to be equal.
        """
        flat = [size for shape in self.inputs for size in shape]
        real = {s: n for s, n in zip(flat, sizes, strict=True) if isinstance(s, sympy.Symbol)}
        found = []
        draw = random.Random(0)
        for most in (4, 7, 12, 30, 70):
            for _ in range(40):
                drawn = {n: draw.randint(2, most) for n in dict.fromkeys(real.values())}
                values = {s: drawn[real[s]] for s in self.symbols}
                shapes = self.shapes(values)
                if self.ask([n for shape in shapes for n in shape]) and shapes not in found:
                    found.append(shapes)
                    break
            if len(found) == count:
                return found
        return [*found, self.shapes(real)]


def _function(code: str) -> Callable[[Sequence[int]], Any]:
    found: Callable[[Sequence[int]], Any] = eval(f"lambda s: {code}", {"math": math})
    return found


def _code(value: Any, named: dict[Any, Any]) -> str:
    if isinstance(value, int):
        return str(value)
    unknown = value.free_symbols - named.keys()
    if unknown:
        raise UnknownStep(f"the size {value} is not one of an input's")
    return f"({PythonPrinter().doprint(value.xreplace(named))})"
