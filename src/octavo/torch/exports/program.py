"""From a quantized PyTorch model to an ONNX graph in which our operators are still whole.

octavo::linear(x, packed, scale, None, bias, 96, 64, 0, "none")
    ->  a node `linear` of the domain "octavo", whose inputs are x, packed, scale and bias and
        whose attribute `arguments` is the call in JSON, with {"input": 0} where a tensor was
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass, InlinePass
from torch import nn

from octavo.errors import ModelError, typed

DOMAIN = "octavo"

# Warnings that tell the caller nothing: PyTorch copies a class that it has deprecated itself, and
# says that of two axes with one name one name will not be used.
_IDLE = (
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning),
    (r"# The axis name: (.+) will not be used, .* another axis: \1\.$", UserWarning),
)


def traced(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    operators: Iterable[str],
    options: Mapping[str, Any],
) -> ir.Model:
    """Trace `model` with torch.onnx.export; `operators` are names of Octavo's operators.

    Raises ModelError where PyTorch cannot export it.
    """
    table = {}
    for name in operators:
        op = getattr(torch.ops.octavo, name).default
        table[op] = _translator(op, name)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            for message, category in _IDLE:
                warnings.filterwarnings("ignore", message, category)
            program = torch.onnx.export(
                model,
                tuple(args),
                kwargs=None if kwargs is None else dict(kwargs),
                dynamo=True,
                verbose=False,
                custom_translation_table=table,
                **options,
            )
    except Exception as error:  # whatever PyTorch, its exporter and the model's own code raise
        raise ModelError(
            f"torch.onnx.export cannot export {type(model).__name__}: {_cause(error)}. See that "
            "torch.export.export(model, args, kwargs) works first: sizes that vary need "
            "dynamic_shapes, and Python code that depends on values has to go"
        ) from error
    made: ir.Model = program.model
    if len(made.functions):
        InlinePass()(made)
    ClearMetadataAndDocStringPass()(made)  # the line of source code behind each node
    return made


def call_of(node: ir.Node) -> dict[str, Any]:
    """Return the arguments of one of Octavo's nodes by name; tensors are values of the graph."""

    def found(said: Any) -> Any:
        if isinstance(said, dict):
            return node.inputs[said["input"]]
        return [found(item) for item in said] if isinstance(said, list) else said

    said = json.loads(node.attributes["arguments"].as_string())
    return {name: found(value) for name, value in said.items()}


def _translator(op: Any, name: str) -> Callable[..., Any]:
    """Return the function that the exporter calls for each use of the operator `op`."""
    schema = op._schema

    def translate(*args: Any, **kwargs: Any) -> Any:
        from onnxscript import evaluator

        inputs: list[ir.Value] = []

        def said(value: Any) -> Any:
            if isinstance(value, ir.Value):
                inputs.append(value)
                return {"input": len(inputs) - 1}
            return [said(item) for item in value] if isinstance(value, (list, tuple)) else value

        names = [argument.name for argument in schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        text = json.dumps({key: said(value) for key, value in given.items()})
        node = ir.Node(
            DOMAIN,
            name,
            inputs,
            [ir.AttrString("arguments", text)],
            num_outputs=len(schema.returns),
        )
        evaluator.default().nodes.append(node)
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    return translate


def _cause(error: BaseException) -> str:
    """Return the error that the exporter wrapped in errors of its own, on one line."""
    while type(error).__module__.startswith("torch.onnx.") and error.__cause__ is not None:
        error = error.__cause__
    return typed(error).rstrip(" .:")
