"""`quantize_dynamic`: load, plan, convert, verify, save."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

import octavo
from octavo.errors import NothingQuantizedError, OptionError, OutputError
from octavo.files.staging import Staging
from octavo.graph.native import DOMAIN, OPERATORS
from octavo.graph.requirements import least_onnxruntime
from octavo.graph.walk import graphs_of, opset_of
from octavo.onnx import normalize
from octavo.onnx.constants import Constants
from octavo.onnx.convert import Converted, Progress, convert, make_context
from octavo.onnx.inputs import read_inputs
from octavo.onnx.inventory import Site, inventory
from octavo.onnx.load import Source, load
from octavo.onnx.native.defaults import by_default
from octavo.onnx.options import Request, has_tensor_activations, parse_request
from octavo.onnx.resolve import resolve
from octavo.onnx.save import misfortune, needs_data_file, save
from octavo.onnx.select import decide
from octavo.onnx.store import TensorStore
from octavo.onnx.verify import verify as verify_model
from octavo.recipe import Decision, Inspection, Recipe, Report, Verification


def quantize_dynamic(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path,
    op_types_to_quantize: Sequence[str] | None = None,
    per_channel: bool | None = None,
    reduce_range: bool | None = None,
    weight_type: Any = None,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
    *,
    recipe: str | Path | Recipe | None = None,
    target: str = "portable",
    cpu: str = "vnni",
    quant_format: str = "qoperator",
    check_inputs: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    verify: bool = True,
    progress: Progress | None = None,
    allow_quantized: bool = False,
    allow_nothing: bool = False,
) -> Report:
    """Writes a dynamically quantized model and returns what became of every layer.

    The arguments up to `extra_options` are those of `onnxruntime.quantization.quantize_dynamic`;
    one that is given changes only its own axis of the recipe, what is left out stays as the recipe
    has it.

    Args:
        model_input: path of the model, or a ModelProto (which is not changed).
        model_output: path of the result; it appears whole or not at all.
        op_types_to_quantize: only these operators, such as ["MatMul"].
        per_channel: True for a weight scale per output channel, False for one per tensor.
        reduce_range: weights in 7 bits.
        weight_type: `QuantType.QInt8` or `QuantType.QUInt8` (ONNX Runtime's enum is accepted).
        nodes_to_quantize: only nodes that match these names or globs.
        nodes_to_exclude: no nodes that match these names or globs.
        use_external_data_format: weights in a data file beside the model. Results above 256 MiB
            of models that have one, and all above 1.9 GB, get one in any case.
        extra_options: WeightSymmetric, ActivationSymmetric, EnableSubgraph, MatMulConstBOnly, ...
        recipe: a preset's name ("int8", "int8-per-tensor", "int8-accurate", "int8-block",
            "float16"), the path of a YAML file, or a Recipe.
        target: "portable": nothing but stock ONNX Runtime operators. "native": Octavo's own
            operators, which `octavo.onnx.session` registers: faster, more accurate, and there are
            some for GRU, RNN and Conv too.
        cpu: "vnni" (int8 weights; exact on x86 CPUs with VNNI or AMX and on ARM) or "any" (uint8
            weights around 128: exact everywhere, slower where there is VNNI).
        quant_format: "qoperator", or "qdq" for DynamicQuantizeLinear/DequantizeLinear pairs.
        check_inputs: inputs for the comparison with the float model: a path to .npz or .jsonl, a
            mapping of name to array, or several of these. Without, they are made up.
        verify: compare the result with the float model before it is put in place.
        progress: called with (stage, done, total).
        allow_quantized: quantize the rest of a model that is quantized in part.
        allow_nothing: write the model even if no layer would be quantized.

    Raises:
        OctavoError: see `octavo.errors`; nothing is written then.
    """
    started = time.perf_counter()
    report_progress: Progress = progress or (lambda stage, done, total: None)
    request = parse_request(
        recipe=recipe,
        op_types_to_quantize=op_types_to_quantize,
        per_channel=per_channel,
        reduce_range=reduce_range,
        weight_type=weight_type,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        extra_options=extra_options,
        target=target,
        cpu=cpu,
        quant_format=quant_format,
    )
    if check_inputs is not None and not verify:
        raise OptionError("check_inputs are given and verify=False; leave one of them out")
    report_progress("reading", 0, 1)
    if not isinstance(model_output, (str, os.PathLike)):
        raise OptionError(f"model_output is a {type(model_output).__name__}; give a path")
    source = load(model_input)
    staging = Staging(model_output, source.files)
    feeds = None if check_inputs is None else read_inputs(check_inputs, source.model.graph)
    prepared = _prepare(source, request, allow_quantized=allow_quantized)
    with staging:
        try:
            converted = _convert(
                source,
                prepared,
                request,
                staging,
                external=use_external_data_format,
                allow_nothing=allow_nothing,
                progress=report_progress,
            )
        except OutputError:
            raise
        except OSError as error:
            raise misfortune(error, source, staging) from error
        outcome = Verification("skipped")
        if verify:
            report_progress("verifying", 0, 1)
            outcome = verify_model(source, staging.model, feeds, request.recipe, converted.outcomes)
        size = sum(p.stat().st_size for p in (staging.model, staging.data) if p.exists())
        staging.commit()
    return Report(
        source=source.label,
        output=str(staging.out),
        recipe=request.recipe.to_dict(),
        target=target,
        cpu=cpu,
        quant_format=quant_format,
        layers=converted.outcomes,
        model_bytes_before=source.bytes,
        model_bytes_after=size,
        opset=opset_of(source.model),
        min_onnxruntime=least_onnxruntime(source.model),
        verification=outcome,
        seconds=time.perf_counter() - started,
        notes=(*prepared.notes, *converted.notes),
    )


def inspect(
    model_input: str | Path | onnx.ModelProto,
    recipe: str | Path | Recipe | None = None,
    *,
    target: str = "portable",
    cpu: str = "vnni",
    quant_format: str = "qoperator",
    allow_quantized: bool = True,
) -> Inspection:
    """The layers of a model and what a recipe would do with each; nothing is written.

    A decision is what a conversion would hold: a layer that the target cannot hold as the recipe
    asks has its reason.
    """
    request = parse_request(
        recipe=recipe,
        op_types_to_quantize=None,
        per_channel=None,
        reduce_range=None,
        weight_type=None,
        nodes_to_quantize=None,
        nodes_to_exclude=None,
        extra_options=None,
        target=target,
        cpu=cpu,
        quant_format=quant_format,
    )
    source = load(model_input)
    prepared = _prepare(source, request, allow_quantized=allow_quantized)
    context = make_context(
        source.model,
        TensorStore(None),
        prepared.constants,
        opset=prepared.opset,
        target=target,
        cpu=cpu,
        quant_format=quant_format,
    )
    pairs = zip(prepared.sites, prepared.decisions, strict=True)
    return Inspection(
        model=source.label,
        opset=prepared.opset,
        ir_version=source.model.ir_version,
        model_bytes=source.bytes,
        recipe_name=request.recipe.name,
        decisions=tuple(resolve(site, decision, context).decision for site, decision in pairs),
    )


class _Prepared:
    """A normalized model with its layers and the decisions about them."""

    def __init__(
        self,
        opset: int,
        constants: Constants,
        sites: list[Site],
        decisions: list[Decision],
        notes: list[str],
    ) -> None:
        self.opset, self.constants = opset, constants
        self.sites, self.decisions, self.notes = sites, decisions, notes


def _prepare(source: Source, request: Request, *, allow_quantized: bool) -> _Prepared:
    if not allow_quantized:
        normalize.refuse_quantized(source.model, source.label)
    dynamic = request.quant_format == "qdq" or has_tensor_activations(request.recipe)
    needed = normalize.FIRST_WITH_DYNAMIC if dynamic else normalize.FIRST_WITH_QUANTIZE
    notes = normalize.normalize(source.model, source.label, needed)
    opset = opset_of(source.model)
    constants = Constants(opset)
    sites = inventory(source.model, constants)
    node_names = [n.name for g in graphs_of(source.model) for n in g if n.name]
    decisions = decide([s.layer for s in sites], node_names, request)
    if request.target == "native":
        pairs = zip(sites, decisions, strict=True)
        decisions = [by_default(site, decision, request.recipe) for site, decision in pairs]
    return _Prepared(opset, constants, sites, decisions, notes)


def _convert(
    source: Source,
    prepared: _Prepared,
    request: Request,
    staging: Staging,
    *,
    external: bool,
    allow_nothing: bool,
    progress: Progress,
) -> Converted:
    """Converts and writes into `staging`; nothing is in place yet."""
    large = needs_data_file(source, prepared.sites, prepared.decisions, prepared.constants)
    tensors = TensorStore(staging.data if external or large else None)
    try:
        converted = convert(
            source.model,
            prepared.sites,
            prepared.decisions,
            tensors,
            prepared.constants,
            opset=prepared.opset,
            target=request.target,
            cpu=request.cpu,
            quant_format=request.quant_format,
            progress=progress,
        )
        if not any(o.quantized for o in converted.outcomes) and not allow_nothing:
            raise NothingQuantizedError(_nothing(source, converted))
        progress("writing", 0, 1)
        save(source.model, staging, tensors, _metadata(request, source.model))
    finally:
        tensors.close()
    if staging.data.exists() and not external:
        note = f"the weights are in {staging.data.name}: the model is too large for one file"
        return replace(converted, notes=(*converted.notes, note))
    return converted


def _metadata(request: Request, model: ir.Model) -> dict[str, str]:
    needed = {"octavo.operators": OPERATORS} if DOMAIN in model.opset_imports else {}
    return needed | {
        "octavo.version": octavo.__version__,
        "octavo.recipe": request.recipe.name,
        "octavo.target": request.target,
        "octavo.cpu": request.cpu,
        "octavo.quant_format": request.quant_format,
        "octavo.min_onnxruntime": least_onnxruntime(model),
    }


def _nothing(source: Source, converted: Converted) -> str:
    reasons = sorted({f"{o.layer.op}: {o.reason}" for o in converted.outcomes})
    found = "; ".join(reasons) if reasons else "it has no layer that holds weights"
    return (
        f"{source.label}: no layer would be quantized ({found}). Change the recipe or the "
        "selection, or pass allow_nothing=True (--allow-nothing) to write the model all the same"
    )
