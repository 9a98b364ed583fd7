"""`octavo.onnx.compare`: a quantized file beside the float model, output by output and layer by
layer.

    float model        x -> layer -> y -> layer -> z     its values at every layer
    as it runs         x -> layer -> y'-> layer -> z'    errors accumulated
    each layer alone   x -> layer -> y'   y -> layer -> z'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from octavo.core.masked_rows import Padding, of_tokens
from octavo.core.progress import Progress, quiet, says_progress
from octavo.errors import AlreadyQuantizedError, InputDataError, ModelError, brief
from octavo.files.lookup import refuse_no_path
from octavo.graph.analysis.walk import opset_of
from octavo.ir import DOMAIN
from octavo.onnx.comparing.pairing import LayerPairing, pair_up
from octavo.onnx.comparing.probes import LayerProbe, ValueProbe
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import CustomOps, Libraries
from octavo.onnx.inputs import CheckInputs, Feed, read_inputs
from octavo.onnx.plan.inventory import Site
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Source, load
from octavo.onnx.read.map_types import as_array
from octavo.onnx.run.inputs import random_feeds
from octavo.onnx.run.sessions import open_session
from octavo.recipe import Kind
from octavo.results.accumulate import LayerErrors, Output
from octavo.results.comparison import Comparison, LayerDifference, OutputDifference, worst_first

_NO_PRODUCT = frozenset({Kind.EMBEDDING, Kind.OTHER})
"""Kinds that look rows up, or of which nobody knows what they multiply."""
_SAME = frozenset("Identity Cast Reshape Squeeze Unsqueeze Transpose Slice Gather Flatten".split())
_VECTORS = frozenset(
    "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization RMSNormalization "
    "LpNormalization Tanh".split()
)
"""What hidden states and embeddings come out of."""


@says_progress
def compare(
    float_model: str | Path,
    quantized_model: str | Path,
    inputs: CheckInputs | None = None,
    *,
    sess_options: ort.SessionOptions | None = None,
    custom_ops: Libraries | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run both files on the same inputs and say how far apart they are, and where.

    Args:
        float_model: the file that the quantized one was made from.
        quantized_model: of either target; or from ONNX Runtime's quantize_dynamic. Its numbers are
            those of this file: nothing is quantized here.
        inputs: a .npz or .jsonl file, a mapping of input names to arrays, or a list of mappings;
            made up by default.
        sess_options: as of `quantize_dynamic`, for operators of other libraries.
        custom_ops: as of `quantize_dynamic`.
        progress: as of `quantize_dynamic`.

    Raises:
        ModelError: a file is missing or not a model; they do not belong together; the float model
            is quantized already (AlreadyQuantizedError), or the other is not.
        InputDataError: the inputs do not fit, or none could be made up that the model accepts.
    """
    for name, path in (("float_model", float_model), ("quantized_model", quantized_model)):
        refuse_no_path(path, name)
    say = progress or quiet
    say("reading", 0, 0)
    floating, quantized = _read(float_model), _read(quantized_model)
    _refuse_swapped(floating)
    pairing = pair_up(floating, quantized)
    with CustomOps.of(custom_ops, sess_options).in_force():
        found = _outputs(Path(float_model), Path(quantized_model), inputs, say)
        errors = _errors(Path(float_model), Path(quantized_model), pairing, found, say)
    return Comparison(
        float_model=str(float_model),
        quantized_model=str(quantized_model),
        target="native" if DOMAIN in quantized.model.opset_imports else "portable",
        inputs="made up" if inputs is None else "given",
        runs=len(found.feeds),
        outputs=found.outputs,
        layers=worst_first(_layers(floating, pairing, errors)),
        left_float=pairing.left_float,
        padding=found.left_out,
    )


def compare_outputs(
    float_model: str | Path,
    quantized_model: str | Path,
    inputs: CheckInputs | None = None,
    *,
    progress: Progress = quiet,
) -> Comparison:
    """Compare outputs as `compare` does, without the layers, in a fraction of the time."""
    found = _outputs(Path(float_model), Path(quantized_model), inputs, progress)
    return Comparison(
        float_model=str(float_model),
        quantized_model=str(quantized_model),
        target="portable",
        inputs="made up" if inputs is None else "given",
        runs=len(found.feeds),
        outputs=found.outputs,
        layers=(),
        left_float=0,
        padding=found.left_out,
    )


@dataclass(frozen=True)
class _Compared:
    """The feeds, the padding in each, how outputs differ on them, and the rows left out there."""

    feeds: Sequence[Feed]
    paddings: Sequence[Padding]
    outputs: tuple[OutputDifference, ...]
    left_out: int


def _read(path: str | Path) -> Source:
    """Read the model, its functions inlined as conversion has it. The file is not changed."""
    source = load(path)
    normalize.normalize(source.model, source.label, normalize.OLDEST)
    return source


def _refuse_swapped(floating: Source) -> None:
    try:
        normalize.refuse_quantized(floating.model, floating.label)
    except AlreadyQuantizedError as error:
        raise AlreadyQuantizedError(
            f"{floating.label} holds quantized layers; the float model comes first, then the "
            "quantized one: octavo compare FLOAT INT8"
        ) from error


