"""Commands that say what they are doing, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import steps
from benchmarks.steps import Step, StepError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def python(code: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  *** [12/87] Building CXX object a.o", "12 of 87 files"),
        ("[3/9] Linking", "3 of 9 files"),
        ("  Downloading torch-2.13.0-cp311.whl (190.1 MB)", "downloading torch (190.1 MB)"),
        ("Collecting numpy>=1.26 (from x)", "looking for numpy"),
        ("Installing collected packages: a, b, c", "installing 3 packages"),
        ("\x1b[32manything else\x1b[0m ", "anything else"),
        ("  \n", ""),
    ],
)
def test_what_a_line_says(line: str, said: str) -> None:
    assert steps.doing(line) == said


def test_steps_run_at_once_and_say_how_long_they_took(capsys: pytest.CaptureFixture[str]) -> None:
    wait = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    there = f"/tmp/octavo-steps-{os.getpid()}"
    touch = f"import pathlib; pathlib.Path({there!r}).touch()"
    try:
        steps.run(Step("waits", python(wait.format(there))), Step("frees it", python(touch)))
    finally:
        Path(there).unlink(missing_ok=True)
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["waits ...", "frees it ..."]
    assert sorted(line.partition(":")[0] for line in said[2:]) == ["frees it", "waits"]


def test_a_failure_shows_all_that_was_said_and_ends_the_others() -> None:
    slow = Step("sleeps", python("import time; time.sleep(60)"))
    bad = Step("fails", python("print('the reason'); raise SystemExit(3)"))
    with pytest.raises(StepError, match=r"(?s)the reason.*FAILED \(3\): fails"):
        steps.run(slow, bad)
    assert not slow.running


@pytest.mark.parametrize(
    ("how", "deaf"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)]
)
def test_an_interrupt_ends_the_command_and_its_children(
    tmp_path: Path, how: signal.Signals, deaf: bool
) -> None:
    inner = "import os, signal, time\n"
    inner += "signal.signal(signal.SIGINT, signal.SIG_IGN)\n" if deaf else ""
    inner += f"open({str(tmp_path / 'inner')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = (sys.executable, "-m", "benchmarks.steps", "sleeps", *python(outer))
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells have what they start in the background ignore it, and so the tests themselves.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # one thread
    )
    end = time.monotonic() + 30
    while not (tmp_path / "inner").exists() or not (tmp_path / "inner").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(how)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (128 + how, "sleeps ...\n", "interrupted\n")
    child = Path("/proc") / (tmp_path / "inner").read_text() / "status"
    end = time.monotonic() + 10
    while child.exists() and "State:\tZ" not in child.read_text():  # killed, and not yet gone
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 15)", 128 + 15)],
)
def test_the_status_of_a_command_that_fails_is_passed_on(code: str, status: int) -> None:
    command = (sys.executable, "-m", "benchmarks.steps", "fails", *python(code))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert f": fails\nthe command was: {sys.executable}" in done.stderr
