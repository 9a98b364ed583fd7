"""How each peer runs an LSTM or a GRU. See `peers` for what a peer is.

The states start at zero; only the output of all steps is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from benchmarks import onnx_layers
from benchmarks.peers import Float32, Layer, onnx_layer, torch_bound, torch_int8
from benchmarks.variants import onnxruntime_quantize

Kind = Literal["LSTM", "GRU"]
GATES: Mapping[Kind, int] = {"LSTM": 4, "GRU": 3}


@dataclass(frozen=True)
class Rnn:
    """One recurrent module; its inputs are as wide as its hidden state."""

    kind: Kind
    hidden: int
    layers: int = 1
    bidirectional: bool = False

    @property
    def ways(self) -> int:
        """Directions."""
        return 2 if self.bidirectional else 1

    @property
    def label(self) -> str:
        """`H256 x2 bidirectional`."""
        stacked = f" x{self.layers}" if self.layers > 1 else ""
        return f"H{self.hidden}{stacked}{' bidirectional' if self.bidirectional else ''}"

    def weights(self, seed: int = 0) -> list[Float32]:
        """PyTorch's flat list, uniform as PyTorch draws them."""
        random = np.random.default_rng(seed)
        bound, gates = self.hidden**-0.5, GATES[self.kind] * self.hidden
        found = []
        for layer in range(self.layers):
            width = self.hidden * (self.ways if layer else 1)
            shapes: list[tuple[int, ...]] = [(gates, width), (gates, self.hidden)]
            for shape in (*shapes, (gates,), (gates,)) * self.ways:
                found.append(random.uniform(-bound, bound, shape).astype(np.float32))
        return found


def _module(rnn: Rnn, weights: Sequence[Float32]) -> Any:
    import torch

    module = getattr(torch.nn, rnn.kind)(
        rnn.hidden, rnn.hidden, rnn.layers, bidirectional=rnn.bidirectional
    ).eval()
    with torch.no_grad():
        for mine, given in zip(module.parameters(), weights, strict=True):
            mine.copy_(torch.from_numpy(given))
    return module


def torch_float(rnn: Rnn, weights: Sequence[Float32], threads: int) -> Layer:
    """`torch.nn.LSTM` or `GRU`."""
    module = _module(rnn, weights)
    return lambda x: torch_bound(module, x, lambda made: made[0])


def torch_quantized(rnn: Rnn, weights: Sequence[Float32], threads: int) -> Layer:
    """The same after `quantize_dynamic`, on the engine that is the default on x86."""
    module = torch_int8(_module(rnn, weights), "x86")
    return lambda x: torch_bound(module, x, lambda made: made[0])


def onnx_float(rnn: Rnn, weights: Sequence[Float32], threads: int) -> Layer:
    """ONNX Runtime's float nodes, one for each layer."""
    return onnx_layer(_model(rnn, weights), threads)


def onnx_quantized(rnn: Rnn, weights: Sequence[Float32], threads: int) -> Layer:
    """The same after `quantize_dynamic`: DynamicQuantizeLSTM; there is no such GRU."""
    with TemporaryDirectory(prefix="octavo-rnn-") as folder:
        model, out = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        model.write_bytes(_model(rnn, weights))
        onnxruntime_quantize(model, out)
        made = out.read_bytes()
    if made.count(b"DynamicQuantizeLSTM") < rnn.layers:
        raise RuntimeError("ONNX Runtime left an LSTM in float")
    return onnx_layer(made, threads)


def _model(rnn: Rnn, weights: Sequence[Float32]) -> bytes:
    return onnx_layers.recurrent(rnn.kind, weights, rnn.hidden, rnn.layers, rnn.ways)


TORCH_INT8, ONNX, ONNX_INT8 = "torch int8", "ONNX Runtime fp32", "ONNX Runtime int8"


def peers(rnn: Rnn, weights: Sequence[Float32]) -> dict[str, partial[Layer]]:
    """The peers of its kind, by name; each takes `threads`."""
    others = {ONNX_INT8: onnx_quantized} if rnn.kind == "LSTM" else {ONNX: onnx_float}
    found = {TORCH_INT8: torch_quantized, **others}
    return {name: partial(peer, rnn, weights) for name, peer in found.items()}
