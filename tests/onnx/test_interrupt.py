"""Ctrl-C and `kill -9` at moments spread over whole conversions, verification included."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from octavo.files.metadata import metadata
from octavo.files.staging import PREFIX
from octavo.onnx import quantize_dynamic
from tests import fresh
from tests.graphs import mlp, normal, run, save, snapshot

MOMENTS = 24 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 6
LAYERS, WIDTH = 16, 512  # takes about a quarter of a second

# Forks a child for each conversion, so that imports are paid for once.
CONVERT = """
import atexit, json, os, signal, sys, tempfile, time
import onnx.reference, onnx_ir.passes.common, onnxscript.version_converter, pydantic
from octavo.onnx.quantize import quantize_dynamic

source, jobs, stop, times = sys.argv[1], json.loads(sys.argv[2]), *map(int, sys.argv[3:])

def converted(out, external, after=None):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 0
        try:
            quantize_dynamic(source, out, use_external_data_format=external)
        except KeyboardInterrupt:
            code = 130
        atexit._run_exitfuncs()
        os._exit(code)  # taking an interpreter with so many modules apart takes a second
    if after is not None:
        time.sleep(after)
        for _ in range(times):
            os.kill(child, stop)
            time.sleep(0.002)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def seconds(external):
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        assert converted(folder + "/out.onnx", external) == 0
        return time.monotonic() - started

whole = {external: seconds(external) for _, external, _ in jobs[:2]}
codes = [converted(out, external, share * whole[external]) for out, external, share in jobs]
print(json.dumps(codes))
"""


def stopped(source: Path, outs: list[Path], stop: int, times: int = 1) -> list[int]:
    """The exit codes of conversions that get the signal at moments spread over their durations.

    Each second one has external data.
    """
    jobs = [(str(out), i % 2 == 1, (i + 0.5) / len(outs)) for i, out in enumerate(outs)]
    done = fresh.python(CONVERT, source, json.dumps(jobs), str(int(stop)), str(times))
    codes: list[int] = json.loads(done.stdout)
    return codes


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    return save(mlp(LAYERS, WIDTH), folder / "m.onnx", external="m.data")


def content(folder: Path) -> dict[str, str]:
    """Hash of every file that is not hidden."""
    return {n: h for n, (h, _) in snapshot(folder).items() if not n.startswith(PREFIX)}


def debris(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name.startswith(PREFIX)]


def is_complete(out: Path, external: bool) -> bool:
    """A model that loads, with its data file if it has one, and nothing else beside it."""
    data = metadata(out).get("octavo.data_file")
    beside = {p.name for p in out.parent.iterdir() if not p.name.startswith(PREFIX)}
    assert beside == {out.name} | ({data} if data else set()) and (data is not None) == external
    return works(out)


def works(out: Path) -> bool:
    y = run(out, {"x": normal(2, WIDTH)})[0]
    return bool(np.isfinite(y).all() and y.any())


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, id="kill -9"),
    ],
)
def test_stopped_at_any_moment(source: Path, tmp_path: Path, stop: int) -> None:
    """The output is the old one untouched or a new one, whole.

    Each second time it replaces one with external data by another such. When exactly a conversion
    writes depends on what else the machine does: three rounds at most.
    """
    old, before = mlp(2, 64, seed=3), snapshot(source.parent)
    for turn in range(3):
        outs = [tmp_path / f"{turn}-{moment}" / "out.onnx" for moment in range(MOMENTS)]
        for i, out in enumerate(outs):
            out.parent.mkdir()
            if i % 2:
                quantize_dynamic(old, out, use_external_data_format=True, verify=False)
        there = [content(out.parent) for out in outs]
        codes = stopped(source, outs, stop)
        untouched, left = 0, 0
        for i, (out, code) in enumerate(zip(outs, codes, strict=True)):
            folder = out.parent
            assert code in (0, 130 if stop == signal.SIGINT else -stop)
            hidden = debris(folder)
            assert len(hidden) <= (code == -signal.SIGKILL)
            now = content(folder)
            assert now == there[i] or works(out)
            if hidden:  # the next run ends what was begun: an old data file may have stayed so far
                quantize_dynamic(mlp(), folder / "next.onnx", verify=False)
                (folder / "next.onnx").unlink()
                assert not debris(folder)
            assert content(folder) == there[i] or is_complete(out, external=i % 2 == 1)
            untouched, left = untouched + (now == there[i]), left + len(hidden)
        assert snapshot(source.parent) == before
        if untouched >= MOMENTS // 3 and left >= (stop == signal.SIGKILL) * MOMENTS // 6:
            return
    pytest.fail(f"of {MOMENTS} moments {untouched} were before the end, {left} left debris")


def test_ctrl_c_twice(source: Path, tmp_path: Path) -> None:
    """Whoever is in a hurry presses it again."""
    (code,) = stopped(source, [tmp_path / "out.onnx"], signal.SIGINT, times=3)
    assert code >= 0 or code == -signal.SIGINT
    assert not debris(tmp_path)
