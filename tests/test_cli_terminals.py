"""What every command prints in a pipe, on terminals of 40 and 80 columns, with NO_COLOR, and on a
dumb one; with real models, whose layers have names longer than a line."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import octavo
from octavo.onnx import quantize_dynamic
from octavo.onnx.bench import BenchFile
from octavo.results.names import shortened
from tests.cli_support import run
from tests.graphs import mlp, save

NAMES = [
    f"/encoder/layer.{i}/attention/self/query/MatMul_with_a_name_that_goes_on_until_it_is_"
    "wider_than_a_terminal_of_eighty_columns"
    for i in range(2)
]
INT8 = "a_name_for_a_file_that_is_long_enough_to_be_folded_on_any_terminal_of_80_columns.onnx"
COMMANDS = {
    "quantize": ("quantize m.onnx --force", ("worst SQNR", "scheme, and its worst layer")),
    "quantize -v": ("quantize m.onnx --force --verbose", ("weights", "before", "SQNR")),
    "inspect": ("inspect m.onnx", ("weights", "bytes", "work")),
    "compare": (f"compare m.onnx {INT8} --verbose", ("cosine", "max error", "accumulated")),
    "convert-target": (f"convert-target {INT8} --to portable --force", ("Converted", "Check")),
    "bench": (f"bench m.onnx {INT8} --seconds 0.1", ("latency", "spread", "memory", "size")),
    "doctor": (
        f"doctor {INT8}",
        (
            f"made by Octavo {octavo.__version__}: recipe int8, target native",
            "runs on Octavo's own operators",
            "needs ONNX Runtime 1.",
        ),
    ),
}
SGR = re.compile(r"\x1b\[[0-9;]*m")
ANY_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b")
EACH = pytest.mark.parametrize("command", COMMANDS)
# A benchmark takes seconds, and its bar is drawn as that of quantize.
SOME = pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminals")
    model = mlp(2, 32)
    for node in model.graph.node:
        if node.op_type == "MatMul":
            node.name = NAMES[int(node.name.removeprefix("layer"))]
    save(model, folder / "m.onnx")
    quantize_dynamic(folder / "m.onnx", folder / INT8, target="native", verify=False)
    return folder


@pytest.fixture(autouse=True)
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made)
    # Its process takes most of the time, and prints nothing.
    monkeypatch.setattr(BenchFile, "peak_memory", lambda *_: 1_234_567)


@contextlib.contextmanager
def terminal(streams: str = "out err") -> Iterator[Callable[[], str]]:
    """`streams` are a terminal's; gives what it has got, to be called at the end."""
    ours, theirs = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while data := os.read(ours, 65536):
                got.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as screen, contextlib.ExitStack() as watched:
            if "out" in streams:
                watched.enter_context(contextlib.redirect_stdout(screen))
            if "err" in streams:
                watched.enter_context(contextlib.redirect_stderr(screen))
            yield lambda: b"".join(got).decode()
    finally:
        reader.join(60)
        os.close(ours)


def on_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, streams: str = "out err", **environment: str
) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", **environment}.items():
        monkeypatch.setenv(name, value)
    with terminal(streams) as screen:
        status = run(*COMMANDS[command][0].split())
    assert not status, screen()
    return screen()


def lines_of(screen: str) -> list[str]:
    """What is drawn, piece by piece, without codes: nothing may be wider than the terminal."""
    return re.split(r"[\r\n]+", ANY_CODE.sub("", screen))


def texts_of(lines: list[str]) -> tuple[str, str]:
    """First and last cells of all lines, put together: names that fold are whole again."""
    cells = [re.split(r"  +", line.strip()) for line in lines]
    return "".join(row[0] for row in cells), "".join(row[-1] for row in cells)


def name_in(command: str) -> str:
    """What each command shows: a file, or a layer, whose long name is a glob unless --verbose."""
    if command in ("bench", "convert-target", "doctor"):
        return INT8
    return shortened(NAMES)[0] if command in ("quantize", "inspect") else NAMES[0]


def assert_whole(command: str, screen: str) -> None:
    """Headings are there, and the names, however they fold; nothing is shortened by dots."""
    lines = lines_of(screen.rpartition("\x1b[2K")[2])  # the bar is gone: it may shorten its text
    text = "\n".join(lines)
    for words in COMMANDS[command][1]:
        assert words in re.sub(r"\s+", " ", text), text
    assert "…" not in text
    name = name_in(command)
    folded = texts_of(lines)
    assert any(name in each for each in (text, *folded)), text


@EACH
def test_a_pipe_gets_plain_lines(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert run(*COMMANDS[command][0].split()) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert not ANY_CODE.search(out) and "\r" not in out
    assert all(line == line.rstrip() for line in out.splitlines())
    shown = {"quantize -v": NAMES, "inspect": shortened(NAMES), "compare": NAMES}
    for name in shown.get(command, []):
        assert re.search(rf"{re.escape(name)} .*\d", out)  # with its figures, for grep


@pytest.mark.sweep(2)
@SOME
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_a_terminal_without_colours(
    command: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With NO_COLOR the codes that are left move and hide the cursor while a bar is drawn."""
    screen = on_terminal(command, monkeypatch, **environment)
    moves = {"\x1b[1A", "\x1b[2K", "\x1b[?25l", "\x1b[?25h"} if "NO_COLOR" in environment else set()
    assert set(ANY_CODE.findall(screen)) <= moves
    assert max(map(len, lines_of(screen))) <= 80
    assert_whole(command, screen)


@EACH
def test_40_columns_lose_nothing(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(command, monkeypatch, COLUMNS="40")
    assert SGR.search(screen)
    assert_whole(command, screen)
    if command == "bench":
        assert re.search(r"[\d.]+ [um]s +[\d.]+% +[\d,.]+ +[\d.]+ ms +1.2 MB", screen)


@pytest.mark.parametrize("streams", ["err", "out", "out err"])
def test_the_bar_is_on_stderr_only(
    streams: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = on_terminal("quantize", monkeypatch, streams)
    out, err = capsys.readouterr()
    assert ("verifying" in screen) == ("err" in streams)
    assert ("recipe int8" in screen) == ("out" in streams)
    assert not ANY_CODE.search(out) and err == ""
