"""ONNX Runtime's own static quantization, of the layers that a recipe quantizes.

It is here for the comparison: the same layers, with the scales of activations found on calibration
inputs. Of the other operators only those are quantized that hand integers on, such as Relu: an
excluded layer then runs in float, from its inputs on. The quantizer has a process of its own, as it
prints, and changes the settings of `logging`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from octavo.core.form import Cpu, Form
from octavo.core.fresh_process import ChildError, call
from octavo.core.qparams import QType
from octavo.errors import ModelError
from octavo.graph.analysis.walk import opset_of
from octavo.graph.emit.emitter import Names
from octavo.onnx.constants import Constants
from octavo.onnx.custom_ops import libraries_in_force
from octavo.onnx.plan.inventory import inventory
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Origin, Source, load
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.run.sessions import Scratch
from octavo.onnx.write.save import ONE_FILE_LIMIT, Place, save
from octavo.recipe import Decision, Granularity, Kind, WeightScheme
from octavo.results.target import Feed

FIRST_PER_CHANNEL = 13  # the opset whose DequantizeLinear has scales along an axis
HANDING_ON = (
    *("Relu", "Clip", "LeakyRelu", "MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze"),
    *("Flatten", "Pad", "Slice", "Split", "Concat", "Resize"),
)
"""Operators that are quantized along with layers, as they add no error or hardly any."""


def quantize_static(
    origin: Origin,
    decisions: Sequence[Decision],
    calibration: Sequence[Feed],
    place: Scratch,
    form: Form,
) -> None:
    """Write the model to `place`, with integer layers as `decisions` say, all others float.

    Layers whose scheme keeps activations in float (blocks, float16) stay float, and so do those in
    subgraphs, which the quantizer does not enter. Raises ModelError with its reason where it fails.
    """
    source = load(origin)
    chosen = {d.layer.name: d for d in decisions if is_static(d)}
    with Scratch() as work:
        excluded = _write_named(source, chosen, work)
        weight = next(d.scheme.weight for d in chosen.values() if d.scheme.weight)
        try:
            call(
                run_quantizer,
                folder=work.folder,
                output=place.model,
                feeds=[dict(feed) for feed in calibration],
                qdq=form.qdq,
                per_channel=weight.granularity is Granularity.CHANNEL,
                reduce_range=weight.reduce_range,
                symmetric=weight.symmetric,
                unsigned=_is_unsigned(weight, form.cpu),
                ops=sorted({d.layer.op for d in chosen.values()}.union(HANDING_ON)),
                excluded=excluded,
                external=source.bytes > ONE_FILE_LIMIT,
                custom_ops=libraries_in_force(),
            )
        except ChildError as error:
            raise ModelError(
                f"{source.label}: ONNX Runtime's static quantizer fails: {error}. Dynamic "
                "quantization needs no calibration"
            ) from error


def copy_model(path: Path, place: Place) -> None:
    """Write the model at `path` to `place`, under its names. Raises OSError."""
    source = load(path)
    tensors = TensorStore(place.data if source.data_files else None)
    try:
        save(source.model, place, tensors, {})
    finally:
        tensors.close()


def is_static(decision: Decision) -> bool:
    """Tell whether the static quantizer has a form for what is decided."""
    scheme, kind = decision.scheme, decision.layer.kind
    integer = scheme.weight is not None and scheme.weight.qtype.is_integer
    return integer and (scheme.activation is not None or kind is Kind.EMBEDDING)


def _is_unsigned(weight: WeightScheme, cpu: Cpu) -> bool:
    return weight.qtype is QType.UINT8 or cpu is Cpu.ANY


def _write_named(source: Source, chosen: dict[str, Any], work: Scratch) -> list[str]:
    """Write the float model with a name for each node; return the names that stay float."""
    normalize.normalize(source.model, source.label, FIRST_PER_CHANNEL)
    names = Names(source.model)
    excluded = []
    for site in inventory(source.model, Constants(opset_of(source.model))):
        if not site.node.name:
            site.node.name = names.nodes.new(site.node.op_type)
        if site.layer.name not in chosen:
            excluded.append(site.node.name)
    tensors = TensorStore(work.data if source.bytes > ONE_FILE_LIMIT else None)
    try:
        save(source.model, work, tensors, {})
    finally:
        tensors.close()
    return excluded


# docs/notes/onnxruntime.md: "Static quantization takes the same layers"
def run_quantizer(
    folder: Path,
    output: Path,
    feeds: list[Feed],
    qdq: bool,
    per_channel: bool,
    reduce_range: bool,
    symmetric: bool,
    unsigned: bool,
    ops: list[str],
    excluded: list[str],
    external: bool,
    custom_ops: list[str],
) -> None:
    """Infer shapes as ONNX Runtime advises, then quantize, in the fresh process.

    Its graph optimization is left out: it renames and merges nodes, so that they could not be
    excluded by name.
    """
    from onnxruntime import quantization as q
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
    from onnxruntime.quantization.shape_inference import quant_pre_process

    _register_always(custom_ops)
    model, inferred = folder / "model.onnx", folder / "inferred.onnx"
    try:
        quant_pre_process(
            model,
            inferred,
            skip_optimization=True,
            skip_symbolic_shape=True,
            save_as_external_data=external,
        )
    except Exception:  # noqa: BLE001 - shapes are a help to the quantizer, no more
        inferred = model
    known = QDQRegistry if qdq else QLinearOpsRegistry
    q.quantize_static(
        inferred,
        output,
        _Reader(iter(feeds)),
        quant_format=q.QuantFormat.QDQ if qdq else q.QuantFormat.QOperator,
        op_types_to_quantize=[op for op in ops if op in known],
        per_channel=per_channel,
        reduce_range=reduce_range,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QUInt8 if unsigned else q.QuantType.QInt8,
        nodes_to_exclude=excluded,
        use_external_data_format=external,
        extra_options={"WeightSymmetric": symmetric},
    )


def _register_always(libraries: list[str]) -> None:
    """Register `libraries` with every new SessionOptions, as the quantizer makes its own.

    This process has no other work.
    """
    import onnxruntime as ort

    class WithOperators(ort.SessionOptions):  # type: ignore[misc]
        """Session options that have the operators from the start."""

        def __init__(self) -> None:
            super().__init__()
            for library in libraries:
                self.register_custom_ops_library(library)

    if libraries:
        ort.SessionOptions = WithOperators


class _Reader:
    """What ONNX Runtime calls a CalibrationDataReader: one feed a call, then None."""

    def __init__(self, feeds: Iterator[Feed]) -> None:
        self._feeds = feeds

    def get_next(self) -> Feed | None:
        """Return the next feed."""
        return next(self._feeds, None)
