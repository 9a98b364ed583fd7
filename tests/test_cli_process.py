"""The command line as a process: signals, closed pipes, locales, and what it imports."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import octavo
from tests.graphs import mlp, save

HANGS = """
import sys, time
import octavo.onnx
from octavo.cli import main

def quantize_dynamic(model_input, model_output, *, progress, **options):
    progress("converting", 1, 4)
    time.sleep(0.3)
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)

vars(octavo.onnx)["quantize_dynamic"] = quantize_dynamic
main(["quantize", "m.onnx"])
"""


def started(code: str, stdout: int, stderr: int = subprocess.PIPE, **env: str) -> subprocess.Popen:
    """Python with that code, in an environment that says of a terminal only its type."""
    drop = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**kept, "TERM": "xterm-256color", **env},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )


def said(code: str, **env: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    with started(code, subprocess.PIPE, **env) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out.decode(), err.decode()


def test_ctrl_c_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    screen = ""
    with started(HANGS, theirs, theirs) as process:
        os.close(theirs)
        deadline = time.monotonic() + 120
        interrupted = False
        while time.monotonic() < deadline:
            if "ready" in screen and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    screen += os.read(ours, 65536).decode()
                except OSError:  # EIO: the other side is closed
                    break
        process.kill()
    os.close(ours)
    assert process.returncode == 130, screen
    assert "Traceback" not in screen
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split()[-1] == "interrupted"
    assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l") >= 0  # the cursor is back


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    with started("from octavo.cli import main; main(['--help'])", theirs) as process:
        os.close(theirs)
        assert b"Traceback" not in process.communicate(timeout=120)[1]


def test_names_that_the_locale_cannot_write_are_escaped(tmp_path: Path) -> None:
    path = save(mlp(1, 8), tmp_path / "größe.onnx")
    code = f"from octavo.cli import main; main(['inspect', {str(path)!a}])"
    status, out, err = said(code, PYTHONIOENCODING="ascii")
    assert (status, err) == (0, "")
    assert r"gr\xf6\xdfe" in out


def test_help_and_version_load_no_framework() -> None:
    status, out, err = said("""
import contextlib, sys
for name in ("matplotlib", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "torch", "numpy"):
    sys.modules[name] = None  # importing it fails
from octavo.cli import main
for arguments in (["--version"], ["bench", "--help"]):
    with contextlib.suppress(SystemExit):
        main(arguments)
main(["--help"])
""")
    assert (status, err) == (0, "")
    assert out.startswith(f"octavo {octavo.__version__}\nUsage: octavo bench")
    assert "\nUsage: octavo [OPTIONS]" in out


def test_without_its_packages_it_says_which_to_install() -> None:
    status, _, err = said("""
import sys
class Hides:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("typer", "ruamel"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hides())
from octavo.cli import main
main(["doctor"])
""")
    assert status == 7
    assert err.count("\n") == 1 and "Traceback" not in err
    assert re.search(r"pip install 'ruamel\.yaml>=[\d.]+' 'typer>=[\d.]+'$", err.strip())
