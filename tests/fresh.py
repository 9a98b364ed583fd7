"""Processes of their own for tests, without the seconds that importing PyTorch takes.

`python(code)` runs code in a child of a server that has imported NumPy, ONNX, ONNX Runtime and
PyTorch, but nothing of Octavo. Each worker of pytest has one server, started by the first call. A
test starts an interpreter instead where a cold import is its subject, where it measures memory,
passes options to Python, or sets a variable that libraries read while they are loaded
(OMP_NUM_THREADS). Without PyTorch, as under an emulator, there is no server.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(
    code: str,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run `code` as `python -c code arguments` does, and return its status, output and errors.

    `env` is the whole environment, by default this process's. With `check` a status other than 0
    raises `subprocess.CalledProcessError`, whose text holds what the child said.
    """
    code = textwrap.dedent(code)
    if find_spec("torch") is None:
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=None if env is None else dict(env),
            cwd=cwd,
            check=check,
            timeout=timeout,
        )
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {
            "code": code,
            "argv": ["-c", *map(str, arguments)],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "out": str(out),
            "err": str(err),
            "timeout": timeout,
        }
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        status = int(server.stdout.readline())
        said, complained = out.read_text(), err.read_text()
    if check and status:
        print(complained, file=sys.stderr)
        raise subprocess.CalledProcessError(status, request["argv"], said, complained)
    return subprocess.CompletedProcess(request["argv"], status, said, complained)


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from tests.fresh import serve; serve()"]
    server = subprocess.Popen(
        command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(server.terminate)
    return server


def serve() -> None:
    """Fork a child for each line of standard input, and write its status."""
    import numpy  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import torch  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _run(request)
        killer = threading.Timer(request["timeout"], os.kill, (child, 9))
        killer.start()
        _, status = os.waitpid(child, 0)
        killer.cancel()
        killer.join()
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(request: dict[str, str]) -> None:
    """Become the child that `python` asked for; does not return."""
    for descriptor, place in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv[:] = request["argv"]
    sys.path[0] = ""
    for place in request["env"].get("PYTHONPATH", "").split(os.pathsep):
        if place and place not in sys.path:
            sys.path.insert(1, place)
    status = 0
    try:
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        status = code if isinstance(code, int) else int(code is not None)
    except BaseException:  # noqa: BLE001  # what an interpreter prints
        traceback.print_exc()
        status = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
