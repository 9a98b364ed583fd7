"""`octavo bench` from end to end: real files, and what it refuses."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.cli import bench as cli_bench
from octavo.cli.bench_models import feeds
from octavo.core import ort_library
from octavo.core.feeds import batch, shape_text
from octavo.errors import OptionError
from octavo.onnx import quantize_dynamic
from octavo.onnx.bench import BenchFile
from octavo.results.benchmark import Pair, Timed
from tests.cli_support import in_this_process, printed, run
from tests.graphs import mlp, normal, save, snapshot, text

SHORT = ("--seconds", "0.1")
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


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = printed(capsys, "bench", *arguments, *SHORT)
    return found


def test_float_native_and_onnxruntime(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = BenchFile.peak_memory  # of one: its process takes a second

    def peak_memory(file: BenchFile, feed: Any, threads: int | None) -> int:
        return measured(file, feed, threads) if file.name == "native.onnx" else 2**20

    monkeypatch.setattr(BenchFile, "peak_memory", peak_memory)
    before = snapshot(folder)
    names = ["float.onnx", "native.onnx"]
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
    assert found["models"][2]["bytes"] < found["models"][0]["bytes"]
    assert snapshot(folder) == before


@pytest.mark.usefixtures("no_memory")
def test_each_shape_and_number_of_threads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(openers: Mapping[str, Any], shape: str, threads: int, **_: Any) -> Any:
        timed = [Timed(name, shape, threads, *[1.0] * 4, runs=8) for name in openers]
        return [Pair(*openers, shape, threads, 1.0, 0.9, 1.1, 8)], timed

    monkeypatch.setattr("octavo.measure.benchmark.compare", compare)
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
    assert run("bench", *names, *SHAPE, *SHORT, "--json", "--plot", str(plot)) == 0
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


def test_the_time_it_took_is_that_of_timing_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> int:
        time.sleep(0.2)
        return 1

    monkeypatch.setattr(BenchFile, "peak_memory", slow)
    start = time.perf_counter()
    found = data(capsys, "float.onnx")
    assert "processor" in found["machine"]
    assert 0 < found["seconds"] < time.perf_counter() - start - 0.2


@pytest.mark.parametrize(
    ("before", "dtype", "reason"),
    [
        # Shapes, and with them types, are not inferred past an operator of another domain.
        ("com.microsoft.FastGelu", np.float32, "RuntimeError: Unable to find data type"),
        # It writes a file that cannot be opened: DynamicQuantizeLinear takes no float16.
        ("Relu", np.float16, "quantize_dynamic: ONNX Runtime .* cannot open it"),
    ],
)
@pytest.mark.usefixtures("no_memory")
def test_what_onnxruntime_does_not_quantize_is_said(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: str,
    dtype: Any,
    reason: str,
) -> None:
    if before == "Relu":  # the other error comes out of the quantizer's process
        monkeypatch.setattr("octavo.onnx.bench.call", in_this_process)
    kind = {np.float32: "float", np.float16: "float16"}[dtype]
    body = f"h = {before} (x) p = MatMul (h, w) y = Relu (p)"
    weights = {"w": normal(16, 8).astype(dtype)}
    save(text(body, f"{kind}[4, 16] x", f"{kind}[] y", weights), folder / "odd.onnx")
    found = data(capsys, "odd.onnx", "--against", "ort", "--threads", "1")
    assert [one["name"] for one in found["models"]] == ["odd.onnx"]
    (note,) = found["notes"]
    assert re.match(f"quantize_dynamic of odd.onnx is not timed: .*{reason}", note)


@pytest.mark.parametrize(
    "option", [("--threads", "0"), ("--seconds", "inf")], ids=lambda option: option[0]
)
def test_numbers_are_above_0_and_finite(
    folder: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    assert run("bench", "float.onnx", *option) == 2
    out, err = capsys.readouterr()
    assert out == "" and " ".join(option) in err.replace("'", "")


def test_a_native_file_without_its_library(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_library, "LIBRARY", "libmissing.so")
    assert run("bench", "float.onnx", "native.onnx", *SHAPE) == 3
    said = capsys.readouterr().err
    assert "native.onnx: " in said and "libmissing.so is missing" in said


def test_memory_that_cannot_be_measured_is_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.core import fresh_process

    monkeypatch.setattr(fresh_process, "_STATUS", folder / "absent")
    found = data(capsys, "float.onnx")
    assert found["models"][0]["peak_memory"] is None
    (note,) = found["notes"]
    assert note.startswith("peak memory is not known")


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
    body, inputs = "h = MatMul (a, w) y = Add (h, b)", "float[n, 8] a, float[n, 8] b"
    save(text(body, inputs, "float[n, 8] y", {"w": normal(8, 8)}), folder / "two.onnx")
    asked = data(capsys, "two.onnx", "two.onnx", "--shape", "a=5x8,b=5x8")
    assert asked["rows"][0]["shape"] == "a=5x8,b=5x8"
    assert asked["rows"][0]["b"] == "two.onnx (2)"
    alone = data(capsys, "two.onnx")
    assert alone["rows"] == []
    assert alone["models"][0]["shape"] == "a=8x8,b=8x8"
    assert alone["models"][0]["threads"] is None


@pytest.mark.parametrize(
    ("said", "counts"), [(None, [None]), ("1", [1]), ("2, 1", [2, 1]), ("1,1", [1])]
)
def test_threads(said: str | None, counts: list[int | None]) -> None:
    assert cli_bench.threads_of(said) == counts


def test_more_threads_than_processors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_bench, "usable_processors", lambda: 4)
    assert cli_bench.threads_of("4") == [4]
    with pytest.raises(OptionError, match=r"'1,5': .* may use 4 processors.* give at most 4"):
        cli_bench.threads_of("1,5")
