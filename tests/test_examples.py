"""The programs in `examples/` do what their README says."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pytest
import torch

from benchmarks.zoo import samples
from benchmarks.zoo.minilm import embedder, model_dir, tokenize, torch_model
from octavo.onnx import custom_ops_library
from octavo.torch.hub import export
from tests.native import debian
from tests.native.building import BUILD, kept

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
TEXTS = ["A sentence to embed.", "and another, rather longer one, so that there is padding"]
HEADERS = "OCTAVO_ORT_INCLUDE"
"""The folder of ONNX Runtime's C++ headers, which its wheels do not have."""
HEAVY = {"torch", "transformers", "onnx", "matplotlib"}
real = [pytest.mark.slow, pytest.mark.models, pytest.mark.xdist_group("examples")]


def python(
    *given: str | Path, check: bool = True, model: Path | None = None, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Ends in time; with `model` the service serves it."""
    served = {"OCTAVO_MODEL": str(model), "PYTHONPATH": str(EXAMPLES)} if model else {}
    options = {"capture_output": True, "text": True, "env": {**os.environ, **served}}
    done = subprocess.run([sys.executable, *given], check=False, **options, **more)
    assert not (check and done.returncode), done.stderr
    return done


def run(name: str, *given: str | Path, cwd: Path, says: str = "") -> str:
    """What the program prints; `says` is typed."""
    return python(EXAMPLES / name, *given, cwd=cwd, input=says).stdout


def test_examples_are_short_and_in_the_readme() -> None:
    readme = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.iterdir():
        if path.is_file() and path.name != "README.md":
            assert len(path.read_text("utf-8").splitlines()) < 80, path.name
            assert path.name in readme


def test_help_comes_before_anything_heavy_is_loaded() -> None:
    programs = [str(EXAMPLES / name) for name in PROGRAMS if name != "samples.py"]
    code = f"""
import runpy, sys
sys.path.insert(0, {str(EXAMPLES)!r})
for program in {programs!r}:
    sys.argv = [program, "--help"]
    try: runpy.run_path(program, run_name="__main__")
    except SystemExit as end: assert not end.code
    print("loaded", {HEAVY!r} & set(sys.modules))
"""
    out = python("-c", code).stdout
    assert out.count("usage:") == out.count("\nloaded set()\n") == len(programs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["transcribe.py", "nowhere.wav"], "there is no file nowhere.wav"),
        (["tune_classifier.py", "model.onnx"], "give the labelled data too"),
        (["samples.py", "everything"], "language_model"),
    ],
)
def test_what_is_missing_is_said(given: list[str], said: str, tmp_path: Path) -> None:
    done = python(EXAMPLES / given[0], *given[1:], check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_image_installs_what_the_service_imports() -> None:
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    (installed,) = re.findall(r"^RUN (?:.*\\\n)*.*", page, re.MULTILINE)
    known = {"octavo", *sys.stdlib_module_names, "samples"}
    tree = ast.parse((EXAMPLES / "embedding_service.py").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            package = name.partition(".")[0]
            assert package in known or package in installed.split(), name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples") / "model"
    export(model_dir(), out)
    return out


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    with torch.no_grad():
        return embedder(torch_model())(TEXTS)


class TestEmbeddingService:
    pytestmark = real

    def test_it_answers_and_ends_at_ctrl_c(self, folder: Path, wanted: np.ndarray) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "embedding_service:app", "--port", str(port)],
            cwd=EXAMPLES,
            env={**os.environ, "OCTAVO_MODEL": str(folder), "OCTAVO_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            assert any("startup complete" in line for line in server.stderr)
            address = f"http://127.0.0.1:{port}/embed"
            answer = httpx.post(address, json={"texts": TEXTS}, timeout=60)
            assert httpx.post(address, json={"texts": []}, timeout=60).status_code == 422
        finally:
            server.send_signal(signal.SIGINT)
            _, rest = server.communicate(timeout=60)
        assert "Traceback" not in rest
        found = np.array(answer.json()["embeddings"])
        assert ((found * wanted).sum(1) > 0.99).all()

    def test_it_needs_no_pytorch(self, folder: Path, tmp_path: Path) -> None:
        code = (
            "import sys, embedding_service as service\n"
            f"assert len(service.embed({TEXTS!r})['embeddings']) == 2\n"
            "assert not {'torch', 'transformers'} & set(sys.modules)\n"
        )
        python("-c", code, model=folder, cwd=tmp_path)

    def test_other_poolings_are_refused(self, folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "model"
        shutil.copytree(folder, other)
        pooling = other / "1_Pooling" / "config.json"
        mean = '"pooling_mode_mean_tokens": '
        pooling.write_text(pooling.read_text().replace(f"{mean}true", f"{mean}false"))
        code = "import embedding_service as service\nservice.model()\n"
        done = python("-c", code, model=other, check=False)
        assert "does not take the mean" in done.stderr

    def test_a_plain_checkpoint_is_served_too(
        self, folder: Path, wanted: np.ndarray, tmp_path: Path
    ) -> None:
        other = tmp_path / "model"
        shutil.copytree(folder, other)
        shutil.rmtree(other / "1_Pooling")
        (other / "sentence_bert_config.json").unlink()
        for file in (other / "onnx").iterdir():
            file.rename(other / file.name)
        (other / "onnx").rmdir()
        code = (
            "import json, embedding_service as service\n"
            f"print(json.dumps(service.embed({TEXTS!r})['embeddings']))\n"
        )
        done = python("-c", code, model=other)
        assert ((np.array(json.loads(done.stdout)) * wanted).sum(1) > 0.99).all()
        (other / "tokenizer.json").unlink()
        done = python("-c", code, model=other, check=False)
        assert f"No such file or directory: '{other / 'tokenizer.json'}'" in done.stderr


class TestPrograms:
    pytestmark = real

    def test_transcribe_writes_what_is_said(self, tmp_path: Path) -> None:
        out = run("transcribe.py", "--save", "kept", cwd=tmp_path)
        said = ["That agent is already logged on. Please enter your agent number"]
        said += ["Login incorrect. Please enter your agent number"]
        for line, words in zip(out.splitlines(), said, strict=False):
            assert line.startswith(words)
        (sound, *_) = samples.speech()
        again = run("transcribe.py", "--model", "kept", sound, cwd=tmp_path)
        assert again == out.partition("\n")[0] + "\n"

    def test_chat_answers(self, tmp_path: Path) -> None:
        question = "What is 2 plus 2?"
        answer = "The answer to this classic math problem is 4."
        assert answer in (EXAMPLES / "README.md").read_text("utf-8")
        out = run("chat.py", "--prompt", question, "--tokens", "20", cwd=tmp_path)
        assert out.strip() == answer
        out = run("chat.py", "--tokens", "20", cwd=tmp_path, says=f"{question}\nThank you.\n\n")
        assert out.startswith(f"> {answer}\n> ")

    def test_read_page_reads_with_both_models(self, tmp_path: Path) -> None:
        assert run("read_page.py", cwd=tmp_path).splitlines() == [*samples.PAGE, *samples.PAGE]
        assert (tmp_path / "reader.native.onnx").is_file()

    def test_tune_classifier_keeps_the_accuracy(self, tmp_path: Path) -> None:
        out = run("tune_classifier.py", cwd=tmp_path)
        found, labels = re.findall(r"\[([\d ]+)\]", out.splitlines()[-1])
        assert sum(a == b for a, b in zip(found.split(), labels.split(), strict=True)) >= 6
        saved = {path.name for path in (tmp_path / "tuned").iterdir()}
        assert {"best_model.onnx", "best_recipe.yaml"} <= saved

    @pytest.mark.parametrize(
        "name", ["chat.py", "read_page.py", "transcribe.py", "tune_classifier.py"]
    )
    def test_ctrl_c_ends_it_at_once(self, name: str, tmp_path: Path) -> None:
        command = [sys.executable, EXAMPLES / name]
        program = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert program.stderr is not None
        next(
            line for line in program.stderr if line.startswith(("loading", "quantizing", "tuning"))
        )
        program.send_signal(signal.SIGINT)
        _, rest = program.communicate(timeout=20)
        assert program.returncode == 130
        assert "Traceback" not in rest


def _include() -> Path:
    """The headers that a variable names, the system's, or those of Debian's package."""
    for name in (os.environ.get(HEADERS, ""), "/usr/include/onnxruntime", "/usr/local/include"):
        if (Path(name) / "onnxruntime_cxx_api.h").is_file():
            return Path(name)
    if not debian.available():
        pytest.skip(f"NOT TESTED: no onnxruntime_cxx_api.h here; {HEADERS} names its folder")
    place = BUILD / "onnxruntime-headers"

    def fill(folder: Path) -> None:
        alone = ["libonnxruntime-dev"]
        debian.unpack(folder, [], architecture="amd64", suite="trixie", alone=alone)

    kept(place, b"libonnxruntime-dev of trixie", fill)
    return place / "usr" / "include" / "onnxruntime"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled against the headers, linked with the library of ONNX Runtime's wheel."""
    place = tmp_path_factory.mktemp("embed")
    capi = Path(onnxruntime.__file__).parent / "capi"
    (library,) = capi.glob("libonnxruntime.so.*")
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (place / name).symlink_to(library)
    command = ["g++", "-std=c++17", "-Wall", "-Werror", str(EXAMPLES / "embed.cpp")]
    command += ["-I", str(_include()), "-L", str(place), "-lonnxruntime", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", str(place / "embed")], check=True)
    shutil.copy(custom_ops_library(), place)
    return place / "embed"


class TestCpp:
    pytestmark = real

    def test_it_embeds(self, program: Path, folder: Path, wanted: np.ndarray) -> None:
        ids = tokenize(TEXTS[:1])["input_ids"][0]
        out = _embed(program, folder / "onnx" / "model.onnx", ids).stdout
        assert float(np.array([float(line) for line in out.split()]) @ wanted[0]) > 0.99

    def test_it_says_what_is_wrong(self, program: Path, tmp_path: Path) -> None:
        assert "usage" in _embed(program, "model.onnx", []).stderr
        done = _embed(program, tmp_path / "nowhere.onnx", [101])
        assert done.returncode == 1
        assert "nowhere.onnx" in done.stderr


def _embed(
    program: Path, model: str | Path, ids: Sequence[int]
) -> subprocess.CompletedProcess[str]:
    command = [program, model, "./liboctavo_ort.so", *map(str, ids)]
    return subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
