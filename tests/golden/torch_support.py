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
from tests.golden.facts import (
    Facts,
    bits,
    digest,
    error_of,
    file_facts,
    report_facts,
    under,
    values,
)
from tests.golden.onnx_runs import brief, ran, session


def seeded(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same in each run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


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
    facts: Facts = {"bits": ", ".join(bits(a) for a in arrays)}
    if arrays and np.asarray(arrays[0]).dtype.kind == "f":
        facts["out"] = values(arrays[0], 3)
    return facts


def state_facts(model: nn.Module, full: bool = True) -> Facts:
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
    model: nn.Module, args: Sequence[Any], *, full: bool, kwargs: Mapping[str, Any] | None = None
) -> Facts:
    """Report, buffers, how it prints, and outputs."""
    facts: Facts = {}
    try:
        said = report(model)
    except Exception as error:  # noqa: BLE001
        facts["report"] = f"{type(error).__name__}: {error}"
    else:
        facts |= report_facts(said)
        for name in ("verified", "needs"):
            facts.pop(name)
    facts |= state_facts(model)
    facts["printed"] = str(model).splitlines() if full else digest(str(model).encode())
    with torch.inference_mode():
        facts |= out_facts(model(*args, **(kwargs or {})))
    if full:
        return facts
    outs = {name: facts.pop(name) for name in ("bits", "out") if name in facts}
    return brief(facts) | outs


Make = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def quantized(
    label: str, make: Make, *, full: bool = False, **options: Any
) -> tuple[Facts, nn.Module | None]:
    """Facts of a quantized model, and it."""
    made: list[nn.Module] = []
    model, args = make()
    failed = error_of(lambda: made.append(quantize_dynamic(model, **options)))
    if not made:
        return under(label, {"error": failed}), None
    try:
        facts = model_facts(made[0], args, full=full)
    except Exception as error:  # noqa: BLE001
        facts = {"call": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return under(label, facts), made[0]


def case(
    make: Make,
    options: Mapping[str, Mapping[str, Any]],
    *,
    full: Sequence[str] = (),
    saved: str = "",
) -> Case:
    """A model quantized in several ways; one of them saved and loaded as well."""

    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for label, said in options.items():
            more, model = quantized(label, make, full=label in full, **said)
            facts |= more
            if label == saved and model is not None:
                facts |= under(f"{label} loaded", loaded(model, make, folder))
        return facts

    return run


def loaded(model: nn.Module, make: Make, folder: Path) -> Facts:
    """Saved and loaded again: outputs and buffers."""
    path = folder / "saved.safetensors"
    failed = error_of(lambda: save(model, path))
    if failed != "nothing raised":
        return {"save": failed}
    again: list[nn.Module] = []
    failed = error_of(lambda: again.append(load(path, lambda: make()[0])))
    if not again:
        return {"load": failed}
    with torch.inference_mode():
        facts = out_facts(again[0](*make()[1]))
    facts["file"] = _header(path)
    return facts


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
    folder: Path,
    model: nn.Module,
    args: tuple[Any, ...],
    label: str,
    *,
    full: bool = False,
    **options: Any,
) -> Facts:
    """The ONNX file of a quantized model."""
    path = folder / f"{label.replace(' ', '_')}.onnx"
    done: list[Any] = []
    failed = error_of(lambda: done.append(export_onnx(model, args, path, **options)))
    if not done:
        return under(label, {"error": failed.splitlines()[0]})
    said = done[0]
    facts = file_facts(path)
    facts["notes"] = list(said.notes)
    facts["operators"] = f"{dict(said.operators)}, opset {said.opset}, needs {said.min_onnxruntime}"
    names = [i.name for i in session(path).get_inputs()]
    feeds = dict(zip(names, (a for a in flat(args)), strict=False))
    facts |= ran(path, feeds, exact=options.get("target") == "native")
    return under(label, facts if full else brief(facts))
