"""Finds the layer whose quantization does most to the output.

    float model      x -> layer -> h ---------------> ... -> y
    one layer alone  x -> layer -> h + (h' - h) ----> ... -> y'     h': the quantized layer, fed x

A layer's own error says little: one of 38 dB before a logarithm can do more than one of 20 dB
before a mean. The float model runs once for each layer, with what quantizing it changes added.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.masked_rows import Padding, of_tokens
from octavo.core.metrics import relative_error
from octavo.errors import OctavoError
from octavo.graph.emit.emitter import Names
from octavo.onnx.check.coverage import layers_run
from octavo.onnx.check.model_pair import FLOAT_LABEL, ModelPair, make_inputs
from octavo.onnx.comparing.probes import LayerProbe, ValueProbe, Values, input_like
from octavo.onnx.inputs import Feed
from octavo.onnx.read.load import Source
from octavo.onnx.read.map_types import as_array
from octavo.results.report import LayerOutcome

RANKING_SECONDS = 20.0
"""After which the layers that are left are not tried."""


# docs/notes/checking.md: "A layer is blamed for its effect"
class LayerEffects:
    """Ranks the quantized layers of one model by what each alone does to one value."""

    def __init__(self, pair: ModelPair, source: Source, outcomes: Sequence[LayerOutcome]) -> None:
        self._pair, self._source = pair, source
        self._outcomes = [o for o in outcomes if o.quantized]

    def worst_layer(self, feed: Feed, value: str, forced: Sequence[str] = ()) -> str | None:
        """Return the layer with the largest effect on `value`, or None.

        Where that cannot be seen (layers in subgraphs, models that are too large): the layer whose
        weight lost most, of those that ran.
        """
        with suppress(OctavoError):
            if self._pair.is_affordable:
                effects = self.effects(feed, value, forced)
                if effects and max(effects.values()) > 0:
                    at = max(effects, key=lambda name: effects[name])
                    shown = [n for n, values in self._pair.layers.items() if at in values[:1]]
                    return self._of_these(feed, shown)  # several of subgraphs, or of one product
        return self._of_these(feed, [o.layer.name for o in self._outcomes])

    def effects(self, feed: Feed, value: str, forced: Sequence[str] = ()) -> dict[str, float]:
        """Return, by value that shows layers, the error at `value` if only that value is quantized.

        Raises OctavoError.
        """
        at = list(self._pair.shown_by)
        if not at:
            return {}
        changes = self._changes(feed, at)
        order = sorted(at, key=lambda v: -changes[v][1])
        perturbed = _Perturbed(self._pair, at, value, forced, feed)
        expected, padding = perturbed.run({}), self._padding(feed)
        started, found = perf_counter(), {}
        for name in order:
            if perf_counter() - started > RANKING_SECONDS:
                break
            got = perturbed.run({name: changes[name][0]})
            found[name] = _error(*padding.seen(value, expected, got))
        return found

    def own_errors(self, feed: Feed) -> dict[str, float]:
        """Return the error of each layer at its value, where it is fed the float model's.

        Raises OctavoError.
        """
        shown = self._pair.shown_by
        return {shown[at]: error for at, (_, error) in self._changes(feed, list(shown)).items()}

    def _changes(self, feed: Feed, at: Sequence[str]) -> dict[str, tuple[npt.NDArray[Any], float]]:
        """Return the change and the error that quantizing makes at each value in `at`.

        Each layer is fed the float model's values.
        """
        self._pair.refuse_large(at, feed)
        cut = LayerProbe(self._pair.quantized(), at, self._pair.shared, "the quantized model, cut,")
        theirs = ValueProbe(self._pair.floating(), [*at, *cut.needs], FLOAT_LABEL)
        expected = theirs.run(feed)
        alone, padding = cut.run(expected), self._padding(feed)
        found = {}
        for name in at:
            with np.errstate(all="ignore"):
                change = alone[name].astype(np.float64) - expected[name].astype(np.float64)
            added = np.where(np.isfinite(change), change, 0).astype(expected[name].dtype)
            both = padding.seen(name, expected[name], alone[name], layer=True)
            found[name] = added, _error(*both)
        return found

    def _padding(self, feed: Feed) -> Padding:
        graph = self._source.model.graph
        return Padding.of(feed, of_tokens(graph.inputs, graph.outputs))

    def _of_these(self, feed: Feed, layers: Sequence[str]) -> str | None:
        """Pick the layer whose weight lost most, if it ran, or None.

        The `layers` are some that cannot be told apart.
        """
        if len(layers) == 1:
            return layers[0]
        known = [
            (o.sqnr_db, o.layer.name)
            for o in self._outcomes
            if o.sqnr_db is not None and o.layer.name in layers
        ]
        if any(o.layer.scope for o in self._outcomes):
            with suppress(Exception):  # this only improves a message that is shown in any case
                ran = layers_run(self._source, feed)
                known = [(sqnr, name) for sqnr, name in known if ran is None or name in ran]
        return min(known)[1] if known else None


class _Perturbed:
    """The float model, to whose values `at` something can be added."""

    def __init__(
        self, pair: ModelPair, at: Sequence[str], value: str, forced: Sequence[str], feed: Feed
    ) -> None:
        plain = ValueProbe(pair.floating(), [*at, *forced], FLOAT_LABEL).run(feed)
        model = pair.floating()
        names = make_inputs(model, forced, plain)
        fresh, zeros = Names(model), {}
        self._inputs: dict[str, str] = {}
        self._shown = names.get(value, value)
        for name in at:
            zero = np.zeros((), plain[name].dtype)
            result = _add_input(model, name, zero, fresh)
            if result is None:
                continue
            self._inputs[name], moved = result
            zeros[self._inputs[name]] = zero
            if name == self._shown:
                self._shown = moved
        self._feed = {**feed, **{new: plain[old] for old, new in names.items()}, **zeros}
        self._runner = ValueProbe(model, [self._shown], "the float model, changed,")

    def run(self, added: Values) -> npt.NDArray[Any]:
        """Return the value of a run with the arrays of `added`, by name, added where they go."""
        changes = {self._inputs[name]: array for name, array in added.items()}
        found = self._runner.run({**self._feed, **changes})
        shown = as_array(found[self._shown])
        return shown if isinstance(shown, np.ndarray) else np.zeros(0)


def _add_input(
    model: ir.Model, name: str, zero: npt.NDArray[Any], fresh: Names
) -> tuple[str, str] | None:
    """h becomes h + change for all that read it: the names of the change and of the sum."""
    graph = model.graph
    value = next((v for node in graph for v in node.outputs if v.name == name), None)
    producer = None if value is None else value.producer()
    if value is None or producer is None:
        return None
    change = input_like(fresh.values.new(f"{name}_change"), zero)
    change.shape = None
    total = ir.Value(name=fresh.values.new(f"{name}_changed"), type=value.type, shape=value.shape)
    value.replace_all_uses_with(total, replace_graph_outputs=True)
    add = ir.node("Add", [value, change], outputs=[total], name=fresh.nodes.new(f"{name}_add"))
    graph.insert_after(producer, add)
    graph.inputs.append(change)
    return change.name or "", total.name or ""


def _error(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the error of `b` where `a` is finite.

    The error is infinite where `b` is not finite there, or of another shape.
    """
    if a.shape != b.shape:
        return float("inf")
    where = np.isfinite(a)
    if not np.isfinite(b[where]).all():
        return float("inf")
    return relative_error(a[where], b[where])
