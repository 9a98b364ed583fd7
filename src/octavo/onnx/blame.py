"""Finds the layer at which a quantized model and the float one part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from octavo.core.metrics import relative_error
from octavo.graph.native import DOMAIN
from octavo.graph.walk import opset_of
from octavo.onnx import normalize
from octavo.onnx.comparing.values import holders, next_shared, shared_values
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import open_session
from octavo.onnx.inputs import Feed
from octavo.onnx.inventory import inventory
from octavo.onnx.load import Source, load
from octavo.onnx.reach import layers_run
from octavo.onnx.save import self_contained
from octavo.recipe import LayerOutcome


class Blame:
    """Runs both models with every quantized layer's output in view."""

    def __init__(self, source: Source, quantized: Path, outcomes: Sequence[LayerOutcome]) -> None:
        self._source, self._quantized = source, quantized
        self._outcomes = [o for o in outcomes if o.quantized]
        self.suspects = len(self._outcomes)

    def layer(self, feed: Feed) -> str | None:
        """The layer whose output adds the largest error to what it was fed, or None.

        Where the layers' outputs cannot be had (in subgraphs, above 2 GB): the one whose weight
        lost most, of those that ran.
        """
        try:
            steps = self._steps(feed)
        except Exception:  # noqa: BLE001 - this only improves a message that is shown in any case
            return self._worst_weight(feed)
        previous, found, jump = 0.0, None, 0.0
        for name, error in steps:
            if error - previous > jump:
                found, jump = name, error - previous
            previous = max(previous, error)
        return found or self._worst_weight(feed)

    def _worst_weight(self, feed: Feed) -> str | None:
        known = [(o.sqnr_db, o.layer.name) for o in self._outcomes if o.sqnr_db is not None]
        if any(o.layer.scope for o in self._outcomes):
            with suppress(Exception):  # as above
                ran = layers_run(self._source, feed)
                known = [(sqnr, name) for sqnr, name in known if ran is None or name in ran]
        return min(known)[1] if known else None

    def _steps(self, feed: Feed) -> list[tuple[str, float]]:
        """(layer, error of its output), in the order in which layers run."""
        outputs = self._layer_outputs()
        theirs = _run(self._source.origin, list(outputs), feed)
        ours = _run(self._quantized, list(outputs), feed)
        return [
            (layer, _error(theirs[name], ours[name]))
            for name, layer in outputs.items()
            if name in theirs and name in ours
        ]

    def _layer_outputs(self) -> dict[str, str]:
        """The layer that shows first at each value that both main graphs have."""
        quantized = {o.layer.name for o in self._outcomes}
        model = load(self._source.origin).model
        normalize.normalize(model, self._source.label, normalize.OLDEST)
        shared = shared_values(model, load(self._quantized).model)
        held_by, found = holders(model.graph), dict[str, str]()
        for site in inventory(model, Constants(opset_of(model))):
            if site.layer.name in quantized and not site.layer.scope:
                for name in next_shared(site.node, shared, held_by):
                    found.setdefault(name, site.layer.name)
        return found


def _run(origin: Path | onnx.ModelProto, names: Sequence[str], feed: Feed) -> dict[str, Any]:
    """Runs a model with more of its values as outputs."""
    model = load(origin).model
    normalize.normalize(model, "", normalize.OLDEST)
    proto = self_contained(model)
    made = {o for node in proto.graph.node for o in node.output}
    present = {o.name for o in proto.graph.output}
    wanted = [n for n in names if n in made]
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted if n not in present)
    runner = open_session(proto.SerializeToString(), native=DOMAIN in model.opset_imports)
    return dict(zip(wanted, runner.run(wanted, feed), strict=True))


def _error(a: Any, b: Any) -> float:
    """Of `b` where `a` is finite; infinite where `b` is not finite there."""
    where = np.isfinite(a)
    if not np.isfinite(b[where]).all():
        return float("inf")
    return relative_error(a[where], b[where])
