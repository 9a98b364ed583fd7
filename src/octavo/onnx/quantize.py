"""`quantize_dynamic`: load, plan, convert, verify, save."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from octavo.core.form import Form
from octavo.core.progress import Progress, quiet, says_progress, shown
from octavo.errors import OptionError
from octavo.files.lookup import refuse_no_path
from octavo.files.staging import Staging
from octavo.graph.analysis.walk import opset_of
from octavo.onnx.check.accuracy_level import verified_at_level
from octavo.onnx.check.verify import verify as verify_model
from octavo.onnx.convert import make_context
from octavo.onnx.custom_ops import CustomOps, Libraries
from octavo.onnx.input_statistics import input_statistics
from octavo.onnx.inputs import read_inputs
from octavo.onnx.plan.convertible import quantized_by_others
from octavo.onnx.plan.inventory import own_bytes
from octavo.onnx.plan.macs import count_macs, uncounted_products
from octavo.onnx.plan.options import parse_request
from octavo.onnx.plan.prepare import prepare
from octavo.onnx.plan.resolve import resolve_all
from octavo.onnx.produce import files_size, produce, report_of
from octavo.onnx.read.load import load
from octavo.onnx.read.stored_report import quantized_already
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import os_errors_explained
from octavo.recipe import Recipe
from octavo.recipe.block_options import leads_to_recipes
from octavo.results.inspection import Inspection
from octavo.results.report import Report, Verification


@leads_to_recipes
@says_progress
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
    error_feedback: bool = False,
    allow_quantized: bool = False,
    allow_nothing: bool = False,
    sess_options: ort.SessionOptions | None = None,
    custom_ops: Libraries | None = None,
) -> Report:
    """Write a dynamically quantized model and return what became of every layer.

    The arguments up to `extra_options` are those of `onnxruntime.quantization.quantize_dynamic`;
    one that is given changes only its own axis of the recipe, what is left out stays as the recipe
    has it.

    Args:
        model_input: path of the model, or a ModelProto (which is not changed).
        model_output: path of the result; it appears whole or not at all.
        op_types_to_quantize: only these operators, such as ["MatMul"], which stands for Gemm too.
        per_channel: True for a weight scale per output channel, False for one per tensor.
        reduce_range: weights in 7 bits.
        weight_type: `QuantType.QInt8` or `QuantType.QUInt8` (ONNX Runtime's enum is accepted).
        nodes_to_quantize: only nodes that match these names or globs.
        nodes_to_exclude: no nodes that match these names or globs.
        use_external_data_format: weights in a data file beside the model. Results above 256 MiB
            of models that have one, and all above 1.9 GB, get one in any case.
        extra_options: WeightSymmetric, ActivationSymmetric, EnableSubgraph, MatMulConstBOnly, ...
        recipe: a preset's name ("int8", "int8-per-tensor", "int8-accurate", "int8-block", "int4",
            "int4-128", "float16"), the path of a YAML file, or a Recipe.
        target: "portable": nothing but stock ONNX Runtime operators. "native": Octavo's own
            operators, which `octavo.onnx.session` registers: faster, more accurate, and there are
            some for GRU, RNN and Conv too.
        cpu: "vnni" (int8 weights; exact on x86 CPUs with VNNI or AMX and on ARM) or "any" (uint8
            weights around 128: exact everywhere, slower where there is VNNI).
        quant_format: "qoperator", or "qdq" for DynamicQuantizeLinear/DequantizeLinear pairs.
        check_inputs: inputs for the comparison with the float model: a path to .npz or .jsonl, a
            mapping of name to array, or several of these. Without, they are made up. Scales of
            weights in groups that are searched ("int4") are those of the least error for what comes
            to each layer with these inputs; a hundred are enough.
        verify: compare the result with the float model before it is put in place.
        progress: called with (stage, done, total). Default: a line on the terminal, from two
            seconds on.
        error_feedback: with check_inputs: later weights of an output make up for what earlier ones
            lost (GPTQ). It loses less and takes longer.
        allow_quantized: quantize the rest of a model that is quantized in part.
        allow_nothing: write the model even if no layer would be quantized.
        sess_options: `onnxruntime.SessionOptions` for the sessions of the comparison, with which
            operators of other libraries are registered. They are used as they are, as ONNX Runtime
            cannot copy them; Octavo's own operators are added where a session needs them.
        custom_ops: the paths of shared libraries with such operators, instead.

    Raises:
        OctavoError: see `octavo.errors`; nothing is written then.
    """
    started = time.perf_counter()
    report_progress = progress or quiet
    request = parse_request(
        recipe,
        Form.of(target, cpu, quant_format),
        op_types_to_quantize=op_types_to_quantize,
        per_channel=per_channel,
        reduce_range=reduce_range,
        weight_type=weight_type,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
        extra_options=extra_options,
    )
    if error_feedback and check_inputs is None:
        raise OptionError(
            "error_feedback (--error-feedback) needs inputs that the model gets: give check_inputs "
            "(--inputs) too"
        )
    operators = CustomOps.of(custom_ops, sess_options)
    report_progress("reading", 0, 1)
    refuse_no_path(model_output, "model_output")
    source = load(model_input)
    staging = Staging(model_output, source.files)
    feeds = None if check_inputs is None else read_inputs(check_inputs, source.model.graph)
    prepared = prepare(source, request, allow_quantized=allow_quantized)
    statistics = input_statistics(source, prepared, feeds, error_feedback)
    if statistics is None:
        _refuse_unused(feeds is not None and not verify, error_feedback)
    with staging:
        with os_errors_explained(source, staging), operators.in_force():
            converted = produce(
                source,
                prepared,
                request,
                staging,
                external=use_external_data_format,
                allow_nothing=allow_nothing,
                progress=report_progress,
                statistics=statistics,
            )
        outcome = Verification("skipped")
        if verify:
            report_progress("verifying", 0, 1)
            bound, layers = request.recipe.max_error, converted.outcomes
            with operators.in_force():
                outcome, notes = verified_at_level(
                    staging.model,
                    source,
                    feeds,
                    lambda: verify_model(source, staging.model, feeds, bound, layers),
                    lambda found: found.error,
                )
            converted = replace(converted, notes=(*converted.notes, *notes))
        size = files_size(staging)
        staging.commit()
    return report_of(
        source,
        request,
        prepared,
        converted,
        output=str(staging.out),
        size=size,
        verification=outcome,
        seconds=time.perf_counter() - started,
    )


def _refuse_unused(inputs: bool, error_feedback: bool) -> None:
    """Raise OptionError for what only weights whose scales are searched could use."""
    if error_feedback:
        raise OptionError(
            "error_feedback (--error-feedback) changes nothing: the recipe searches no linear "
            "layer's scales; leave it out, or take recipe int4"
        )
    if inputs:
        raise OptionError(
            "check_inputs (--inputs) are given and verify=False (--no-verify); leave one of them "
            "out"
        )


@shown("inspecting")
def inspect(
    model_input: str | Path | onnx.ModelProto,
    recipe: str | Path | Recipe | None = None,
    *,
    target: str = "portable",
    cpu: str = "vnni",
    quant_format: str = "qoperator",
    allow_quantized: bool = True,
) -> Inspection:
    """Return a model's layers and what a recipe would do with each; nothing is written.

    A decision is what a conversion would hold: a layer that the target cannot hold as the recipe
    asks has its reason.
    """
    request = parse_request(recipe, Form.of(target, cpu, quant_format))
    source = load(model_input)
    opset, ir_version = opset_of(source.model), source.model.ir_version
    already = quantized_by_others(source.origin) or quantized_already(source.model)
    prepared = prepare(source, request, allow_quantized=allow_quantized)
    context = make_context(
        source.model,
        TensorStore(None),
        prepared.constants,
        request.form.at(prepared.opset),
    )
    resolved = resolve_all(prepared.sites, prepared.decisions, context)
    macs, sizes = count_macs(source.model, prepared.sites, prepared.constants)
    return Inspection(
        model=source.label,
        opset=opset,
        ir_version=ir_version,
        model_bytes=source.bytes,
        recipe_name=request.recipe.name,
        decisions=tuple(layer.decision for layer in resolved),
        weight_bytes=own_bytes(prepared.sites, prepared.constants),
        macs=macs,
        sizes=sizes,
        uncounted=uncounted_products(source.model, prepared.sites, prepared.constants),
        quantized=already,
        attention=request.recipe.attention,
    )
