"""Records what torch.ao's observers and torch's quantized tensors give: `observers.npz`.

Run by hand, with torch 2.13 on x86: `python tests/torch/golden/record.py`. The tests read the file
only. Nothing else in this repository imports torch.ao.
"""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.ao.quantization import observer as ao

OUT = Path(__file__).with_name("observers.npz")
TENSOR = ("per_tensor_symmetric", "per_tensor_affine")
CHANNEL = ("per_channel_symmetric", "per_channel_affine")
FLOAT_QPARAMS = "per_channel_affine_float_qparams"


def weights() -> dict[str, list[np.ndarray]]:
    """Tensors by name, each a list: what an observer sees one after the other."""
    rng = np.random.default_rng(20)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    outlier = normal(6, 9) * np.float32(0.05)
    outlier[2, 3] = -40.0
    channels = normal(5, 8)
    channels[0] = 0
    channels[1] = np.abs(channels[1]) + 1
    channels[2] = -np.abs(channels[2]) - 1
    channels[3] *= np.float32(1e-9)
    halves = np.arange(-255, 256, dtype=np.float32)[: 7 * 73].reshape(7, 73) / 2
    nudged = halves * (1 + rng.integers(-3, 4, halves.shape) * 2.0**-23) * 0.037
    return {
        "random": [normal(8, 17) * np.float32(0.1)],
        "positive": [np.abs(normal(5, 7)) + np.float32(0.5)],
        "negative": [-np.abs(normal(4, 6)) - np.float32(0.1)],
        "zeros": [np.zeros((3, 4), np.float32)],
        "tiny": [normal(4, 5) * np.float32(1e-12)],
        "huge": [normal(4, 5) * np.float32(1e37)],
        "overflowing": [np.float32([[3e38, -3e38], [1, 2]])],
        "outlier": [outlier],
        "one": [np.float32([[0.3]])],
        "minus one": [np.float32([[-7.25]])],
        "unlike channels": [channels],
        "halfway": [nudged.astype(np.float32)],
        "convolution": [normal(4, 3, 2, 3)],
        "growing": [normal(3, 6) * np.float32(f) for f in (0.2, 1, 3, 0.5)],
        "shrinking": [normal(3, 6) * np.float32(f) for f in (5, 1, 0.1)],
        "from zero": [np.zeros((2, 5), np.float32), np.abs(normal(2, 5)), normal(2, 5)],
    }


def cases() -> list[tuple[str, dict[str, object]]]:
    """(observer, arguments), with torch's constants by name."""
    bounds: list[tuple[str, dict[str, object]]] = [
        ("qint8", {}),
        ("qint8", {"reduce_range": True}),
        ("qint8", {"quant_min": -127, "quant_max": 127}),
        ("qint8", {"quant_min": -8, "quant_max": 7}),
        ("qint8", {"quant_min": -100, "quant_max": 101, "reduce_range": True}),
        ("quint8", {}),
        ("quint8", {"reduce_range": True}),
        ("quint8", {"quant_min": 0, "quant_max": 127}),
        ("quint8", {"quant_min": 0, "quant_max": 15}),
        ("qint8", {"quant_min": -127, "quant_max": 127, "eps": 2.0**-12}),
    ]
    found: list[tuple[str, dict[str, object]]] = []
    for scheme, (dtype, more) in itertools.product(TENSOR, bounds):
        if dtype == "quint8" and scheme == TENSOR[0] and "reduce_range" in more:
            continue  # torch.ao refuses it
        found.append(("MinMaxObserver", {"dtype": dtype, "qscheme": scheme, **more}))
    for scheme, (dtype, more) in itertools.product(CHANNEL, bounds):
        if dtype == "quint8" and scheme == CHANNEL[0] and "reduce_range" in more:
            continue
        arguments = {"dtype": dtype, "qscheme": scheme, **more}
        found.append(("PerChannelMinMaxObserver", arguments))
        if not more:
            found.append(("PerChannelMinMaxObserver", {**arguments, "ch_axis": 1}))
    for more in ({}, {"ch_axis": 1}, {"reduce_range": True}, {"eps": 0.01}):
        arguments = {"dtype": "quint8", "qscheme": FLOAT_QPARAMS, **more}
        found.append(("PerChannelMinMaxObserver", arguments))
    for constant in (0.01, 0.3, 1.0):
        for dtype, scheme in (("qint8", TENSOR[0]), ("quint8", TENSOR[1])):
            arguments = {"dtype": dtype, "qscheme": scheme, "averaging_constant": constant}
            found.append(("MovingAverageMinMaxObserver", arguments))
        for dtype, scheme in (("qint8", CHANNEL[0]), ("quint8", CHANNEL[1])):
            arguments = {"dtype": dtype, "qscheme": scheme, "averaging_constant": constant}
            found.append(("MovingAveragePerChannelMinMaxObserver", arguments))
    arguments = {"dtype": "quint8", "qscheme": FLOAT_QPARAMS, "averaging_constant": 0.3}
    found.append(("MovingAveragePerChannelMinMaxObserver", arguments))
    for bins in (2048, 64):
        for dtype, scheme in itertools.product(("qint8", "quint8"), TENSOR):
            arguments = {"dtype": dtype, "qscheme": scheme, "bins": bins}
            found.append(("HistogramObserver", arguments))
    return [*found, *((name, {}) for name in sorted({name for name, _ in found}))]