def _outputs(
    float_path: Path, quantized_path: Path, inputs: CheckInputs | None, progress: Progress
) -> _Compared:
    """Return how the outputs of the files differ as users run them."""
    theirs, source = open_session(float_path, None), load(float_path)
    if inputs is None:
        feeds = random_feeds(source, theirs, {}, 0, give="some (inputs, --inputs DATA)")
    else:
        feeds = read_inputs(inputs, source.model.graph)
    ours = open_session(quantized_path, None)
    names = [o.name for o in theirs.get_outputs()]
    scores = {v.name: holds_scores(v) for v in source.model.graph.outputs}
    columns = {name: Output(name, scores.get(name, True)) for name in names}
    known = of_tokens(theirs.get_inputs(), theirs.get_outputs())
    paddings = [Padding.of(feed, known) for feed in feeds]
    for i, (feed, padding) in enumerate(zip(feeds, paddings, strict=True)):
        progress("comparing outputs", i, len(feeds))
        try:
            expected = theirs.run(names, feed)
        except Exception as error:
            raise InputDataError(
                f"{float_path} rejects the inputs that were given: {brief(error)}; give inputs on "
                "which it runs"
            ) from error
        try:
            got = ours.run(names, feed)
        except Exception as error:
            raise ModelError(
                f"{quantized_path} fails on inputs that {float_path} accepts: {brief(error)}; give "
                "the float model that it was made from"
            ) from error
        for name, a, b in zip(names, expected, got, strict=True):
            columns[name].add(as_array(a), as_array(b), padding)
    outputs = tuple(column.found() for column in columns.values())
    return _Compared(feeds, paddings, outputs, sum(padding.rows for padding in paddings))


def _errors(
    float_path: Path,
    quantized_path: Path,
    pairing: LayerPairing,
    found: _Compared,
    progress: Progress,
) -> list[LayerErrors]:
    """Run both models and return the errors of every quantized layer."""
    read = [_multiplied_activations(pair.site) for pair in pairing.pairs]
    at = [name for pair in pairing.pairs for name in pair.at]
    ours = ValueProbe(_read(quantized_path).model, at, str(quantized_path))
    cut = LayerProbe(_read(quantized_path).model, at, pairing.shared, str(quantized_path))
    seen = [*at, *cut.needs, *chain.from_iterable(read)]
    theirs = ValueProbe(_read(float_path).model, seen, str(float_path))
    errors = [LayerErrors() for _ in pairing.pairs]
    for i, (feed, padding) in enumerate(zip(found.feeds, found.paddings, strict=True)):
        progress("comparing layers", i, len(found.feeds))
        expected = theirs.run(feed)
        accumulated, alone = ours.run(feed), cut.run(expected)
        for pair, names, error in zip(pairing.pairs, read, errors, strict=True):
            for name in names:
                if name in expected:  # an initializer is no activation
                    error.multiplied(name, expected[name], padding)
            for name in pair.at:
                error.alone(expected[name], alone[name], padding)
                error.accumulated(expected[name], accumulated[name], padding)
    return errors


def _layers(
    floating: Source, pairing: LayerPairing, errors: Sequence[LayerErrors]
) -> list[LayerDifference]:
    """Return every quantized layer's difference, in the order in which the layers run."""
    constants = Constants(opset_of(floating.model))
    layers = []
    for pair, error in zip(pairing.pairs, errors, strict=True):
        for array in _float_weights(pair.site, constants):
            error.weights(array)
        layer = pair.site.layer
        layers.append(error.found(layer.name, layer.kind.value, layer.op, pair.at, pair.notes))
    return layers


def _multiplied_activations(site: Site) -> tuple[str, ...]:
    """Names of what the node multiplies with its weights, or of both operands without weights.

    Empty for a lookup, an operator without a rule, and a layer in a subgraph: what flows there is
    not seen from outside.
    """
    if site.layer.kind in _NO_PRODUCT or site.layer.scope:
        return ()
    # Every operator that has a rule takes activations and matrix first, in either order.
    operands = (v for v in site.node.inputs[:2] if v is not None and v not in site.weights)
    return tuple(dict.fromkeys(v.name for v in operands if v.name))


def _float_weights(site: Site, constants: Constants) -> Iterator[npt.NDArray[Any]]:
    """Yield the layer's weights one by one, as they are stored: perhaps transposed."""
    for weight in site.weights:
        leaf = constants.root(weight).leaf
        yield constants.array(leaf)
        constants.release(leaf)


def holds_scores(value: ir.Value) -> bool:
    """Tell whether an output may hold scores: False where the graph says that it holds vectors."""
    node = value.producer()
    while node is not None and node.op_type in _SAME and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is None or not (node.op_type in _VECTORS or _normalizes(node))


def _normalizes(node: ir.Node) -> bool:
    """Tell whether `node` ends a layer norm in parts: Add(Mul(Div(.., Sqrt(..)), scale), bias)."""
    for op in ("Add", "Mul", "Div"):
        if node.op_type != op:
            return False
        if op == "Div":
            root = None if node.inputs[1] is None else node.inputs[1].producer()
            return root is not None and root.op_type == "Sqrt"
        makers = [v.producer() for v in node.inputs if v is not None]
        deeper = [m for m in makers if m is not None]
        if len(deeper) != 1:
            return False
        node = deeper[0]
    return False
