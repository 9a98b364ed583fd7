"""What is kept of PyTorch models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octavo.torch import export_onnx, load, quantize_dynamic, report, save
from tests.golden.corpus import Case
from tests.golden.facts import Facts, attempt, bits, digest, report_facts, under, values
from tests.golden.onnx_runs import ran, session


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    """`model` in eval mode with weights that are the same in each run."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            bound = 1.5 / max(1, parameter.shape[-1]) ** 0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model.eval()


def flat(outputs: Any) -> list[Any]:
    """All tensors of what a module returned, in order."""
    if isinstance(outputs, Tensor):
        found = outputs.detach()
        return [found.float().numpy() if found.dtype == torch.bfloat16 else found.numpy()]
    if hasattr(outputs, "data") and isinstance(getattr(outputs, "data", None), Tensor):
        return flat(outputs.data)  # a packed sequence
    if isinstance(outputs, Mapping):
        return [a for value in outputs.values() for a in flat(value)]
    if isinstance(outputs, (tuple, list)):
        return [a for value in outputs for a in flat(value)]
    return []


def out_facts(outputs: Any) -> Facts:
    """Bits of all, and some values of the first."""
    arrays = flat(outputs)
    facts: Facts = {"out bits": ", ".join(bits(a) for a in arrays)}
    if arrays and np.asarray(arrays[0]).dtype.kind == "f":
        facts["out"] = values(arrays[0])
    return facts


def state_facts(model: nn.Module) -> Facts:
    """Integers, scales and other buffers by name."""
    facts: Facts = {}
    for name, tensor in model.state_dict().items():
        if isinstance(tensor, Tensor):
            shown = tensor.detach()
            raw = shown.view(torch.int16) if shown.dtype == torch.bfloat16 else shown
            facts[f"w {name}"] = f"{str(shown.dtype)[6:]} {bits(raw.numpy())}"
        else:
            facts[f"w {name}"] = digest(repr(tensor).encode())
    return facts


def model_facts(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Facts:
    """Report, buffers, how it prints, and outputs."""
    facts: Facts = {}
    try:
        facts |= report_facts(report(model))
    except Exception as error:  # noqa: BLE001
        facts["report"] = f"{type(error).__name__}: {error}"
    for name in ("verified", "needs"):
        facts.pop(name, None)
    facts |= state_facts(model)
    facts["printed"] = str(model).splitlines()
    with torch.inference_mode():
        return facts | out_facts(model(*args, **(kwargs or {})))


Make = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def quantized(label: str, make: Make, **options: Any) -> tuple[Facts, nn.Module | None]:
    """Facts of a quantized model, and it."""
    model, args = make()
    made, failed = attempt(quantize_dynamic, model, **options)
    if failed:
        return under(label, {"error": failed}), None
    try:
        facts = model_facts(made, args)
    except Exception as error:  # noqa: BLE001
        facts = {"call": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return under(label, facts), made


def case(make: Make, options: Mapping[str, Mapping[str, Any]], saved: str = "") -> Case:
    """A model quantized in several ways; one of them saved and loaded as well."""

    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for label, said in options.items():
            more, model = quantized(label, make, **said)
            facts |= more
            if label == saved and model is not None:
                facts |= under(f"{label} loaded", loaded(model, make, folder))
        return facts

    return run


def loaded(model: nn.Module, make: Make, folder: Path) -> Facts:
    """Saved and loaded again: outputs and buffers."""
    path = folder / "saved.safetensors"
    _, failed = attempt(save, model, path)
    if failed:
        return {"save": failed}
    again, failed = attempt(load, path, lambda: make()[0])
    if failed:
        return {"load": failed}
    with torch.inference_mode():
        return {**out_facts(again(*make()[1])), "file": _header(path)}


def _header(path: Path) -> str:
    """Names, types and shapes in the file."""
    from safetensors import safe_open

    with safe_open(path, "pt") as opened:
        rows = [
            f"{name} {opened.get_slice(name).get_dtype()} {opened.get_slice(name).get_shape()}"
            for name in sorted(opened.keys())
        ]
        said = sorted(opened.metadata() or {})
    return f"{len(rows)} tensors {digest(chr(10).join(rows).encode())}, says {said}"


def exported(
    folder: Path, model: nn.Module, args: tuple[Any, ...], label: str, **options: Any
) -> Facts:
    """The ONNX file of a quantized model."""
    path = folder / f"{label.replace(' ', '_')}.onnx"
    said, failed = attempt(export_onnx, model, args, path, **options)
    if failed:
        return under(label, {"error": failed.splitlines()[0]})
    facts: Facts = {"notes": list(said.notes)}
    facts["operators"] = f"{dict(said.operators)}, opset {said.opset}, needs {said.min_onnxruntime}"
    feeds = dict(zip((i.name for i in session(path).get_inputs()), flat(args), strict=False))
    return under(label, facts | ran(path, feeds, exact=options.get("target") == "native"))
