"""A plugin of pytest that keeps what models of Octavo's operators make of their inputs.

`python -m pytest -p tests.windows.recorder` with OCTAVO_RECORD=folder writes a pickle of `Case` for
each process. A model is kept once, with its first inputs, if its nodes are Octavo's or only move
values, so that the same bits are due on another system, and if it is small.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from octavo.ir import DOMAIN
from tests.windows.cases import Case, Outcome

MOST = 4 << 20  # bytes of a model and of its inputs
MOVING = {"Cast", "Concat", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze"}
MOVING |= {"Transpose", "Unsqueeze"}
UNREGISTERED = "is not a registered function"  # of a session that was not given the operators


def complete(session: ort.InferenceSession, names: Any, feeds: Any) -> bool:
    """Whether a run is of arrays, and gives all outputs."""
    if not all(isinstance(array, np.ndarray) for array in feeds.values()):
        return False
    everything = [output.name for output in session.get_outputs()]
    return (names or everything) == everything and sum(a.nbytes for a in feeds.values()) <= MOST


class Recorder:
    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.test = ""
        self.seen: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.test = item.nodeid
        yield
        self.test = ""

    def model(self, given: Any) -> tuple[bytes, frozenset[str]] | None:
        """The bytes and the operators of a model that is worth keeping and was not met before."""
        if not self.test:
            return None
        whole = onnx.load_model_from_string if isinstance(given, bytes) else onnx.load
        model = whole(given)  # with the data that lies beside a file
        data = model.SerializeToString()
        mark = hashlib.sha256(data).hexdigest()
        ours = {node.op_type for node in model.graph.node if node.domain == DOMAIN}
        others = {node.op_type for node in model.graph.node if node.domain != DOMAIN}
        if not ours or not others <= MOVING or len(data) > MOST or mark in self.seen:
            return None
        self.seen.add(mark)
        return data, frozenset(ours)

    def keep(self, kept: tuple[bytes, frozenset[str]], threads: int, **of: Any) -> None:
        self.cases.append(Case(self.test, kept[1], kept[0], threads, **of))

    def watch(self) -> None:
        """Puts a reader into InferenceSession's constructor and `run`."""
        recorder, session = self, ort.InferenceSession
        opened, ran = session.__init__, session.run

        def init(self: Any, given: Any, sess_options: Any = None, *rest: Any, **more: Any) -> None:
            kept = recorder.model(given)
            threads = sess_options.intra_op_num_threads if sess_options is not None else 1
            self.recorded = (kept, threads) if kept else None
            try:
                opened(self, given, sess_options, *rest, **more)
            except Exception as error:
                if kept and UNREGISTERED not in str(error):
                    recorder.keep(kept, threads, feeds={}, outcome=Outcome(error=str(error)))
                raise

        def run(self: Any, names: Any, feeds: Any, *rest: Any) -> Any:
            recorded, self.recorded = self.recorded, None
            if not recorded or not complete(self, names, feeds):
                return ran(self, names, feeds, *rest)
            of = {"feeds": {name: array.copy() for name, array in feeds.items()}}
            try:
                outputs = ran(self, names, feeds, *rest)
            except Exception as error:
                recorder.keep(*recorded, **of, outcome=Outcome(error=str(error)))
                raise
            if all(array.dtype == np.float32 for array in outputs):
                outcome = Outcome(tuple(array.copy() for array in outputs))
                recorder.keep(*recorded, **of, outcome=outcome)
            return outputs

        session.__init__, session.run = init, run

    def pytest_sessionfinish(self) -> None:
        file = Path(os.environ["OCTAVO_RECORD"]) / f"{os.getpid()}.pickle"
        file.write_bytes(pickle.dumps(self.cases))


def pytest_configure(config: pytest.Config) -> None:
    recorder = Recorder()
    recorder.watch()
    config.pluginmanager.register(recorder)
