"""Which layers in branches a run comes to.

A comparison shows nothing of a layer in the branch that was not taken. ONNX Runtime's profiler
names every node that it runs, in bodies too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import onnxruntime as ort

from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import open_session
from octavo.onnx.inputs import Feed
from octavo.onnx.plan.inventory import inventory
from octavo.onnx.read.load import Source
from octavo.onnx.read.normalize import load_normalized
from octavo.onnx.read.tensor_store import self_contained
from octavo.results.report import LayerOutcome

_MARK, _RUN = "octavo_layer_", "_kernel_time"
PROFILING_SECONDS = 10.0
"""What looking may take, however many inputs there are."""


class BranchCoverage:
    """Of the quantized layers of one model, those in branches that no run has come to yet.

    Models with loops are not looked at: each turn of a body would be noted.
    """

    def __init__(self, source: Source, outcomes: Sequence[LayerOutcome]) -> None:
        self.missing = [o.layer.name for o in outcomes if o.quantized and o.layer.scope]
        self.seconds = PROFILING_SECONDS
        self._marked: _MarkedModel | None = None
        if self.missing:
            try:
                self._marked = _MarkedModel(source)
            except Exception:  # noqa: BLE001 - as one above 2 GB
                self.missing = []
            if self._marked is not None and self._marked.has_loops:
                self.missing = []

    def ran(self, feeds: Sequence[Feed]) -> None:
        """Remove from `missing` the layers that runs on `feeds` reach, while there are seconds.

        All are removed where that cannot be told: coverage only adds to what a comparison says.
        """
        if not self.missing or self._marked is None or self.seconds <= 0:
            return
        started = perf_counter()
        try:
            done = self._marked.layers_run(feeds, self.seconds)
        except Exception:  # noqa: BLE001 - a disk that is full, a model that needs optimizations
            self.missing = []
            return
        self.seconds -= perf_counter() - started
        self.missing = [name for name in self.missing if name not in done]


class _MarkedModel:
    """The float model with layers that are called by their numbers, which no two share."""

    def __init__(self, source: Source) -> None:
        model = load_normalized(source.origin)
        self.has_loops = any(n.op_type in ("Loop", "Scan") for g in graphs_of(model) for n in g)
        sites = [] if self.has_loops else inventory(model, Constants(opset_of(model)))
        self._names = [site.layer.name for site in sites]
        for i, site in enumerate(sites):
            site.node.name = f"{_MARK}{i}"
        self._bytes = b"" if self.has_loops else self_contained(model).SerializeToString()

    def layers_run(self, feeds: Sequence[Feed], seconds: float) -> set[str]:
        """Return the layers, quantized or not, that runs reach; no run begins after `seconds`."""
        with TemporaryDirectory(prefix="octavo-coverage-") as folder:
            events = _profile(self._bytes, feeds, seconds, Path(folder))
        ran = {e["name"].removesuffix(_RUN) for e in events if e["name"].endswith(_RUN)}
        return {name for i, name in enumerate(self._names) if f"{_MARK}{i}" in ran}


def layers_run(source: Source, feed: Feed) -> set[str] | None:
    """Return the names of the layers that a run of the float model reaches; None with loops."""
    marked = _MarkedModel(source)
    return None if marked.has_loops else marked.layers_run([feed], PROFILING_SECONDS)


def _profile(
    model: bytes, feeds: Sequence[Feed], seconds: float, folder: Path
) -> list[dict[str, str]]:
    """Return ONNX Runtime's profile of runs, without optimizations, which rename nodes."""
    started = perf_counter()
    session = open_session(
        model,
        graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
        enable_profiling=True,
        profile_file_prefix=str(folder / "run"),
    )
    for feed in feeds:
        if perf_counter() - started > seconds:
            break
        session.run(None, feed)
    found: list[dict[str, str]] = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return found
