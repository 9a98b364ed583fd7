"""OpenVINO: weights compressed by NNCF, activations quantized as they come; layers and models.

What was found cheapest: a model of fixed shape (a dynamic one took 0 to 30% more), both tensors
preset and `infer`, not `start_async`, which took 40 us more for its thread.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.peers import Bound, Float32, Layer
from benchmarks.zoo.sessions import Array, Feed

Mode = Literal["INT8_ASYM", "INT8_SYM", "INT4_SYM"]
INTEGERS = ("u8", "i8", "u4", "i4")
GROUP = 128  # of DYNAMIC_QUANTIZATION_GROUP_SIZE


def linear(w: Float32, bias: Float32, threads: int, mode: Mode = "INT8_ASYM") -> Layer:
    """`x @ w.T + bias` with int8 weights; both modes take the same time."""
    import openvino

    core = openvino.Core()
    model = compressed(w, bias, mode)

    def bind(x: Float32) -> Bound:
        fixed = model.clone()
        fixed.reshape(list(x.shape))
        compiled = core.compile_model(fixed, "CPU", settings(threads))
        check(compiled)
        request, y = compiled.create_infer_request(), np.empty((len(x), len(w)), np.float32)
        request.set_input_tensor(openvino.Tensor(x, shared_memory=True))
        request.set_output_tensor(openvino.Tensor(y, shared_memory=True))

        def run() -> None:
            request.infer(share_outputs=True)

        def output() -> Float32:
            run()
            return y

        return Bound(run, output)

    return bind


def settings(threads: int, group: int | None = GROUP) -> dict[str, object]:
    """Of a compiled model: dynamic quantization by groups, and float32 between the layers.

    None leaves the groups to OpenVINO.
    """
    groups = {} if group is None else {"DYNAMIC_QUANTIZATION_GROUP_SIZE": group}
    return {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        **groups,
    }


def compressed(w: Float32, bias: Float32, mode: Mode) -> Any:
    """The one layer after `nncf.compress_weights`."""
    import openvino
    import openvino.opset13 as ops

    x = ops.parameter([-1, w.shape[1]], np.float32)
    y = ops.add(ops.matmul(x, ops.constant(w), False, True), ops.constant(bias[None]))
    return compress(openvino.Model([y], [x]), mode)


def compress(model: Any, mode: Mode = "INT8_ASYM", **options: Any) -> Any:
    """`model`, an `openvino.Model`, after `nncf.compress_weights`: a user's steps, and no more."""
    # Without this NNCF starts a process at every call, to tell its makers of it. Its import makes
    # every logger of the program one of its own class.
    os.environ["NNCF_CI"], loggers = "1", logging.getLoggerClass()
    import nncf

    logging.setLoggerClass(loggers)
    logging.getLogger("nncf").setLevel(logging.ERROR)  # its set_log_level quiets everybody
    # It prints tables and progress on stdout, which is where a child process answers.
    with contextlib.redirect_stdout(io.StringIO()):
        return nncf.compress_weights(model, mode=nncf.CompressWeightsMode[mode], **options)


def check(compiled: Any, group: int | None = GROUP) -> None:
    """Raises RuntimeError unless weights went in as integers and dynamic quantization is on.

    Most of them: what OpenVINO computes of constants, as DeBERTa's positions, are float weights.
    """
    found = compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
    if not found or found != (found if group is None else group):
        raise RuntimeError("OpenVINO does not quantize activations")
    layers = [
        op
        for op in compiled.get_runtime_model().get_ops()
        if op.get_rt_info()["layerType"].astype(str) == "FullyConnected"
    ]
    if not layers:
        raise RuntimeError("OpenVINO runs no FullyConnected")
    kinds = [op.input(1).get_source_output().get_element_type() for op in layers]
    others = [kind for kind in kinds if kind.get_type_name() not in INTEGERS]
    if 2 * len(others) >= len(kinds):
        raise RuntimeError(f"OpenVINO runs weights of {others[0]}")


def write_compressed(model: Path, folder: Path) -> Path:
    """The ONNX file `model` with weights compressed by NNCF, as `.xml` and `.bin` in `folder`."""
    import openvino

    path = folder / f"{model.stem}.openvino.xml"
    compressed = compress(openvino.convert_model(str(model)))
    openvino.save_model(compressed, str(path), compress_to_fp16=False)
    return path


def write_int4(model: Path, out: Path, group: int) -> Path:
    """The ONNX file `model` with weights of 4 bits in groups, as `out` and its `.bin`."""
    import openvino

    compressed = compress(openvino.convert_model(str(model)), "INT4_SYM", group_size=group)
    openvino.save_model(compressed, str(out), compress_to_fp16=False)
    return out


class OpenVinoSession:
    """The `.xml` file of a model, compiled anew for each shape of its inputs.

    `group` is the DYNAMIC_QUANTIZATION_GROUP_SIZE; None leaves it to OpenVINO.
    """

    def __init__(self, path: Path, threads: int = 1, group: int | None = GROUP) -> None:
        import openvino

        self._core = openvino.Core()
        self._model = self._core.read_model(str(path))
        self._threads, self._group = threads, group

    def get_inputs(self) -> Sequence[Any]:
        """OpenVINO's own; each has `any_name`."""
        return list(self._model.inputs)

    def bound(self, feed: Feed) -> Callable[[], object]:
        """What runs the model on `feed`; it returns the request, with the outputs in it."""
        import openvino

        fixed = self._model.clone()
        fixed.reshape({name: list(value.shape) for name, value in feed.items()})
        chosen = settings(self._threads, self._group)
        compiled = self._core.compile_model(fixed, "CPU", chosen)
        check(compiled, self._group)
        request = compiled.create_infer_request()
        for name, value in feed.items():
            request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(value)))

        def run() -> object:
            request.infer(share_outputs=True)
            return request

        return run

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[Array]:
        """All outputs in order; `output_names` picks none of them."""
        request: Any = self.bound(input_feed)()
        return [np.array(tensor.data) for tensor in request.output_tensors]
