"""`convert_target`: a quantized file for the other target, without the float model."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

import onnx_ir as ir
import onnxruntime as ort

import octavo
from octavo.core.attention_type import METADATA, AttentionType
from octavo.core.form import Cpu, Form, Target
from octavo.core.progress import Progress, quiet, says_progress
from octavo.errors import (
    ModelError,
    NothingQuantizedError,
    OptionError,
    did_you_mean,
    listed,
)
from octavo.files.lookup import refuse_no_path
from octavo.files.staging import Staging
from octavo.graph.analysis.requirements import least_onnxruntime
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.graph.context import Context
from octavo.graph.lower.lowering import lower_operators
from octavo.graph.rewrite.attention_type import FLOAT32_ALONE
from octavo.ir import DOMAIN, OPERATORS
from octavo.onnx.check.accuracy_level import verified_at_level
from octavo.onnx.check.check_conversion import Restored, check_restored, is_affordable
from octavo.onnx.check.conversion import check_conversion
from octavo.onnx.constants import Constants
from octavo.onnx.convert import convert
from octavo.onnx.custom_ops import CustomOps, Libraries
from octavo.onnx.from_quantized import restore
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.inputs import Feed, read_inputs
from octavo.onnx.plan.kept_layers import (
    NAMES,
    decisions_to_keep,
    had_one_scale,
    stored_forms,
    with_forms,
)
from octavo.onnx.plan.left_quantized import AS_IT_WAS, left_quantized
from octavo.onnx.plan.prepare import survey_normalized
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Source, load
from octavo.onnx.read.stored_report import LAYERS
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import os_errors_explained, save
from octavo.recipe import Kind
from octavo.results.report import Conversion, LayerOutcome, Verification
from octavo.results.stored import outcomes_to_json

TARGETS = ("portable", "native")
CPUS = ("vnni", "any")
OURS = "octavo.target"
"""Metadata of files that Octavo wrote."""
PER_ROW = {
    False: "activations per row: the file had one scale for all rows",
    True: "activations per image: the file had one scale for all images",
}
"""What is said of layers, and of convolutions."""


@dataclass(frozen=True)
class _Turned:
    """What became of a model: layers by operator, notes, and what is known of each layer."""

    layers: Mapping[str, int]
    notes: tuple[str, ...]
    outcomes: tuple[LayerOutcome, ...] = ()


@says_progress
def convert_target(
    model_input: str | Path,
    model_output: str | Path,
    *,
    to: str,
    cpu: str | None = None,
    check_inputs: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    verify: bool = True,
    progress: Progress | None = None,
    sess_options: ort.SessionOptions | None = None,
    custom_ops: Libraries | None = None,
) -> Conversion:
    """Write a quantized model for the other target and return what became of it.

    Weights are the same integers with the same scales; nothing is quantized again. What the other
    target has no form for stays as it is, or is computed in float, with a note.

    Args:
        model_input: the quantized model, from Octavo or from ONNX Runtime's quantize_dynamic.
        model_output: path of the result; it appears whole or not at all. Weights go to a data
            file beside it if the source has them in one.
        to: "portable": nothing but stock ONNX Runtime operators. "native": Octavo's own, which
            `octavo.onnx.session` registers.
        cpu: for portable, "vnni" (the default: int8 weights) or "any" (uint8 weights around 128).
        check_inputs: inputs for the comparison of the two files, as of `quantize_dynamic`.
        verify: run both files and compare their outputs before the result is put in place.
        progress: as of `quantize_dynamic`.
        sess_options: as of `quantize_dynamic`, for operators of other libraries.
        custom_ops: as of `quantize_dynamic`.

    Raises:
        OctavoError: see `octavo.errors`; nothing is written then.
    """
    started = time.perf_counter()
    report_progress = progress or quiet
    _check_options(model_input, model_output, to, cpu, check_inputs is not None and not verify)
    operators = CustomOps.of(custom_ops, sess_options)
    report_progress("reading", 0, 1)
    source = load(Path(model_input))
    said = dict(source.model.metadata_props)
    _refuse(source, said, to)
    cpu = cpu or said.get("octavo.cpu", "vnni")
    if cpu not in CPUS:
        raise ModelError(
            f"{source.label} is damaged: its metadata says octavo.cpu is {short(cpu)}; get the "
            f"file again, or name the processor (--cpu): {' or '.join(CPUS)}"
        )
    feeds = None if check_inputs is None else read_inputs(check_inputs, source.model.graph)
    staging = Staging(model_output, source.files)
    with staging:
        with os_errors_explained(source, staging):
            turned = _turn(source, staging, to, cpu, report_progress)
        checked, level = Restored(Verification("skipped")), tuple[str, ...]()
        if verify:
            report_progress("verifying", 0, 1)
            with operators.in_force():
                checked, level = verified_at_level(
                    staging.model,
                    source,
                    feeds,
                    lambda: _check(source, staging.model, feeds, turned, ours=OURS in said),
                    lambda found: found.verification.error,
                )
        size = sum(p.stat().st_size for p in (staging.model, staging.data) if p.exists())
        staging.commit()
    return Conversion(
        source=source.label,
        output=str(staging.out),
        target=to,
        cpu=cpu,
        layers=turned.layers,
        model_bytes_before=source.bytes,
        model_bytes_after=size,
        opset=opset_of(source.model),
        min_onnxruntime=least_onnxruntime(source.model),
        verification=checked.verification,
        error_before=checked.error_before,
        against_weights=checked.against_weights,
        seconds=time.perf_counter() - started,
        notes=(*turned.notes, *level),
        outcomes=turned.outcomes,
    )


def _check(
    source: Source, converted: Path, feeds: list[Feed] | None, turned: _Turned, *, ours: bool
) -> Restored:
    """Check the converted file on `feeds`.

    A file of our own is compared with `source`: the activations of both are per row.
    """
    assert source.path is not None
    if turned.outcomes and not ours and is_affordable(source):
        return check_restored(source, converted, feeds, turned.outcomes)
    return Restored(check_conversion(source.path, converted, feeds))


def _check_options(
    model_input: object, model_output: object, to: str, cpu: str | None, unused_inputs: bool
) -> None:
    for name, path in (("model_input", model_input), ("model_output", model_output)):
        refuse_no_path(path, name)
    if to not in TARGETS:
        raise OptionError(f"to={to!r}.{did_you_mean(str(to), TARGETS)}")
    if cpu is not None and to == "native":
        raise OptionError(
            f"cpu={cpu!r} (--cpu) is for portable files, and native ones run on every processor "
            "alike: leave it out"
        )
    if cpu not in (None, *CPUS):
        raise OptionError(f"cpu={cpu!r}.{did_you_mean(str(cpu), CPUS)}")
    if unused_inputs:
        raise OptionError(
            "check_inputs (--inputs) are given and verify=False (--no-verify); leave one of them "
            "out"
        )


def _refuse(source: Source, said: Mapping[str, str], to: str) -> None:
    """Raise ModelError where `source` is of target `to` already, or not quantized."""
    ops = [(n.domain, n.op_type) for graph in graphs_of(source.model) for n in graph]
    native = any(domain == DOMAIN for domain, _ in ops)
    is_native = native or said.get("octavo.target") == "native"
    integer = any(op in normalize.QUANTIZED_OPS for _, op in ops)
    if not (is_native or integer or "octavo.target" in said):
        raise ModelError(
            f"{source.label} holds no quantized layers; quantize it first: octavo quantize "
            f"--target {to}"
        )
    if is_native == (to == "native"):
        other = "portable" if is_native else "native"
        raise ModelError(
            f"{source.label} is of target {to} already, so that there is nothing to convert; for "
            f"the other target: --to {other}"
        )


def _turn(source: Source, staging: Staging, to: str, cpu: str, progress: Progress) -> _Turned:
    """Convert and write into `staging`; nothing is in place yet."""
    model = source.model
    notes = normalize.normalize(model, source.label, normalize.FIRST_WITH_QUANTIZE)
    tensors = TensorStore(staging.data if source.data_files else None)
    try:
        progress("converting", 0, 1)
        attention = AttentionType.stated(model.metadata_props, METADATA)
        if to == "native":
            turned = _to_native(source, tensors, notes, progress, attention)
        else:
            lowered = Context(model, Constants(opset_of(model)), cpu=Cpu(cpu), store=tensors.put)
            lower_operators(lowered)
            lowered.finish()
            normalize.refuse_missing_operators(model)
            if attention is not AttentionType.FLOAT32:
                notes.append(FLOAT32_ALONE)
            turned = _Turned(dict(lowered.layers), (*notes, *lowered.notes()))
        progress("writing", 0, 1)
        save(model, staging, tensors, _metadata(model, to, cpu, turned.outcomes))
    finally:
        tensors.close()
    return turned


def _to_native(
    source: Source,
    tensors: TensorStore,
    notes: list[str],
    progress: Progress,
    attention: AttentionType,
) -> _Turned:
    """Convert `source` to target native by way of the float model that the file stands for."""
    model, ours = source.model, OURS in source.model.metadata_props
    restoring = RestoringContext(model, Constants(opset_of(model)))
    restore(restoring)
    found = survey_normalized(model, notes)
    decisions = decisions_to_keep(found.sites, found.constants, restoring.restored, ours=ours)
    forms = stored_forms(found.sites, found.constants)
    whole = had_one_scale(found.sites, restoring.restored)
    form = Form(Target.NATIVE, opset=found.opset)
    done = convert(
        model, found.sites, decisions, tensors, found.constants, form, progress, attention
    )
    left = left_quantized(model, found.constants)
    there = {o.layer.op for o in left}  # the inventory may know them too, as float layers
    others = with_forms(done.outcomes, forms)
    outcomes = (*(o for o in others if o.quantized or o.layer.op not in there), *left)
    layers = Counter(NAMES[o.layer.kind] for o in outcomes if o.quantized)
    if not layers or not any(n.domain == DOMAIN for graph in graphs_of(model) for n in graph):
        raise NothingQuantizedError(_nothing(source, outcomes))
    said = [*notes, *restoring.notes(), *done.notes, *_left(outcomes)]
    for is_conv, words in PER_ROW.items():
        kinds = {o.layer.name: o.layer.kind for o in outcomes if o.quantized}
        names = [n for n in whole if n in kinds and (kinds[n] is Kind.CONV) == is_conv]
        said += [f"{words}: {listed(names)}"] if names else []
    return _Turned(dict(layers), tuple(said), outcomes)


def _left(outcomes: Sequence[LayerOutcome]) -> Iterator[str]:
    """Yield a line for each reason why layers stay in the form that the file has them in."""
    left = [o for o in outcomes if o.scheme == AS_IT_WAS]
    for op, reason in dict.fromkeys(map(_why, left)):
        names = [o.layer.name for o in left if _why(o) == (op, reason)]
        yield f"{op} {reason}: {listed(names)}"


def _metadata(
    model: ir.Model, to: str, cpu: str, outcomes: Sequence[LayerOutcome]
) -> dict[str, str]:
    """Return the metadata to change; a file of another tool also gets its layers' outcomes."""
    told = {} if OURS in model.metadata_props else {LAYERS: outcomes_to_json(outcomes)}
    model.metadata_props.pop("octavo.operators", None)
    model.metadata_props.pop(LAYERS, None)  # they are held otherwise now
    model.metadata_props.setdefault("octavo.quant_format", "qoperator")
    operators = {"octavo.operators": OPERATORS} if DOMAIN in model.opset_imports else {}
    return (
        told
        | operators
        | {
            "octavo.version": octavo.__version__,
            "octavo.target": to,
            "octavo.cpu": cpu,
            "octavo.min_onnxruntime": least_onnxruntime(model),
        }
    )


def _nothing(source: Source, outcomes: Sequence[LayerOutcome]) -> str:
    reasons = [_why(o) for o in outcomes if o.scheme == AS_IT_WAS]
    reasons += [_why(o) for o in outcomes if not o.quantized and o.scheme != AS_IT_WAS and o.reason]
    said = [f"{n:,} {op}: {reason}" for (op, reason), n in Counter(reasons).items()]
    held = [o.layer.name for o in outcomes if o.quantized]
    if held and not said:
        said.append(f"{listed(held)}: held by stock operators")
    found = "; ".join(said) or "its integers stand in no layer"
    return (
        f"{source.label}: no layer is of a form that target native has an operator for ({found}). "
        "Quantize the float model with --target native"
    )


def _why(left: LayerOutcome) -> tuple[str, str]:
    return left.layer.op, left.reason
