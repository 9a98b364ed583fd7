"""What the tests of `export_onnx` share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from octavo.onnx import session

Array = npt.NDArray[Any]


def seeded(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same in each run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    """`model` in eval mode with weights that are the same in each run."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            bound = 1 / max(1, parameter.shape[-1]) ** 0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model.eval()


def run(path: Path, *args: Tensor) -> list[Array]:
    """The file's outputs for positional inputs, with all optimizations of ONNX Runtime."""
    opened = session(path)
    names = [i.name for i in opened.get_inputs()]
    feed = dict(zip(names, (a.numpy() for a in args), strict=True))
    return list(opened.run(None, feed))


def flat(outputs: Any) -> list[Array]:
    """All tensors of what a module returned, in order."""
    if isinstance(outputs, (tuple, list)):
        return [array for output in outputs for array in flat(output)]
    return [outputs.detach().float().numpy()]


def constants(path: Path) -> dict[str, Array]:
    """The file's initializers by name."""
    graph = onnx.load(path).graph
    return {i.name: numpy_helper.to_array(i) for i in graph.initializer}


def operators(path: Path) -> list[str]:
    """The types of the file's nodes."""
    return [node.op_type for node in onnx.load(path).graph.node]


def relative(got: Array, expected: Array) -> float:
    """The norm of the difference over that of what is expected."""
    difference = np.linalg.norm(np.asarray(got, np.float64) - expected)
    return float(difference / np.linalg.norm(np.asarray(expected, np.float64)))


def worst_of_rows(x: Array, w: Array) -> Array:
    """What rounding x [..., K] per row around zero can change of x @ w.T, w [N, K]: [..., N].

    A step is max|x| / 127, and each input is off by half of one at most.
    """
    half_step = np.abs(x).max(axis=-1, keepdims=True).astype(np.float64) / 254
    return half_step * np.abs(w.astype(np.float64)).sum(axis=-1)
