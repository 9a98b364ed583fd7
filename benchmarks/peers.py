"""How each peer runs one linear layer or one convolution, in the cheapest way that it offers.

A peer is a function of weights and threads that returns a layer; a layer takes its input once and
returns a `Bound`, whose `run` is what is timed. ONNX Runtime is called through IO binding with its
output in place (`run` with a numpy input took 2 to 15 us more), PyTorch under `inference_mode`,
OpenVINO with both tensors preset: see `peers_openvino`.

Pools keep spinning, as they do by default: ONNX Runtime's int8 layer of 1 x 768 x 768 took 21 us at
two threads with it and 32 without. `timing.idle` is what keeps them from each other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import onnx_layers

Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Bound:
    """A layer with its input: `run` computes, `output` is what the last run computed."""

    run: Callable[[], object]
    output: Callable[[], Float32]


Layer = Callable[[Float32], Bound]
LinearPeer = Callable[[Float32, Float32, int], Layer]  # weight [N, K], bias [N], threads


def torch_bound(module: Any, x: Float32, read: Callable[[Any], Any] = lambda y: y) -> Bound:
    """`module` called with `x`; `read` picks the output from what it returns."""
    import torch

    given = torch.from_numpy(x)

    def output() -> Float32:
        with torch.inference_mode():
            return np.asarray(read(module(given)), np.float32)

    return Bound(lambda: module(given), output)


def torch_linear_module(w: Float32, bias: Float32) -> Any:
    """A `torch.nn.Linear` of these weights."""
    import torch

    module = torch.nn.Linear(w.shape[1], w.shape[0])
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(w))
        module.bias.copy_(torch.from_numpy(bias))
    return module


def torch_linear(w: Float32, bias: Float32, threads: int) -> Layer:
    """`torch.nn.Linear`."""
    return partial(torch_bound, torch_linear_module(w, bias))


def torch_int8(module: Any, engine: str) -> Any:
    """`torch.ao.quantization.quantize_dynamic` of the one layer `module`, packed for `engine`."""
    import torch

    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated since 2.10, and still what there is
            outer = torch.ao.quantization.quantize_dynamic(
                torch.nn.Sequential(module), {type(module)}, dtype=torch.qint8
            )
    finally:
        torch.backends.quantized.engine = before
    if type(outer[0]) is type(module):
        raise RuntimeError(f"PyTorch left {module} in float")
    return outer[0]


def torch_int8_linear(w: Float32, bias: Float32, threads: int, *, engine: str) -> Layer:
    """`torch.nn.Linear` after `quantize_dynamic`."""
    return partial(torch_bound, torch_int8(torch_linear_module(w, bias), engine))


def onnx_layer(model: bytes, threads: int) -> Layer:
    """A model of one input and one output in ONNX Runtime, every optimization on."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given, made = session.get_inputs()[0].name, session.get_outputs()[0].name

    def bind(x: Float32) -> Bound:
        y: Float32 = np.empty_like(session.run([made], {given: x})[0])
        binding = session.io_binding()
        binding.bind_input(given, "cpu", 0, np.float32, x.shape, x.ctypes.data)
        binding.bind_output(made, "cpu", 0, np.float32, y.shape, y.ctypes.data)

        def run(keep: tuple[Float32, Float32] = (x, y)) -> None:  # the binding has addresses only
            session.run_with_iobinding(binding)

        def output() -> Float32:
            run()
            return y

        return Bound(run, output)

    return bind


def onnx_linear(w: Float32, bias: Float32, threads: int) -> Layer:
    """A float Gemm, which is what ONNX Runtime makes of MatMul and Add too."""
    return onnx_layer(onnx_layers.gemm(w, bias), threads)


def onnx_int8_linear(w: Float32, bias: Float32, threads: int) -> Layer:
    """DynamicQuantizeMatMul with int8 weights, per channel."""
    return onnx_layer(onnx_layers.dynamic_quantize_matmul(w, bias), threads)


def _openvino_linear(w: Float32, bias: Float32, threads: int) -> Layer:
    from benchmarks.peers_openvino import linear

    return linear(w, bias, threads)


TORCH, TORCH_X86, TORCH_ONEDNN = "torch fp32", "torch int8 x86", "torch int8 onednn"
ONNX, ONNX_INT8, OPENVINO = "ONNX Runtime fp32", "ONNX Runtime int8", "OpenVINO INT8"
LINEAR: Mapping[str, LinearPeer] = {
    TORCH: torch_linear,
    TORCH_X86: partial(torch_int8_linear, engine="x86"),
    TORCH_ONEDNN: partial(torch_int8_linear, engine="onednn"),
    ONNX: onnx_linear,
    ONNX_INT8: onnx_int8_linear,
    OPENVINO: _openvino_linear,
}


def onnx_conv(w: Float32, bias: Float32, padding: int, groups: int, threads: int) -> Layer:
    """A float Conv in ONNX Runtime; `w` is [out, in / groups, height, width]."""
    return onnx_layer(onnx_layers.conv(w, bias, padding, groups), threads)


def torch_conv(w: Float32, bias: Float32, padding: int, groups: int, threads: int) -> Layer:
    """`torch.nn.functional.conv2d`, float."""
    import torch

    weight, b = torch.from_numpy(w), torch.from_numpy(bias)

    def module(x: Any) -> Any:
        return torch.nn.functional.conv2d(x, weight, b, padding=padding, groups=groups)

    return partial(torch_bound, module)
