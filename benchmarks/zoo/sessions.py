"""What the zoo asks of a model under measurement, and how it opens one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Feed = Mapping[str, Array]


@runtime_checkable
class Session(Protocol):
    """The part of ``onnxruntime.InferenceSession`` that the evaluations use."""

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> Sequence[Array]: ...

    def get_inputs(self) -> Sequence[Any]: ...


def open_session(path: str | os.PathLike[str], threads: int = 1) -> Session:
    """CPU session over the model file with every optimization on, as a user would load it.

    Files of target native get Octavo's operators; for all others it is `onnxruntime`'s own.
    """
    import onnxruntime

    from octavo.onnx import session

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # the exports' unused initializers are not worth a warning each
    return cast("Session", session(path, sess_options=options))
