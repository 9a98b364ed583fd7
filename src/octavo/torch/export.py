"""`export_onnx`: a quantized PyTorch model as an ONNX file for ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

import octavo
from octavo.core.attention_type import METADATA, AttentionType
from octavo.core.form import Cpu, Form, Target
from octavo.errors import (
    ModelError,
    NothingQuantizedError,
    OptionError,
    brief,
    did_you_mean,
    listed,
)
from octavo.files.lookup import refuse_no_path
from octavo.files.staging import DATA_FILE, Staging, output_error
from octavo.torch.layers.base import QuantizedModule, held_report
from octavo.torch.layers.registry import declarations

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx_ir as ir

OLDEST, NEWEST = 18, 23  # opsets that PyTorch's exporter has operators for
FIRST_WITH_NEW_FORMAT = 21  # opset from which files need IR version 10 and more
PLAIN_FORMAT = 9  # the IR version before, which ONNX Runtime 1.17 reads
PROTOBUF_LIMIT = 1900 * 2**20  # bytes; protobuf ends at 2 GiB
PAGE = 4096  # bytes; tensors of a data file begin on one, so that kernels read them where they lie
OPTIONS = ("kwargs", "input_names", "output_names", "dynamic_shapes", "opset_version")


@dataclass(frozen=True)
class Exported:
    """What `export_onnx` wrote.

    `operators` counts the quantized layers by their operator ("linear", "embedding", ...); `notes`
    say what the file computes otherwise than the model, and for which layers.
    """

    path: Path
    opset: int
    min_onnxruntime: str
    bytes: int
    operators: Mapping[str, int]
    notes: tuple[str, ...]


def export_onnx(
    qmodel: nn.Module,
    args: Any,
    path: str | os.PathLike[str],
    target: str = "portable",
    *,
    cpu: str = "vnni",
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    opset_version: int = 20,
    external_data: bool = False,
    **others: Any,
) -> Exported:
    """Write `qmodel` as an ONNX file that holds the same weight integers.

    Args:
        qmodel: what `octavo.torch.quantize_dynamic` returned, or a module with such layers in it.
        args: positional arguments of a call of the model, a tuple (or one tensor).
        path: of the file; it appears whole or not at all.
        target: "portable": nothing but operators of stock ONNX Runtime. Activations are quantized
            as in ONNX files that `octavo.onnx.quantize_dynamic` makes. "native": Octavo's own
            operators over the packed weights as they are, which `octavo.onnx.session` registers:
            faster, and the model's own numbers but for what float operators round.
        cpu: "vnni" (int8 weights; open the file with `octavo.onnx.session`) or "any" (uint8
            weights around 128: exact on every processor). Octavo's operators are so in any case.
        kwargs: keyword arguments of that call.
        input_names: of the graph.
        output_names: of the graph.
        dynamic_shapes: as of torch.export.export; sizes may have names: `({0: "batch"},)`.
        opset_version: 18 to 23; ONNX Runtime 1.17 runs 20 (target native: 1.18).
        external_data: weights in a data file beside the model; above 1.9 GB they are in any case.

    Raises OptionError (an unknown argument, target, cpu or opset), NothingQuantizedError (a model
    without quantized layers), OutputError (the file cannot be written), ModelError (what PyTorch
    cannot export); nothing is written then.
    """
    if others:
        name = next(iter(others))
        known = (*OPTIONS, "external_data", "cpu")
        raise OptionError(f"export_onnx has no argument {name!r}.{did_you_mean(name, known)}")
    form = form_of(target, cpu, opset_version)
    operators = _quantized_layers(qmodel)
    refuse_no_path(path, "path")
    staging = Staging(Path(path))
    options = {
        "input_names": input_names,
        "output_names": output_names,
        "dynamic_shapes": dynamic_shapes,
        "opset_version": opset_version,
    }
    positional = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    model, counts, notes = _converted(qmodel, positional, kwargs, options, form)
    if not counts:
        raise ModelError(
            f"the call of {type(qmodel).__name__} reaches none of its {operators} quantized "
            "layers; give args and kwargs with which it does"
        )
    _label(model, qmodel, form)
    with staging:
        try:
            _write(model, staging, external=external_data)
        except OSError as error:
            raise output_error(error, staging.out) from error
        size = sum(p.stat().st_size for p in (staging.model, staging.data) if p.exists())
        staging.commit()
    return Exported(
        staging.out,
        opset_version,
        model.metadata_props["octavo.min_onnxruntime"],
        size,
        counts,
        notes,
    )


def form_of(target: str, cpu: str, opset: int) -> Form:
    """Return the form of a file. Raises OptionError for a word or an opset that is not known."""
    form = Form(
        Target.parse(target, f"unknown target {target!r}"),
        Cpu.parse(cpu, f"unknown cpu {cpu!r}"),
    )
    if isinstance(opset, bool) or not isinstance(opset, int) or not OLDEST <= opset <= NEWEST:
        raise OptionError(f"opset_version {opset!r}: needs {OLDEST} to {NEWEST}")
    return form.at(opset)


def _quantized_layers(qmodel: nn.Module) -> int:
    if not isinstance(qmodel, nn.Module):
        raise OptionError(f"qmodel: needs a torch.nn.Module, not {type(qmodel).__name__}")
    found = sum(
        isinstance(module, QuantizedModule) and bool(module._buffers) for module in qmodel.modules()
    )
    if not found:
        raise NothingQuantizedError(
            f"{type(qmodel).__name__} has no quantized layer: export what "
            "octavo.torch.quantize_dynamic returns, or a float model with torch.onnx.export"
        )
    for declared in declarations():
        names = [n or "it" for n, m in qmodel.named_modules() if isinstance(m, declared.layer)]
        if names and not declared.onnx:
            raise ModelError(
                f"{type(qmodel).__name__} holds quantized {declared.plural} ({listed(names, 3)}), "
                "which have no ONNX form yet; leave them float, as qconfig_spec={nn.Linear} does"
            )
    return found


def _converted(
    qmodel: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    form: Form,
) -> tuple[ir.Model, dict[str, int], tuple[str, ...]]:
    from octavo.torch.exports.operators import READERS, replace_layers
    from octavo.torch.exports.program import traced

    with _evaluating(qmodel):
        model = traced(qmodel, args, kwargs, READERS, options)
    return model, *replace_layers(model, form, _attention(qmodel))


def _attention(qmodel: nn.Module) -> AttentionType:
    """Return the type in which the recipe of the model lets attention multiply."""
    report = held_report(qmodel)
    return AttentionType.stated(report.recipe if report else {})


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` into eval mode, and every module back into the mode that it had afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _label(model: ir.Model, qmodel: nn.Module, form: Form) -> None:
    """Write what describes the file into its metadata, in the words of the ONNX front end."""
    from octavo.graph.analysis.requirements import least_onnxruntime
    from octavo.graph.analysis.walk import opset_of
    from octavo.ir import DOMAIN, OPERATORS

    if opset_of(model) < FIRST_WITH_NEW_FORMAT:
        model.ir_version = PLAIN_FORMAT
    model.producer_name, model.producer_version = "octavo", octavo.__version__
    report = held_report(qmodel)
    needed = {"octavo.operators": OPERATORS} if DOMAIN in model.opset_imports else {}
    attention = _attention(qmodel)
    if attention is not AttentionType.FLOAT32:
        needed[METADATA] = attention.value
    model.metadata_props.clear()
    model.metadata_props.update(
        needed
        | {
            "octavo.version": octavo.__version__,
            "octavo.recipe": str(report.recipe.get("name", "")) if report else "",
            **{f"octavo.{key}": word for key, word in form.words.items()},
            "octavo.min_onnxruntime": least_onnxruntime(model),
        }
    )


def _write(model: ir.Model, staging: Staging, *, external: bool) -> None:
    import onnx_ir as ir
    from onnx_ir.passes.common import CheckerPass

    try:
        CheckerPass()(model)
    except Exception as error:  # the checker's own types, and those of onnx_ir's passes
        cause = error.__cause__ or error
        raise ModelError(f"the exported graph is not valid ONNX: {brief(cause)}") from error
    tensors = [v.const_value for v in model.graph.initializers.values()]
    total = sum(t.nbytes for t in tensors if t is not None)
    if external or total > PROTOBUF_LIMIT:
        model.metadata_props[DATA_FILE] = staging.data.name
        ir.save(
            model,
            staging.model,
            external_data=staging.data.name,
            alignment=PAGE,
            align_threshold=PAGE,
        )
    else:
        ir.save(model, staging.model)
