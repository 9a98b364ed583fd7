"""Brings a model into the shape that the rules read: known opset, no local functions, no Erfc.

    Erfc(x)           ->  Sub(1, Erf(x))
    Erfc(Mul(-x, c))  ->  Add(1, Erf(Mul(x, c)))       Erf is odd

ONNX has no `Erfc`. tf2onnx 1.17 hands TensorFlow's operator on as it is; Keras' exact GELU,
x/2 erfc(-x sqrt(1/2)), has one. The second form is how other exporters write GELU, so that it is
recognized.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeGuard

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnxscript import version_converter

from octavo.errors import AlreadyQuantizedError, ModelError, brief, listed
from octavo.graph.analysis.walk import graphs_of, opset_of, runs_in_order
from octavo.graph.emit.emitter import Emitter, Names
from octavo.graph.emit.sweeper import Sweeper
from octavo.ir import DOMAIN
from octavo.onnx.read import map_types
from octavo.onnx.read.inline_functions import inline_functions
from octavo.onnx.read.load import Origin, load
from octavo.onnx.read.old_operators import first_not_raised, keep_resizing, refuse_changed
from octavo.onnx.read.tensor_store import self_contained

_STANDARD = ("", "ai.onnx")
_SAME_TYPE = frozenset(["Mul", "Neg", "Add", "Sub", "Div", "MatMul", "Gemm", "Conv", "Reshape"])
_MOST_STEPS = 64
OLDEST = 7
OPENED_BY_ALL = 23  # opset, by every ONNX Runtime that Octavo installs with
FIRST_WITH_QUANTIZE = 10  # QuantizeLinear, MatMulInteger
FIRST_WITH_DYNAMIC = 11  # DynamicQuantizeLinear
FIRST_WITH_PLAIN_INITIALIZERS = 4  # the IR version

CONVERT = (
    "; its integers become Octavo's with octavo.onnx.convert_target(.., to='native'), octavo "
    "convert-target --to native"
)
QUANTIZED_OPS = frozenset(
    "DynamicQuantizeLinear QuantizeLinear DequantizeLinear MatMulInteger ConvInteger QLinearMatMul "
    "QLinearConv MatMulIntegerToFloat DynamicQuantizeMatMul DynamicQuantizeLSTM QAttention QGemm "
    "MatMulNBits GatherBlockQuantized QEmbedLayerNormalization QLinearAdd QLinearMul".split()
)


def normalize(model: ir.Model, label: str, needed: int) -> list[str]:
    """Inlines functions, orders nodes, raises the opset to `needed` if below; says what it did.

    Erfc is written out, as nothing could run it.
    """
    notes = []
    opset = opset_of(model)
    if opset < OLDEST:
        raise ModelError(
            f"{label} has opset {opset}; {OLDEST} to {newest_opset()} are supported. Export it "
            "again, or raise it with onnx.version_converter.convert_version"
        )
    if opset > OPENED_BY_ALL and not _opens(opset):
        raise ModelError(
            f"{label} has opset {opset}; {OLDEST} to {newest_opset()} are supported, the newest "
            f"that ONNX Runtime {ort.__version__} opens. Export it again with one of those, or "
            "install a newer ONNX Runtime"
        )
    if model.ir_version < FIRST_WITH_PLAIN_INITIALIZERS:
        notes += _raise_format(model)
    notes += inline_functions(
        model, label, newest_opset, lambda m, target: _raise_opset(m, label, opset_of(m), target)
    )
    opset = opset_of(model)
    if not runs_in_order(model):
        notes.append(_sort_nodes(model, label))
    read_constants_directly(model)
    _forget_negative_sizes(model)
    if opset < needed:
        notes.append(_raise_opset(model, label, opset, needed))
    if count := write_out_erfc(model):
        nodes = "nodes Erfc were" if count > 1 else "node Erfc was"
        notes.append(f"{count} {nodes} written as 1 - Erf: ONNX has no Erfc")
    return notes


def _forget_negative_sizes(model: ir.Model) -> None:
    """Make sizes below 0 unknown: so exporters mean them, and ONNX Runtime takes them."""
    for graph in graphs_of(model):
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
            sizes = [] if value.shape is None else list(value.shape)
            if any(isinstance(size, int) and size < 0 for size in sizes):
                known = [None if isinstance(size, int) and size < 0 else size for size in sizes]
                value.shape = ir.Shape(known)


def newest_opset(op_type: str = "Identity") -> int:
    """Return the newest opset in which the installed ONNX Runtime has an operator of one input."""
    opsets = itertools.count(OPENED_BY_ALL)
    return next(opset for opset in opsets if not _opens(opset + 1, op_type))


def refuse_missing_operators(model: ir.Model) -> None:
    """Raise ModelError where ONNX Runtime opens the opset, but has no QuantizeLinear in it."""
    opset, needed = opset_of(model), ("QuantizeLinear", "DequantizeLinear")
    if opset <= OPENED_BY_ALL or _opens(opset, needed[0]):
        return
    if any(n.op_type in needed and n.domain == "" for graph in graphs_of(model) for n in graph):
        raise ModelError(
            f"the model has opset {opset}, in which ONNX Runtime {ort.__version__} has no "
            f"{needed[0]}. Export it again with opset {newest_opset(needed[0])} at most, or take "
            "target native"
        )


@cache
def _opens(opset: int, op_type: str = "Identity") -> bool:
    """Tell whether ONNX Runtime opens a model of that opset and operator; it says so nowhere."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    y = onnx.helper.make_empty_tensor_value_info("y")
    given = ["x", *(["s"] if op_type == "QuantizeLinear" else [])]
    scale = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [], [1.0])
    node = onnx.helper.make_node(op_type, given, ["y"])
    graph = onnx.helper.make_graph([node], "", [x], [y], [scale] * (len(given) - 1))
    imports = [onnx.helper.make_opsetid("", opset)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  # ONNX Runtime raises whatever its C++ side throws
        return False
    return True


def load_normalized(origin: Origin) -> ir.Model:
    """Read the model at `origin` afresh and normalize it, its opset as it is."""
    source = load(origin)
    normalize(source.model, source.label, OLDEST)
    return source.model


def _raise_opset(model: ir.Model, label: str, opset: int, needed: int) -> str:
    refuse_changed(model, label, needed)
    cause: Exception | None = None
    try:
        if map_types.attached_types(model):
            _raise_with_maps(model, needed)
        else:
            with quiet_logger(version_converter.__name__):
                version_converter.convert_version(model, target_version=needed, fallback=True)
    except Exception as error:  # noqa: BLE001 - the converter raises what its C++ side throws
        cause = error
    if cause is not None or opset_of(model) < needed:
        why = "it" if cause is None else f"it: {brief(cause)}"
        raise ModelError(
            f"{label} has opset {opset} and the conversion needs {needed}, to which ONNX's version "
            f"converter cannot raise {first_not_raised(model, needed) or why}. Export the model "
            "again with a newer opset"
        ) from cause
    keep_resizing(model, opset)
    return f"opset raised from {opset} to {opset_of(model)}"


def _raise_with_maps(model: ir.Model, needed: int) -> None:
    """Raise the opset with ONNX's converter, whose leftover types onnx_ir cannot read."""
    types = map_types.attached_types(model)
    raised = onnx.version_converter.convert_version(self_contained(model), needed)
    map_types.detach_types(raised)
    model.graph = ir.serde.deserialize_model(raised).graph
    map_types.attach_types(model, types)


@contextmanager
def quiet_logger(name: str, level: int = logging.ERROR) -> Iterator[None]:
    """Hide what a logger says below `level`, such as which of two converters it uses."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def _sort_nodes(model: ir.Model, label: str) -> str:
    """ONNX Runtime takes nodes in any order; what is inserted beside them has to know theirs."""
    try:
        model.graph.sort()
    except ValueError as error:
        raise ModelError(
            f"{label}: a node reads what is made of its own output, so that there is no order in "
            "which the nodes run; export the model again"
        ) from error
    return "nodes were put in the order in which they run"


def _raise_format(model: ir.Model) -> list[str]:
    """Below IR version 4 initializers must be graph inputs, and are constants all the same."""
    inputs = model.graph.inputs
    named = sorted(v.name or "" for v in inputs if v.is_initializer())
    inputs[:] = [v for v in inputs if not v.is_initializer()]
    old, model.ir_version = model.ir_version, FIRST_WITH_PLAIN_INITIALIZERS
    return [
        f"file format (IR version) raised from {old} to {model.ir_version}, where initializers "
        f"are no graph inputs: {listed(named)}"
    ]


def read_constants_directly(model: ir.Model) -> None:
    """Take out Identity nodes behind stored tensors: their readers read the tensor itself.

    So PyTorch's exporter without dynamo writes tensors that are equal: biases of zeros, tied
    weights. Layers, groups and attentions are recognized by what their nodes read. A node whose
    output is the graph's stays.
    """
    for graph in graphs_of(model):
        for node in [n for n in graph if n.op_type == "Identity"]:
            if not _copies_a_constant(node):
                continue
            source, copy = node.inputs[0], node.outputs[0]
            for use in list(copy.uses()):
                use.node.replace_input_with(use.idx, source)
            if not copy.is_graph_output():
                graph.remove(node, safe=True)


def _copies_a_constant(node: ir.Node) -> bool:
    source = node.inputs[0]
    if source is None or node.domain not in _STANDARD:
        return False
    maker = source.producer()
    if maker is None:
        return source.is_initializer()
    return maker.op_type == "Constant" and maker.domain in _STANDARD


def refuse_quantized(model: ir.Model, label: str) -> None:
    """Raise AlreadyQuantizedError if the model holds quantized layers."""
    for graph in graphs_of(model):
        for node in graph:
            if node.op_type in QUANTIZED_OPS or node.domain == DOMAIN:
                ours = any(key.startswith("octavo.") for key in model.metadata_props)
                convert = CONVERT
                if ours or node.domain == DOMAIN:
                    other = "portable" if node.domain == DOMAIN else "native"
                    convert = f"; for target {other} convert it: octavo convert-target --to {other}"
                raise AlreadyQuantizedError(
                    f"{label} is quantized already: it holds {node.op_type} {node.name!r}. Start "
                    "from the float model, or ask to quantize only the rest "
                    f"(allow_quantized=True, octavo quantize --allow-quantized){convert}"
                )


def write_out_erfc(model: ir.Model) -> int:
    """Replace every Erfc node in `model` by 1 - Erf; return how many there were."""
    nodes = [node for graph in graphs_of(model) for node in graph if _is(node, "Erfc")]
    if nodes:
        emitter, sweeper = Emitter(model, Names(model), opset_of(model)), Sweeper(model)
        for node in nodes:
            _write_out(node, emitter, sweeper)
    return len(nodes)


def _write_out(node: ir.Node, e: Emitter, sweeper: Sweeper) -> None:
    argument, name = node.inputs[0], node.outputs[0].name or "erfc"
    assert argument is not None
    one = e.scalar(1, _dtype(argument))
    opposite = _opposite(argument, e, f"{name}_argument")
    erf = e.op("Erf", [argument if opposite is None else opposite], out=f"{name}_erf")
    new = e.op("Sub" if opposite is None else "Add", [one, erf], out=name)
    e.flush_before(node)
    sweeper.replace(node, [new])


def _opposite(argument: ir.Value, e: Emitter, name: str) -> ir.Value | None:
    """Return `-argument` where it is there already or one product away, else None."""
    maker = argument.producer()
    if _is(maker, "Neg"):
        return maker.inputs[0]
    if not _is(maker, "Mul"):
        return None
    for index, factor in enumerate(maker.inputs):
        negative = None if factor is None else factor.producer()
        if _is(negative, "Neg"):
            factors = list(maker.inputs)
            factors[index] = negative.inputs[0]
            return e.op("Mul", factors, out=name)
    return None


def _is(node: ir.Node | None, op_type: str) -> TypeGuard[ir.Node]:
    return node is not None and node.op_type == op_type and node.domain in _STANDARD


def _dtype(value: ir.Value) -> np.dtype[Any]:
    """Return the type of `value`, stated or by what it is computed from; float32 if unknown."""
    stack, seen = [value], 0
    while stack and seen < _MOST_STEPS:
        seen += 1
        found = stack.pop()
        tensor = found.const_value
        if tensor is not None or found.dtype is not None:
            dtype = found.dtype if tensor is None else tensor.dtype
            assert dtype is not None
            return dtype.numpy()
        maker = found.producer()
        if maker is not None and maker.op_type in _SAME_TYPE:
            stack += [v for v in maker.inputs[:2] if v is not None]
    return np.dtype(np.float32)
