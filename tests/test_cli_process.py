"""The command line as a process: pipes, terminals, signals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import octavo
from tests.cli_support import ESCAPE, REPORT, environment, int8_model, piped

DRIVER = """
import sys, time
import octavo.onnx
from tests.cli_support import REPORT
from octavo.cli import main

def quantize_dynamic(model_input, model_output, *, progress, **options):
    assert (progress is None) == (not sys.stderr.isatty())
    for stage in ("converting", "verifying"):
        for done in range(4):
            if progress:
                progress(stage, done, 4)
                time.sleep(0.05)
    if "hang" in str(model_input):
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    if "boom" in str(model_input):
        raise ZeroDivisionError("boom")
    return REPORT

vars(octavo.onnx)["quantize_dynamic"] = quantize_dynamic
main()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(DRIVER), *arguments]


class Terminal:
    """A process whose chosen streams are a terminal of 80 columns."""

    def __init__(self, arguments: list[str], cwd: Path, streams: str, **env: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=theirs if "out" in streams else pipe,
            stderr=theirs if "err" in streams else pipe,
        )
        os.close(theirs)
        self.screen = ""

    def read(self, until: str | None = None, seconds: float = 60) -> str:
        """What the screen gets, to the end or until a text is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if until is not None and until in self.screen:
                return self.screen
            if not select.select([self.ours], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.ours, 65536)
            except OSError:  # EIO: the other side is closed
                data = b""
            if not data:
                return self.screen
            self.screen += data.decode()
        raise AssertionError(f"nothing more came: {self.screen!r}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_(*arguments: str, streams: str = "out err", **env: str) -> Terminal:
        opened.append(Terminal(command(*arguments), tmp_path, streams, **env))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def printed(screen: str) -> list[str]:
    """The lines of a screen without styles, as far as no line is drawn over."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r\n", "\n").splitlines()


def test_in_pipes_there_is_no_escape_code_and_no_bar(tmp_path: Path) -> None:
    done = piped(command("quantize", "m.onnx"), tmp_path, FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == str(REPORT) + "\n"


def test_a_terminal_of_80_columns_gets_styles_and_a_bar(
    terminal: Callable[..., Terminal],
) -> None:
    tty = terminal("quantize", "m.onnx")
    screen = tty.read()
    assert tty.process.wait() == 0
    assert ESCAPE + "[1m" in screen
    assert "converting" in screen
    assert "verifying" in screen
    report = screen[screen.rindex("m.onnx -> ") :]
    assert max(map(len, printed(report))) <= 80


def test_no_color_styles_nothing(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", streams="out", NO_COLOR="1")
    assert ESCAPE not in tty.read()
    assert tty.process.wait() == 0
    tty = terminal("quantize", "m.onnx", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", tty.read())


def test_the_bar_is_on_stderr_only(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", "--json", streams="err")
    assert "converting" in tty.read()
    assert tty.process.stdout is not None
    assert json.loads(tty.process.stdout.read())["output"] == "m.int8.onnx"


def test_no_bar_where_only_stdout_is_a_terminal(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", streams="out")
    assert "converting" not in tty.read()
    assert tty.process.stderr is not None
    assert tty.process.stderr.read() == b""


def test_ctrl_c_on_a_terminal(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "hang.onnx")
    tty.read(until="ready")
    tty.process.send_signal(signal.SIGINT)
    screen = tty.read()
    assert tty.process.wait() == 130
    assert printed(screen)[-1].strip() == "interrupted"
    assert "Traceback" not in screen
    shown, hidden = screen.rfind(ESCAPE + "[?25h"), screen.rfind(ESCAPE + "[?25l")
    assert shown > hidden  # the cursor is back


def test_ctrl_c_in_a_pipe(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("quantize", "hang.onnx"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_traceback_and_code_1_for_what_is_unexpected(tmp_path: Path) -> None:
    done = piped(command("quantize", "boom.onnx"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ZeroDivisionError: boom\n")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = piped(command("quantize", "m.onnx"), tmp_path, theirs)
    finally:
        os.close(theirs)
    assert "Traceback" not in done.stderr


def test_names_that_the_locale_cannot_write_are_escaped(tmp_path: Path) -> None:
    path = int8_model(tmp_path / "m.onnx", recipe="größe")
    done = piped(command("doctor", str(path)), tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\xf6\xdfe" in done.stdout


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_help_and_version_load_no_framework(tmp_path: Path, argument: str) -> None:
    script = f"""
import sys
for name in ("onnx", "onnx_ir", "onnxruntime", "onnxscript", "torch", "numpy"):
    sys.modules[name] = None  # importing it fails
from octavo.cli import main
main([{argument!r}])
"""
    done = piped([sys.executable, "-c", script], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    expected = {"--version": f"octavo {octavo.__version__}\n", "--help": "Usage: octavo"}
    assert done.stdout.startswith(expected[argument])


def test_without_its_packages_it_says_which_to_install() -> None:
    hidden = (
        "import sys\n"
        "class Hides:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] in ('typer', 'ruamel'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hides())\n"
        "from octavo.cli import main\n"
        "main(['doctor'])"
    )
    command = [sys.executable, "-c", hidden]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 7
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert re.search(r"pip install 'ruamel\.yaml>=[\d.]+' 'typer>=[\d.]+'$", done.stderr.strip())
