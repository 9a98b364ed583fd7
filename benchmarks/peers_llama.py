"""llama.cpp, built from its source for this machine, and tokens a second of its own benchmark.

The wheel of llama-cpp-python has no VNNI code; its sdist holds llama.cpp's source. The build takes
ten minutes on two cores and stays in the cache. Needs cmake and g++.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import say
from benchmarks.zoo.fetch import FetchError, cache_dir, locked

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_UI": "OFF",
}
TOOL = "llama-bench"


def tool() -> Path:
    """The program, built now if the cache lacks it.

    Raises FetchError where it cannot be had or built.
    """
    path = cache_dir() / "tools" / f"{TOOL}-{VERSION}"
    if not path.is_file():
        with locked(path.name):
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                _build(path)
    return path


def _build(path: Path) -> None:
    say(f"building llama.cpp of {PACKAGE} {VERSION}: ten minutes")
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        wanted = f"{PACKAGE}=={VERSION}"
        pip = (sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check")
        _run(*pip, "--no-deps", "--no-build-isolation", "--no-binary", PACKAGE, "-d", work, wanted)
        (archive,) = Path(work).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(work, filter="data")
        (source,) = Path(work).glob("*/vendor/llama.cpp")
        build = Path(work, "build")
        options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
        _run("cmake", "-S", str(source), "-B", str(build), *options)
        jobs = str(len(os.sched_getaffinity(0)))
        _run("cmake", "--build", str(build), "--target", TOOL, "--parallel", jobs)
        shutil.move(build / "bin" / TOOL, path)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
        raise FetchError(f"llama.cpp cannot be built: {command[0]}: {said}") from error


def tokens_per_second(
    model: Path, threads: int, tokens: int = 0, prompts: Sequence[int] = (), rounds: int = 1
) -> dict[int, list[float]]:
    """Of prompts of so many tokens at once, and under 0 of decoding `tokens` one by one.

    One figure a round.
    """
    lengths = ",".join(map(str, prompts)) or "0"
    command = [str(tool()), "-m", str(model), "-t", str(threads), "-p", lengths]
    command += ["-n", str(tokens), "-r", str(rounds), "-ngl", "0", "-o", "json"]
    if prompts:  # it would read each once for nothing; the file's first pages are quickly there
        command.append("--no-warmup")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {
        0 if test["n_gen"] else int(test["n_prompt"]): [float(each) for each in test["samples_ts"]]
        for test in json.loads(done.stdout)
    }
