"""Both models with more of them in view than their outputs.

    float model       x -> layer -> h -> Ceil -> n -> ... -> y       shows h, n and y
    quantized model   x -> layer -> h'   Ceil    n -> ... -> y'      is given the float model's n

Decisions and draws (`decisions`) that the quantized model is given make what follows comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir

from octavo.errors import ModelError
from octavo.graph.analysis.walk import opset_of
from octavo.graph.emit.emitter import Names
from octavo.onnx.check.decisions import ComparablePoints
from octavo.onnx.check.memory import Memory
from octavo.onnx.comparing.probes import (
    ValueProbe,
    Values,
    first_shared_values,
    input_like,
    main_graph_nodes,
    shared_values,
)
from octavo.onnx.constants import Constants
from octavo.onnx.plan.inventory import inventory
from octavo.onnx.read.load import Source
from octavo.onnx.read.normalize import load_normalized

MOST_OPENED_BYTES = 10**9
"""Of both models: larger ones are not opened a second time for a check."""
FLOAT_LABEL, QUANTIZED_LABEL = "the float model, looked into,", "the quantized model, looked into,"


class ModelPair:
    """Knows the graphs of both models, and opens them with what is to be seen.

    `layers` are the names of the quantized layers; None where nobody knows them.
    """

    def __init__(self, source: Source, quantized: Path, layers: Iterable[str] | None) -> None:
        self._source, self._quantized = source, quantized
        self._names = None if layers is None else frozenset(layers)

    def floating(self) -> ir.Model:
        """Read the float model afresh: whoever opens it changes it."""
        return load_normalized(self._source.origin)

    def quantized(self) -> ir.Model:
        """Read the quantized model afresh."""
        return load_normalized(self._quantized)

    @cached_property
    def outputs(self) -> list[str]:
        """Names of the model's outputs."""
        return [v.name or "" for v in self.floating().graph.outputs]

    @cached_property
    def shared(self) -> frozenset[str]:
        """Names of the activations of both main graphs."""
        return shared_values(self.floating(), self.quantized())

    @cached_property
    def layers(self) -> dict[str, tuple[str, ...]]:
        """Return the values that show each quantized layer, in the order in which layers run."""
        if self._names is None:
            return {}
        model = self.floating()
        held_by = main_graph_nodes(model.graph)
        sites = inventory(model, Constants(opset_of(model)))
        return {
            site.layer.name: first_shared_values(held_by[site.node], self.shared, held_by)
            for site in sites
            if site.layer.name in self._names
        }

    @cached_property
    def shown_by(self) -> dict[str, str]:
        """Return the last of the layers that a value shows, by value.

        The values are those that show a layer first.
        """
        return {names[0]: layer for layer, names in self.layers.items() if names}

    @cached_property
    def points(self) -> ComparablePoints:
        """Return the points at which the models can be compared."""
        at = None
        if self._names is not None:
            at = {name for names in self.layers.values() for name in names}
        return ComparablePoints(self.floating(), at, self.shared)

    def layers_behind(self, value: str) -> frozenset[str]:
        """Return the quantized layers that the value named `value` is computed from."""
        shown = self.points.layers_behind(value)
        return frozenset(n for n, values in self.layers.items() if shown.intersection(values))

    @property
    def is_affordable(self) -> bool:
        """Tell whether both models may be opened once more."""
        return self._source.bytes + self._quantized.stat().st_size <= MOST_OPENED_BYTES

    @cached_property
    def memory(self) -> Memory:
        """Return the memory that values of the float model need."""
        return Memory(self.floating())

    def refuse_large(self, shown: Iterable[str], feed: Mapping[str, Any]) -> None:
        """Raise ModelError where the values would need more memory than a check may take."""
        needed = self.memory.of_values(shown, feed)
        if needed > MOST_OPENED_BYTES:
            raise ModelError(f"looking into both models needs about {needed / 1e9:.1f} GB")


class PairSessions:
    """Sessions on both models with the values `shown` in view and `forced` given to the quantized
    one, which is opened when the types of these are known."""

    def __init__(self, pair: ModelPair, shown: Sequence[str], forced: Sequence[str]) -> None:
        self._pair, self._forced = pair, tuple(dict.fromkeys(forced))
        self._shown = [*dict.fromkeys(shown)]
        self._theirs = ValueProbe(pair.floating(), [*self._shown, *self._forced], FLOAT_LABEL)
        self._ours: ValueProbe | None = None
        self._given: dict[str, str] = {}

    def run(self, feed: Mapping[str, Any]) -> tuple[Values, Values]:
        """Return the values of the float model and of the quantized one. Raises ModelError."""
        self._pair.refuse_large([*self._shown, *self._forced], feed)
        theirs = self._theirs.run(feed)
        if self._ours is None:
            model = self._pair.quantized()
            self._given = make_inputs(model, self._forced, theirs)
            wanted = [name for name in self._shown if name not in self._forced]
            self._ours = ValueProbe(model, wanted, QUANTIZED_LABEL)
        ours = self._ours.run({**feed, **{new: theirs[old] for old, new in self._given.items()}})
        return theirs, ours


def make_inputs(model: ir.Model, names: Iterable[str], values: Values) -> dict[str, str]:
    """Turn the values `names` into inputs of `model`; return their new names by the old ones."""
    fresh, graph = Names(model), model.graph
    made = {v.name: v for node in graph for v in node.outputs if v.name in values}
    given = {}
    for name in names:
        if name not in made:
            continue
        value = input_like(fresh.values.new(f"{name}_given"), values[name])
        made[name].replace_all_uses_with(value, replace_graph_outputs=True)
        graph.inputs.append(value)
        given[name] = value.name or ""
    return given
