"""Ctrl-C and `kill -9` at moments spread over whole conversions, verification included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.files.metadata import metadata
from octavo.files.staging import PREFIX
from octavo.onnx import quantize_dynamic
from tests.graphs import mlp, normal, run, save, snapshot

MOMENTS = 24 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 6
LAYERS, WIDTH = 16, 512  # takes about a quarter of a second

# Forks a child for each conversion, so that most imports are paid for once; all but ONNX Runtime's,
# whose threads do not survive a fork. The clock starts when the child starts to convert. The server
# is the child's parent, so the process that gets the signal is the child and no other.
SERVER = """
import atexit, json, os, signal, sys, time
import numpy, onnx.reference, onnx_ir.passes.common, onnxscript.version_converter, pydantic
print("ready", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        import octavo.onnx.quantize
        os.write(begin, b".")
        code = 0
        try:
            octavo.onnx.quantize.quantize_dynamic(job["source"], job["out"], **job["options"])
            os.write(begin, b".")
        except KeyboardInterrupt:
            code = 130
        atexit._run_exitfuncs()
        os._exit(code)  # taking an interpreter with so many modules apart takes a second
    os.close(begin)
    os.read(begun, 1)
    started = time.monotonic()
    if job["stop"]:
        time.sleep(job["after"])
        for _ in range(job["times"]):
            os.kill(child, job["stop"])
            time.sleep(0.002)
    else:
        os.read(begun, 1)
    seconds = time.monotonic() - started
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(begun)
    print(json.dumps([code, seconds]), flush=True)
"""


@dataclass
class Server:
    process: subprocess.Popen[str]

    def convert(
        self,
        source: Path,
        out: Path,
        options: dict[str, Any],
        stop: int = 0,
        after: float = 0.0,
        times: int = 1,
    ) -> tuple[int, float]:
        """Exit code and duration of a conversion that gets the signal `stop` after some seconds."""
        assert self.process.stdin is not None and self.process.stdout is not None
        job = {"source": str(source), "out": str(out), "options": options, "stop": stop}
        self.process.stdin.write(json.dumps({**job, "after": after, "times": times}) + "\n")
        self.process.stdin.flush()
        code, seconds = json.loads(self.process.stdout.readline())
        return code, seconds


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    return save(mlp(LAYERS, WIDTH), folder / "m.onnx", external="m.data")


def content(folder: Path) -> dict[str, str]:
    """Hash of every file that is not hidden."""
    return {n: h for n, (h, _) in snapshot(folder).items() if not n.startswith(PREFIX)}


def debris(folder: Path) -> list[Path]:
    return [p for p in folder.iterdir() if p.name.startswith(PREFIX)]


@dataclass
class Stopped:
    """What a conversion that was stopped left."""

    untouched: bool
    debris: bool


def stop_at(
    server: Server, source: Path, folder: Path, stop: int, after: float, old: Path | None
) -> Stopped:
    """Stops a conversion; the output is the old one untouched or a new one, whole."""
    out = folder / "out.onnx"
    before = snapshot(source.parent)
    if old is not None:
        quantize_dynamic(old, out, use_external_data_format=True, verify=False)
    there = content(folder)
    options = {"use_external_data_format": old is not None}
    code, _ = server.convert(source, out, options, stop, after)
    assert code in (0, 130 if stop == signal.SIGINT else -stop)
    hidden = debris(folder)
    assert len(hidden) <= (code == -signal.SIGKILL)
    now = content(folder)
    assert now == there or works(out)
    if hidden:  # the next run ends what was begun: an old data file may have stayed until then
        quantize_dynamic(mlp(), folder / "next.onnx", verify=False)
        (folder / "next.onnx").unlink()
        assert not debris(folder)
    assert content(folder) == there or is_complete(out, external=old is not None)
    assert snapshot(source.parent) == before
    return Stopped(now == there, bool(hidden))


def is_complete(out: Path, external: bool) -> bool:
    """A model that loads, with its data file if it has one, and nothing else beside it."""
    data = metadata(out).get("octavo.data_file")
    beside = {p.name for p in out.parent.iterdir() if not p.name.startswith(PREFIX)}
    assert beside == {out.name} | ({data} if data else set()) and (data is not None) == external
    return works(out)


def works(out: Path) -> bool:
    """Whether the model loads, and gives numbers."""
    y = run(out, {"x": normal(2, WIDTH)})[0]
    return bool(np.isfinite(y).all() and y.any())


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, id="kill -9"),
    ],
)
def test_stopped_at_any_moment(server: Server, source: Path, tmp_path: Path, stop: int) -> None:
    """Each second time the output replaces one with external data by another such.

    When exactly a conversion writes depends on what else the machine does: three rounds at most.
    """
    old = save(mlp(2, 64, seed=3), source.parent.parent / "old.onnx")
    seconds = []
    for external in (False, True):
        options = {"use_external_data_format": external}
        whole = [server.convert(source, tmp_path / f"{external}.onnx", options) for _ in range(2)]
        assert [code for code, _ in whole] == [0, 0]
        seconds.append(min(duration for _, duration in whole))
    for turn in range(3):
        results = []
        for moment in range(MOMENTS):
            folder = tmp_path / f"{turn}-{moment}"
            folder.mkdir()
            after = seconds[moment % 2] * (moment + 0.5) / MOMENTS
            replaced = old if moment % 2 else None
            results.append(stop_at(server, source, folder, stop, after, replaced))
        untouched, left = (sum(r.untouched for r in results), sum(r.debris for r in results))
        if untouched >= MOMENTS // 3 and left >= (stop == signal.SIGKILL) * MOMENTS // 6:
            return
    pytest.fail(f"of {MOMENTS} moments {untouched} were before the end, {left} left debris")


def test_ctrl_c_twice(server: Server, source: Path, tmp_path: Path) -> None:
    """Whoever is in a hurry presses it again."""
    code, _ = server.convert(source, tmp_path / "out.onnx", {}, signal.SIGINT, 0.15, times=3)
    assert code >= 0 or code == -signal.SIGINT
    assert not debris(tmp_path)
