"""Which layers of branches and loop bodies a run comes to.

A comparison shows nothing of a layer in the branch that was not taken. ONNX Runtime's profiler
names every node that it runs, in bodies too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnxruntime as ort

from octavo.graph.walk import opset_of
from octavo.onnx import normalize
from octavo.onnx.constants import Constants
from octavo.onnx.inputs import Feed
from octavo.onnx.inventory import inventory
from octavo.onnx.load import Source, load
from octavo.onnx.save import self_contained
from octavo.recipe import LayerOutcome

_MARK, _RUN = "octavo_layer_", "_kernel_time"


class Reach:
    """Of the quantized layers of one model, those in bodies that no run has come to yet."""

    def __init__(self, source: Source, outcomes: Sequence[LayerOutcome]) -> None:
        self._source = source
        self.missing = [o.layer.name for o in outcomes if o.quantized and o.layer.scope]

    def ran(self, feed: Feed) -> None:
        """Takes those that a run on `feed` comes to out of `missing`.

        All where it cannot be told, as of a model above 2 GB.
        """
        if not self.missing:
            return
        try:
            done = layers_run(self._source, feed)
        except Exception:  # noqa: BLE001 - this only adds to what a comparison says
            self.missing = []
            return
        self.missing = [name for name in self.missing if name not in done]


def layers_run(source: Source, feed: Feed) -> set[str]:
    """The names of the layers, quantized or not, that a run of the float model comes to."""
    model = load(source.origin).model
    normalize.normalize(model, source.label, normalize.OLDEST)
    sites = inventory(model, Constants(opset_of(model)))
    for i, site in enumerate(sites):
        site.node.name = f"{_MARK}{i}"
    with TemporaryDirectory(prefix="octavo-reach-") as folder:
        events = _profile(self_contained(model).SerializeToString(), feed, Path(folder))
    names = {e["name"].removesuffix(_RUN) for e in events if e["name"].endswith(_RUN)}
    return {s.layer.name for i, s in enumerate(sites) if f"{_MARK}{i}" in names}


def _profile(model: bytes, feed: Feed, folder: Path) -> list[dict[str, str]]:
    """What ONNX Runtime noted of a run, without optimizations, which give nodes other names."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "run")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, feed)
    found: list[dict[str, str]] = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return found