def constants(arguments: dict[str, object]) -> dict[str, object]:
    """With torch's own constants in place of their names."""
    return {k: getattr(torch, v) if isinstance(v, str) else v for k, v in arguments.items()}


def quantized(w: torch.Tensor, observer: ao.ObserverBase) -> np.ndarray:
    """As torch.ao's `_quantize_weight`, in the observer's dtype; uint8, whatever that is."""
    scale, zero = observer.calculate_qparams()
    if observer.qscheme in (torch.per_tensor_symmetric, torch.per_tensor_affine):
        q = torch.quantize_per_tensor(w, float(scale), int(zero), observer.dtype)
    elif observer.qscheme == torch.per_channel_affine_float_qparams:
        q = torch.quantize_per_channel(w, scale, zero, observer.ch_axis, observer.dtype)
    else:
        q = torch.quantize_per_channel(
            w, scale.double(), zero.long(), observer.ch_axis, observer.dtype
        )
    integers = q.int_repr().clamp(observer.quant_min, observer.quant_max)
    return integers.contiguous().numpy().view(np.uint8)


def record() -> None:
    """Writes the file: `input`, `scale`, `zero_point` and `q` one after the other, and `index`."""
    tensors = weights()
    index: dict[str, list[object]] = {"inputs": [], "cases": []}
    scales, zeros, integers = [], [], []
    for name, arrays in tensors.items():
        index["inputs"].append([name, len(arrays), arrays[0].shape])
    for kind, arguments in cases():
        for name, arrays in tensors.items():
            observer = getattr(ao, kind)(**constants(arguments))
            for array in arrays:
                observer(torch.from_numpy(array))
            scale, zero = observer.calculate_qparams()
            held = bool(torch.isfinite(scale).all())
            scales.append(scale.numpy())
            zeros.append(zero.float().numpy())
            if held:
                integers.append(quantized(torch.from_numpy(arrays[-1]), observer).reshape(-1))
            row = [kind, arguments, name, scale.numel(), held, str(zero.dtype)]
            index["cases"].append(row)
    np.savez_compressed(
        OUT,
        index=np.array(json.dumps(index)),
        input=np.concatenate([a.reshape(-1) for arrays in tensors.values() for a in arrays]),
        scale=np.concatenate(scales),
        zero_point=np.concatenate(zeros),
        q=np.concatenate(integers),
    )
    print(
        f"{OUT}: {len(index['cases'])} cases, {OUT.stat().st_size} bytes, torch {torch.__version__}"
    )


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record()
