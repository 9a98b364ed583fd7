"""`octavo bench` from end to end: real files, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from octavo.cli import bench as cli_bench
from octavo.cli import main
from octavo.cli.bench_models import feeds
from octavo.core import ort_library
from octavo.core.feeds import batch, shape_text
from octavo.onnx import quantize_dynamic
from octavo.onnx.bench import BenchFile
from tests import graphs
from tests.graphs import F32, build, mlp, normal, save, snapshot

SHORT = ("--seconds", "0.3")
SHAPE = ("--shape", "x=4x32")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float.onnx, portable.onnx, native.onnx and large.onnx, which has 16 times the work."""
    folder = tmp_path_factory.mktemp("bench")
    save(mlp(2, 32), folder / "float.onnx")
    save(mlp(8, 128), folder / "large.onnx")
    for target in ("portable", "native"):
        quantize_dynamic(
            folder / "float.onnx", folder / f"{target}.onnx", target=target, verify=False
        )
    return folder


@pytest.fixture
def folder(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the processes in which memory is measured: they take most of the time."""
    monkeypatch.setattr(BenchFile, "peak_memory", lambda *_: 1)


def exits(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("bench", *arguments))
    return int(ended.value.code or 0)


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert exits(*arguments, "--json", *SHORT) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert exits(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_float_portable_native_and_onnxruntime(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    names = ["float.onnx", "portable.onnx", "native.onnx"]
    found = data(capsys, *names, *SHAPE, "--threads", "1", "--against", "ort")
    assert found["notes"] == []
    names.append("quantize_dynamic")
    assert [one["name"] for one in found["models"]] == names
    wanted = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    assert [(row["a"], row["b"]) for row in found["rows"]] == wanted
    for row in found["rows"]:
        assert (row["shape"], row["threads"]) == ("x=4x32", 1)
        assert row["low"] <= row["ratio"] <= row["high"]
        assert row["verdict"] in ("faster", "slower", "same", "noisy")
    for one in found["models"]:
        assert 1e-6 < one["low"] <= one["seconds"] <= one["high"] < 1
        assert one["per_second"] == pytest.approx(4 / one["seconds"])
        assert 1e-4 < one["load_seconds"] < 10
        assert 1e5 < one["peak_memory"] < 1e9
    assert found["models"][0]["bytes"] == (folder / "float.onnx").stat().st_size
    assert found["models"][3]["bytes"] < found["models"][0]["bytes"]
    assert snapshot(folder) == before


@pytest.mark.usefixtures("no_memory")
def test_each_shape_and_number_of_threads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = ("--shape", "x=1x32", "--shape", "x=64x32")
    found = data(capsys, "float.onnx", "portable.onnx", *shapes, "--threads", "1,2")
    groups = [(row["shape"], row["threads"]) for row in found["rows"]]
    assert groups == [("x=1x32", 1), ("x=1x32", 2), ("x=64x32", 1), ("x=64x32", 2)]


@pytest.mark.usefixtures("no_memory")
def test_a_plot_holds_each_model_and_stdout_the_result_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "speed.svg"
    plot.write_text("an older one")
    names = ("float.onnx", "portable.onnx")
    assert exits(*names, *SHAPE, *SHORT, "--json", "--plot", str(plot)) == 0
    out, err = capsys.readouterr()
    assert [row["b"] for row in json.loads(out)["rows"]] == ["portable.onnx"]
    assert f"{plot} is written" in err
    for name in names:
        assert f">{name}<" in plot.read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["speed.svg"]


@pytest.mark.real_time
@pytest.mark.usefixtures("no_memory")
def test_more_work_is_slower(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Their inputs differ in width, so that each is timed on inputs of its own.
    found = data(capsys, "float.onnx", "large.onnx", "--threads", "1")
    assert found["rows"][0]["shape"] == "x=8x32"
    assert found["rows"][0]["verdict"] == "slower"
    assert found["rows"][0]["ratio"] > 2
    (note,) = found["notes"]
    assert "large.onnx does not run" in note
    assert note.endswith("it is timed on inputs of its own: x=8x128")


@pytest.mark.usefixtures("no_memory")
def test_one_file_twice_and_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "float.onnx", "float.onnx")
    (row,) = found["rows"]
    assert (row["a"], row["b"], row["threads"]) == ("float.onnx", "float.onnx (2)", None)
    alone = data(capsys, "float.onnx")
    assert alone["rows"] == []
    assert alone["models"][0]["seconds"] > 0


def test_the_time_it_took_is_that_of_timing_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> int:
        time.sleep(0.5)
        return 1

    monkeypatch.setattr(BenchFile, "peak_memory", slow)
    start = time.perf_counter()
    found = data(capsys, "float.onnx")
    assert "processor" in found["machine"]
    assert 0 < found["seconds"] < time.perf_counter() - start - 0.5


def test_piped_output_is_plain(folder: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from octavo.cli import main; main()", "bench"),
            *("float.onnx", "portable.onnx", *SHAPE, "--threads", "1", *SHORT),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "inputs x=4x32, 1 thread"
    assert lines[1].split() == ["model", "latency", "spread", "per", "s", "load", "memory", "size"]
    assert lines[2].startswith("float.onnx ")
    assert "\x1b" not in done.stdout


# --- what fails ---


@pytest.mark.parametrize(
    ("before", "dtype", "reason"),
    [
        # Shapes, and with them types, are not inferred past an operator of another domain.
        ("FastGelu", np.float32, "RuntimeError: Unable to find data type"),
        # It writes a file that cannot be opened: DynamicQuantizeLinear takes no float16.
        ("Relu", np.float16, "quantize_dynamic: ONNX Runtime .* cannot open it"),
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_what_onnxruntime_does_not_quantize_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], before: str, dtype: Any, reason: str
) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    domain = "com.microsoft" if before == "FastGelu" else ""
    model = graphs.build(
        [
            graphs.node(before, ["x"], ["h"], domain=domain),
            graphs.node("MatMul", ["h", "w"], ["p"]),
            graphs.node("Relu", ["p"], ["y"]),
        ],
        {"x": (kind, (4, 16))},
        {"y": (kind, None)},
        {"w": normal(16, 8).astype(dtype)},
    )
    save(model, folder / "odd.onnx")
    found = data(capsys, "odd.onnx", "--against", "ort", "--threads", "1")
    assert [one["name"] for one in found["models"]] == ["odd.onnx"]
    (note,) = found["notes"]
    assert re.match(f"quantize_dynamic of odd.onnx is not timed: .*{reason}", note)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "ids=1x8"), r"ids.*no such input.*Known: x"),
        (("--shape", "x=1x9"), "x.*does not fit the model's"),
        (("--shape", "x:1"), r"is not NAME=SIZExSIZE"),
        (("--threads", "0"), r"--threads '0': give numbers above 0"),
        (("--threads", "1;2"), r"--threads '1;2': give numbers above 0 with commas, such as 1,2"),
        (("--seconds", "0"), r"--seconds 0: give a number above 0"),
        (("--seconds", "inf"), r"--seconds inf: give a number above 0"),
        (("--against", "openvino"), r"--against.*openvino.*ort"),
        (("package.models:build",), r"names a PyTorch model.*octavo\.measure\.bench"),
    ],
)
def test_wrong_options(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    said = refused(capsys, "float.onnx", *arguments)
    assert re.search(message, " ".join(said.split())), said
    assert "Traceback" not in said


def test_no_model_and_a_missing_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exits() == 2
    capsys.readouterr()
    assert exits("float.onnx", "absent.onnx") == 3
    assert "absent.onnx does not exist" in capsys.readouterr().err
    (folder / "text.onnx").write_text("not a model")
    assert exits("text.onnx") == 3
    assert "text.onnx is not an ONNX model" in capsys.readouterr().err


def test_a_native_file_without_its_library(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_library, "LIBRARY", "libmissing.so")
    assert exits("float.onnx", "native.onnx", *SHAPE) == 3
    said = capsys.readouterr().err
    assert "native.onnx: " in said
    assert "libmissing.so is missing: octavo is not installed whole" in said


def test_memory_that_cannot_be_measured_is_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.core import fresh_process

    monkeypatch.setattr(fresh_process, "_STATUS", folder / "absent")
    found = data(capsys, "float.onnx")
    assert found["models"][0]["peak_memory"] is None
    assert found["notes"] == [
        "peak memory is not known: peak memory is read from /proc, which only Linux has"
    ]


# --- the parts ---


def test_all_files_get_the_same_inputs(folder: Path) -> None:
    files = [BenchFile(folder / name) for name in ("native.onnx", "float.onnx", "portable.onnx")]
    found, notes = feeds(files, {"x": (3, 32)})
    assert notes == []
    assert all(feed is found[0] for feed in found)
    assert shape_text(found[0]) == "x=3x32"


def test_a_batch_is_what_all_inputs_begin_with() -> None:
    assert batch({"a": np.zeros((4, 2)), "b": np.zeros(4)}) == 4
    assert batch({"a": np.zeros((4, 2)), "b": np.zeros(3)}) == 1
    assert batch({"a": np.zeros(())}) == 1


def test_sizes_count_data_files(tmp_path: Path) -> None:
    path = save(mlp(1, 64), tmp_path / "m.onnx", external="m.data")
    assert BenchFile(path).bytes == path.stat().st_size + (tmp_path / "m.data").stat().st_size


@pytest.mark.usefixtures("no_memory")
def test_two_inputs_of_one_shape(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("MatMul", ["a", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])
    inputs = [("a", F32, ["n", 8]), ("b", F32, ["n", 8])]
    model = build(node, inputs, [("y", F32, ["n", 8])], {"w": normal(8, 8)})
    save(model, folder / "two.onnx")
    assert data(capsys, "two.onnx", "two.onnx")["rows"][0]["shape"] == "a=8x8,b=8x8"
    asked = data(capsys, "two.onnx", "two.onnx", "--shape", "a=5x8,b=5x8")
    assert asked["rows"][0]["shape"] == "a=5x8,b=5x8"


@pytest.mark.parametrize(
    ("text", "counts"), [(None, [None]), ("1", [1]), ("2, 1", [2, 1]), ("1,1", [1])]
)
def test_threads(text: str | None, counts: list[int | None]) -> None:
    assert cli_bench.threads_of(text) == counts
