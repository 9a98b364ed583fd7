"""A whole model in OpenVINO, beside ONNX Runtime's sessions; `peers_openvino` has the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers_openvino
from benchmarks.peers_openvino import GROUP
from benchmarks.zoo.sessions import Array, Feed


def write_compressed(model: Path, folder: Path) -> Path:
    """The ONNX file `model` with weights compressed by NNCF, as `.xml` and `.bin` in `folder`."""
    import openvino

    path = folder / f"{model.stem}.openvino.xml"
    compressed = peers_openvino.compress(openvino.convert_model(str(model)))
    openvino.save_model(compressed, str(path), compress_to_fp16=False)
    return path


class OpenVinoSession:
    """The `.xml` file of a model, compiled anew for each shape of its inputs.

    `group` is the DYNAMIC_QUANTIZATION_GROUP_SIZE.
    """

    def __init__(self, path: Path, threads: int = 1, group: int = GROUP) -> None:
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
        settings = peers_openvino.settings(self._threads, self._group)
        compiled = self._core.compile_model(fixed, "CPU", settings)
        peers_openvino.check(compiled, self._group)
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
