"""Where a convolution stands in its network: some places are float by default.

    input -> Conv -> ...                the first: no layer with weights lies before it
    ... -> Conv -> output               the last: no convolution that would be int8 comes after it
    depthwise Conv -> ... -> 1x1 Conv   the second half of a depthwise-separable convolution
    mean of an image -> 1x1 Conv        the gate of a squeeze-and-excitation block
    Conv -> ConvTranspose -> signal     what makes a raw signal, as speech synthesis does

Quantization as it is practised leaves the first and the last convolution float: what the first gets
wrong is in everything after it, and nothing evens out what the last gets wrong. An image has one
scale, and depthwise filters give each channel a range of its own, so that one scale is least fit
for what they make. On DNSMOS, whose first convolutions are a Fourier transform of the signal, the
mean error of the scores falls from 0.155 to 0.012; on PP-OCRv4's text detector the error of the
output from 7e-4 to 1e-4 (measured once, while developing).

Where linear layers outnumber convolutions by far (`are_stem`), none is the last: the strided
convolutions before an audio model's transformer are int8, but for the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from octavo.graph.analysis.walk import bodies_of
from octavo.onnx.operators.reader import attribute_int
from octavo.onnx.plan.inventory import Site
from octavo.recipe import Kind
from octavo.recipe.convolutions import Place, are_stem

_ASK = "ask for it with --ops Conv or a rule of the recipe"
FIRST, LAST, SEPARABLE, GATE, SIGNAL = (place.reason(_ASK) for place in Place)
POOLS = frozenset(("GlobalAveragePool", "GlobalMaxPool", "ReduceMean"))
WEIGHTED = frozenset(Kind) - {Kind.ACTIVATION_MATMUL, Kind.OTHER}
CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))


@dataclass(frozen=True)
class _Before:
    """What lies before a value: a layer with weights, a convolution that would be int8.

    `depthwise`: a depthwise one lies before it, and no other layer between;
    `pooled`: it follows from means of images alone; `signal`: a convolution transposed over time
    lies before it.
    """

    weights: bool = False
    conv: bool = False
    depthwise: bool = False
    pooled: bool = False
    signal: bool = False


# docs/notes/native_target.md: "Convolutions are int8 where they win"
def float_places(
    graph: ir.Graph, sites: Sequence[Site], wanted: Sequence[ir.Node]
) -> dict[ir.Node, str]:
    """Return those of the convolutions `wanted` that should stay float, each with the reason.

    `wanted` are those in which integers win; only among them is there a last one.
    """
    before = _Upstream(sites, wanted).of(graph)
    signals = [node for node in before if _is_transposed_over_time(node)]
    into_signal = _Downstream(signals).of(graph) if signals else set()
    stem = _are_stem(sites)
    reasons: dict[ir.Node, str] = {}
    for node in wanted:
        found = before.get(node, _Before(weights=True))
        if not found.weights:
            reasons[node] = FIRST
        elif found.signal or node in into_signal:
            reasons[node] = SIGNAL
        elif found.pooled:
            reasons[node] = GATE
        elif found.depthwise and _is_pointwise(node, sites):
            reasons[node] = SEPARABLE
    if stem:
        return reasons
    after = _Downstream(wanted).of(graph)
    for node in wanted:
        # Where there is only one, it is what integers are for: in a network of two convolutions
        # and linear layers, whose first is too small, nothing else would gain.
        if node not in reasons and node not in after and before.get(node, _Before()).conv:
            reasons[node] = LAST
    return reasons


def _are_stem(sites: Sequence[Site]) -> bool:
    kinds = [site.layer.kind for site in sites]
    convolutions = sum(site.node.op_type in CONVOLUTIONS for site in sites)
    return are_stem(convolutions, kinds.count(Kind.LINEAR) + kinds.count(Kind.ATTENTION))


def _is_pointwise(node: ir.Node, sites: Sequence[Site]) -> bool:
    shape = next(s.layer.weights[0][1] for s in sites if s.node is node)
    return all(d == 1 for d in shape[2:]) and attribute_int(node, "group", 1) == 1


def _is_transposed_over_time(node: ir.Node) -> bool:
    w = node.inputs[1] if node.op_type == "ConvTranspose" else None
    return w is not None and w.shape is not None and len(w.shape) == 3


class _Upstream:
    """One walk along the graph, subgraphs included."""

    def __init__(self, sites: Sequence[Site], wanted: Iterable[ir.Node]) -> None:
        self._wanted = frozenset(wanted)
        self._sites = {s.node: s for s in sites if s.layer.kind in WEIGHTED}
        self._of_value: dict[ir.Value, _Before] = {}
        self._of_node: dict[ir.Node, _Before] = {}

    def of(self, graph: ir.Graph) -> dict[ir.Node, _Before]:
        """Return what lies before each node of `graph`."""
        self._of_value.update(dict.fromkeys(graph.inputs, _Before()))
        self._walk(graph)
        return self._of_node

    def _walk(self, graph: ir.Graph) -> None:
        for node in graph:
            before = self._joined(node.inputs)
            for body in bodies_of(node):
                self._of_value.update(dict.fromkeys(body.inputs, before))
                self._walk(body)
            self._of_node[node] = before
            inner = [before, *(self._joined(body.outputs) for body in bodies_of(node))]
            after = self._behind(node, _join(inner))
            if node.inputs or bodies_of(node):
                self._of_value.update(dict.fromkeys(node.outputs, after))

    def _joined(self, values: Iterable[ir.Value | None]) -> _Before:
        """Constants have nothing before them, and do not count."""
        return _join([self._of_value[v] for v in values if v in self._of_value])

    def _behind(self, node: ir.Node, before: _Before) -> _Before:
        site = self._sites.get(node)
        if site is None and node.op_type not in CONVOLUTIONS:
            return replace(before, pooled=before.pooled or node.op_type in POOLS)
        conv = node.op_type in CONVOLUTIONS
        group = attribute_int(node, "group", 1)
        thin = conv and site is not None and site.layer.weights[0][1][1] == 1 and group > 1
        signal = before.signal or _is_transposed_over_time(node)
        follows = before.conv or node in self._wanted
        return _Before(True, follows, thin, before.pooled and conv, signal)


def _join(found: Sequence[_Before]) -> _Before:
    return _Before(
        any(b.weights for b in found),
        any(b.conv for b in found),
        any(b.depthwise for b in found),
        bool(found) and all(b.pooled for b in found),
        any(b.signal for b in found),
    )


class _Downstream:
    """One walk against the graph: which nodes have one of `targets` after them."""

    def __init__(self, targets: Iterable[ir.Node]) -> None:
        self._targets = frozenset(targets)
        self._found: set[ir.Node] = set()

    def of(self, graph: ir.Graph) -> set[ir.Node]:
        """Return all nodes with a target after them."""
        self._walk(graph, followed=False)
        return self._found

    def _walk(self, graph: ir.Graph, *, followed: bool) -> None:
        """Collect the nodes of `graph` with a target after them.

        `followed`: a target comes after the outputs of the graph.
        """
        ends = set(graph.outputs) if followed else set()
        for node in reversed(graph):
            readers = [reader for v in node.outputs for reader, _ in v.uses()]
            if any(v in ends for v in node.outputs) or any(map(self._leads_on, readers)):
                self._found.add(node)
            for body in bodies_of(node):
                self._walk(body, followed=node in self._found)

    def _leads_on(self, reader: ir.Node) -> bool:
        return reader in self._targets or reader in self._found
