"""No analysis stumbles over a node without inputs, where it looks for one that has some."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from octavo.graph import analysis
from octavo.graph.analysis.attention_scores import NotTakenError
from octavo.graph.analysis.constants import ConstantLookup, Stored

MODULES = [
    importlib.import_module(f"{analysis.__name__}.{m.name}")
    for m in pkgutil.iter_modules(analysis.__path__)
]
WORDS = {w for m in MODULES for w in re.findall(r"[A-Z]\w+", Path(str(m.__file__)).read_text())}
OPERATORS = sorted(w for w in WORDS if onnx.defs.has(w) and onnx.defs.get_schema(w).max_input)
SOURCES: dict[str, Callable[[], ir.Node]] = {
    "a matrix": lambda: ir.node("Constant", [], {"value": ir.tensor(np.ones((2, 2), np.float32))}),
    "a vector": lambda: ir.node("Constant", [], {"value": ir.tensor(np.ones(1, np.int64))}),
    "not stored": lambda: ir.node("RandomNormal", [], {"shape": [2]}),
}
# What such a parameter stands for is a node with inputs, as whoever calls has seen.
KNOWN = "apart constant_of_shape expand last product reader reshape softmax unsqueeze".split()
GIVEN = {"INT": 1, "INTS": [0], "FLOAT": 1.0, "STRING": "ab,bc->ac"}


class NotOursError(Exception):
    """A parameter that this test has no value for."""


@functools.cache
def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Those that have no default, with their types."""
    hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    found = inspect.signature(function).parameters.values()
    return {p.name: hints.get(p.name) for p in found if p.default is p.empty and p.name != "self"}


class Caller:
    """Calls what takes nodes, values and analyses, with those of one graph."""

    def __init__(self, op: str, source: Callable[[], ir.Node]) -> None:
        schema = onnx.defs.get_schema(op) if op else None
        nodes = [
            source() for _ in range(min(max(schema.min_input, 3), schema.max_input) if op else 1)
        ]
        if schema is not None:
            kinds = {n: str(a.type).rpartition(".")[2] for n, a in schema.attributes.items()}
            given = {n: GIVEN.get(kinds[n], 1) for n, a in schema.attributes.items() if a.required}
            nodes.append(ir.node(op, [n.outputs[0] for n in nodes], given))
        for i, node in enumerate(nodes):
            node.name, node.outputs[0].name = f"n{i}", f"v{i}"
        node, value = nodes[-1], nodes[-1].outputs[0]
        graph = ir.Graph([], [value], nodes=nodes, opset_imports={"": 17})
        self._known: dict[Any, Any] = {
            **{ir.Value: value, ir.Node: node, ir.Graph: graph, ConstantLookup: Stored()},
            **{ir.Model: ir.Model(graph, ir_version=10), int: 2, bool: True},
        }

    def __call__(self, function: Callable[..., Any]) -> None:
        needed = parameters(getattr(function, "__func__", function))
        if any(name in KNOWN for name in needed):
            raise NotOursError
        given = {name: self._value(hint) for name, hint in needed.items()}
        result = function(**given)
        if inspect.isclass(function):
            self._known[function] = result
        elif isinstance(result, Iterator):
            list(result)

    def _value(self, hint: Any) -> Any:
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            hint = typing.get_args(hint)[0]
        if hint not in self._known:
            if not (inspect.isclass(hint) and hint.__module__.startswith(analysis.__name__)):
                raise NotOursError
            self(hint)
        return self._known[hint]

    def method(self, kind: Any, name: str) -> None:
        """Calls a method of an analysis of the graph."""
        self(getattr(self._value(kind), name))


def everything(call: Caller) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every public function, class and method of the analyses, by name."""
    for module in MODULES:
        for name, what in vars(module).items():
            if name.startswith("_") or getattr(what, "__module__", "") != module.__name__:
                continue
            if inspect.isclass(what) or inspect.isfunction(what):
                yield f"{module.__name__}.{name}", lambda what=what: call(what)
            for method, of in vars(what).items() if inspect.isclass(what) else ():
                if inspect.isfunction(of) and (method == "__call__" or not method.startswith("_")):
                    yield f"{name}.{method}", lambda what=what, m=method: call.method(what, m)


@pytest.mark.parametrize("source", SOURCES)
def test_every_analysis_of_nodes_without_inputs(source: str) -> None:
    """Alone, and behind each operator that an analysis knows."""
    called = set()
    for op in ("", *OPERATORS):
        for name, what in everything(Caller(op, SOURCES[source])):
            try:
                what()
            except NotOursError:
                continue
            except NotTakenError:
                pass
            except Exception as error:
                raise AssertionError(f"{name} of {op or source}: {error!r}") from error
            called.add(name)
    assert len(OPERATORS) > 100 and len(called) > 60, len(called)
