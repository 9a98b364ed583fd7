"""The check of exported files: each runs in ONNX Runtime and is compared with the float model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.core.cpu import saturates
from octavo.core.kernels import cpu_features
from octavo.core.masked_rows import Padding, of_tokens
from octavo.core.metrics import cosine_error, relative_error
from octavo.core.ort_library import custom_ops_library
from octavo.errors import ModelError, VerificationError, brief, typed
from octavo.files.exact_products import DATA_FOLDER, with_exact_products
from octavo.results.report import Verification
from octavo.torch.hub.export_parts import Example, Part

Array = npt.NDArray[Any]


class Check:
    """What a model gave before it was quantized, and how far its files are from that.

    Raises ModelError where the model fails on the calls that are made up for it.
    """

    def __init__(
        self, files: Sequence[Part], max_error: float, progress: Callable[[str, int, int], None]
    ) -> None:
        self._max_error = max_error
        self._error = self._cosine_error = 0.0
        self._left_out = 0
        self._ran: list[str] = []
        self._wanted: dict[str, list[list[Array]]] = {}
        for i, part in enumerate(files):
            progress("running the float model", i, len(files))
            self._wanted[part.file] = [_outputs(part, example) for example in part.examples]

    def compare(self, part: Part, path: Path) -> None:
        """Run the file at `path`. Raises VerificationError if too far from the float model."""
        session = _open(path)
        known = of_tokens(session.get_inputs(), session.get_outputs())
        for example, wanted in zip(part.examples, self._wanted[part.file], strict=True):
            feed = {name: tensor.numpy() for name, tensor in example.items()}
            try:
                found = session.run(None, feed)
            except Exception as error:  # ONNX Runtime's own types
                raise VerificationError(
                    f"{path.name} does not run on {_shapes(example)}: {brief(error)}"
                ) from error
            padding = Padding.of(feed, known)
            for name, one, other in zip(part.outputs, wanted, found, strict=True):
                one, other = padding.seen(name, one, other)  # noqa: PLW2901
                self._distance(f"{name} of {path.name}", one, other, example)
            self._left_out += padding.rows
            self._ran.append(f"{path.name} on {_shapes(example)}")

    def _distance(self, name: str, wanted: Array, found: Array, example: Example) -> None:
        if wanted.shape != found.shape:
            raise VerificationError(
                f"{name} is {found.shape}, and the float model's {wanted.shape}, on "
                f"{_shapes(example)}"
            )
        if not np.isfinite(found).all() and np.isfinite(wanted).all():
            raise VerificationError(f"{name} holds non-finite numbers on {_shapes(example)}")
        error = relative_error(wanted, found)
        if error > self._max_error:
            raise VerificationError(
                f"{name} differs from the float model's by {error:.4g} (at most "
                f"{self._max_error:g}) on {_shapes(example)}, which were made up. Leave layers "
                "float (exclude), or take the recipe int8-accurate"
            )
        self._error = max(self._error, error)
        self._cosine_error = max(self._cosine_error, cosine_error(wanted, found))

    def verification(self) -> Verification:
        """Return what the check found, for the report."""
        return Verification(
            "passed",
            "made up",
            len(self._ran),
            self._error,
            self._cosine_error,
            self._max_error,
            ran_on="; ".join(self._ran),
            padding=self._left_out,
        )


def _outputs(part: Part, example: Example) -> list[Array]:
    try:
        with torch.no_grad():
            found = part.module(*example.values())
    except Exception as error:  # whatever a model's own code raises
        raise ModelError(
            f"{type(part.module.model).__name__} fails on {_shapes(example)}: {typed(error)}"
        ) from error
    return [tensor.float().numpy() for tensor in found]


def _open(path: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.register_custom_ops_library(custom_ops_library())
    model: str | bytes = str(path)
    if saturates(cpu_features()):
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.add_session_config_entry(DATA_FOLDER, str(path.parent))
        model = with_exact_products(path.read_bytes(), path.parent) or model
    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own types
        raise VerificationError(f"ONNX Runtime cannot open {path.name}: {brief(error)}") from error


def _shapes(example: Example) -> str:
    return ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in list(example.items())[:3])
