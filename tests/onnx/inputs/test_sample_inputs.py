"""Inputs of one sample, without the batch axis, and what does not fit in an evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import InputDataError
from octavo.onnx import OnnxTarget, quantize_dynamic
from tests.graphs import mlp, normal, save


def test_a_sample_a_line_is_a_run_each(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    lines = [json.dumps({"x": normal(32, seed=i).tolist()}) for i in range(7)]
    data.write_text("\n".join(lines))
    model = save(mlp(2, 32), tmp_path / "m.onnx")
    report = quantize_dynamic(model, tmp_path / "out.onnx", check_inputs=data)
    assert (report.verification.status, report.verification.runs) == ("passed", 7)
    one = quantize_dynamic(model, tmp_path / "out.onnx", check_inputs={"x": normal(32)})
    assert one.verification.runs == 1


def test_what_is_no_sample_is_refused_as_before(tmp_path: Path) -> None:
    model = save(mlp(2, 32), tmp_path / "m.onnx")
    with pytest.raises(InputDataError, match=r"has the shape \[31\]|has the shape \[1, 31\]"):
        quantize_dynamic(model, tmp_path / "out.onnx", check_inputs={"x": normal(31)})


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"x": normal(32)}, r"input 'x' has the shape \[32\], and the model takes \['m', 32\]"),
        ({"x": np.array(["[1 2]"], object)[None]}, "input 'x' holds texts, and the model takes"),
        ({"x_0": normal(4)}, r"no input 'x_0'.*A vector is one value, such as a column x of lists"),
    ],
)
def test_what_a_model_does_not_take_is_said_of_the_data(
    tmp_path: Path, feed: dict[str, np.ndarray], words: str
) -> None:
    target = OnnxTarget(save(mlp(2, 32), tmp_path / "m.onnx"))
    with pytest.raises(InputDataError, match=words):
        target.float_model().run(feed)
