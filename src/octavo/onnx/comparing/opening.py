"""Sessions on a model that show more of it than its own outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from octavo.errors import ModelError, brief
from octavo.graph.emitter import Names
from octavo.onnx.comparing.values import bodies, nodes_in, reads, region
from octavo.onnx.tuning.running import opened
from octavo.onnx.tuning.scratch import Scratch
from octavo.onnx.write.save import save
from octavo.onnx.write.store import TensorStore

Values = dict[str, npt.NDArray[Any]]


class Shown:
    """A session whose outputs are the values with these names."""

    def __init__(self, model: ir.Model, names: Iterable[str], label: str) -> None:
        """Changes `model`. `label` is what messages call it."""
        made = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._names = [name for name in dict.fromkeys(names) if name in made]
        self._label = label
        model.graph.outputs[:] = [made[name] for name in self._names]
        self._runner = _opened(model, label)
        self._takes = {v.name for v in self._runner.get_inputs()}

    def run(self, feed: Mapping[str, Any]) -> Values:
        """The values by name, those of `feed` among them. Raises ModelError."""
        fed = {name: value for name, value in feed.items() if name in self._takes}
        found = dict(zip(self._names, _run(self._runner, fed, self._label), strict=True))
        return {**feed, **found}


class Cut:
    """The quantized layers of a model alone, each fed from outside.

    `at` are the layers' outputs; what makes them of `shared` values stays, and takes those from
    the feed. All else goes.
    """

    def __init__(
        self, model: ir.Model, at: Iterable[str], shared: frozenset[str], label: str
    ) -> None:
        """Changes `model`."""
        made = {v.name: v for node in model.graph for v in node.outputs if v.name}
        self._at = list(dict.fromkeys(at))
        self._model, self._label = model, label
        self._nodes = {n: None for name in self._at for n in region(made[name], shared)}
        fed = {v: None for n in self._nodes for v in reads(n) if v.name in shared}
        self._fed: dict[str, ir.Value] = {v.name or "": v for v in fed}
        self._outputs = [made[name] for name in self._at]
        self._runner: Any = None
        self._new: dict[str, str] = {}

    @property
    def needs(self) -> list[str]:
        """Names of the values that `run` takes from the feed."""
        return list(self._fed)

    def run(self, values: Mapping[str, npt.NDArray[Any]]) -> Values:
        """The layers' outputs by name. Raises ModelError."""
        if self._runner is None:
            self._open(values)
        fed = {new: values[name] for name, new in self._new.items()}
        return dict(zip(self._at, _run(self._runner, fed, self._label), strict=True))

    def _open(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """What is cut off takes the types that it has in `values`: a graph need not state them."""
        names, graph = Names(self._model), self._model.graph
        inputs = {}
        for name, old in self._fed.items():
            inputs[old] = new = input_like(names.values.new(f"{name}_float"), values[name])
            self._new[name] = new.name or ""
        for node in [inner for n in self._nodes for inner in nodes_in(n)]:
            for i, value in enumerate(node.inputs):
                if value in inputs:
                    node.replace_input_with(i, inputs[value])
            for body in bodies(node):
                body.outputs[:] = [inputs.get(v, v) for v in body.outputs]
        graph.outputs[:] = self._outputs
        graph.inputs[:] = [v for v in graph.inputs if v.is_initializer()] + list(inputs.values())
        self._drop_others()
        self._runner = _opened(self._model, self._label)

    def _drop_others(self) -> None:
        """Takes out what no layer needs, even where subgraphs of nodes that go refer to it."""
        graph = self._model.graph
        graph.remove([node for node in graph if node not in self._nodes])
        needed = {v for node in self._nodes for v in reads(node)}
        for name, value in list(graph.initializers.items()):
            if value not in needed:
                del graph.initializers[name]
        graph.inputs[:] = [v for v in graph.inputs if not v.is_initializer() or v in needed]


def input_like(name: str, array: npt.NDArray[Any]) -> ir.Value:
    """An input of a graph that takes arrays like this one, of any size."""
    text = array.dtype.kind in "OUS"
    dtype = ir.DataType.STRING if text else ir.DataType.from_numpy(array.dtype)
    return ir.Value(
        name=name,
        type=ir.TensorType(dtype),
        shape=ir.Shape([None] * array.ndim),
    )


def _opened(model: ir.Model, label: str) -> Any:
    try:
        with Scratch() as place:
            save(model, place, TensorStore(None), {})
            return opened(place.model, None)
    except ModelError as error:
        raise ModelError(
            f"{label}: its layers cannot be looked at, as ONNX Runtime does not open the model "
            f"with more outputs: {brief(error)}"
        ) from error


def _run(runner: Any, feed: Mapping[str, Any], label: str) -> list[Any]:
    try:
        return list(runner.run(None, dict(feed)))
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise ModelError(f"{label} fails on these inputs: {brief(error)}") from error
