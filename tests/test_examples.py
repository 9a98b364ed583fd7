"""The programs in `examples/` do what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from benchmarks.zoo.minilm import embedder, model_dir, tokenize, torch_model
from octavo.onnx import custom_ops_library
from octavo.torch.hub import export

pytestmark = [pytest.mark.slow, pytest.mark.models, pytest.mark.xdist_group("examples")]

EXAMPLES = Path(__file__).parents[1] / "examples"
TEXTS = ["A sentence to embed.", "and another, rather longer one, so that there is padding"]
HEADERS = "OCTAVO_ORT_INCLUDE"
"""The folder of ONNX Runtime's C++ headers, which its wheels do not have."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("examples") / "model"
    export(model_dir(), out)
    return out


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    with torch.no_grad():
        return embedder(torch_model())(TEXTS)


def test_examples_are_short() -> None:
    for path in EXAMPLES.iterdir():
        assert len(path.read_text().splitlines()) < 80, path.name


def test_the_embedding_service(
    folder: Path, wanted: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("fastapi.testclient")
    monkeypatch.setenv("OCTAVO_MODEL", str(folder))
    monkeypatch.setenv("OCTAVO_THREADS", "1")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import embedding_service

    client = testing.TestClient(embedding_service.app)
    answer = client.post("/embed", json={"texts": TEXTS})
    assert answer.status_code == 200
    found = np.array(answer.json()["embeddings"])
    assert ((found * wanted).sum(1) > 0.99).all()
    assert client.post("/embed", json={"texts": []}).status_code == 422
    assert "torch" not in vars(embedding_service)


def test_the_service_needs_no_pytorch(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys, embedding_service as service\n"
        f"found = service.embed(service.Texts(texts={TEXTS!r}))\n"
        "assert len(found.embeddings) == 2\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    pytest.importorskip("fastapi")
    environment = {**os.environ, "OCTAVO_MODEL": str(folder), "PYTHONPATH": str(EXAMPLES)}
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)


def test_the_cpp_program(folder: Path, wanted: np.ndarray, tmp_path: Path) -> None:
    given = [os.environ.get(HEADERS, ""), "/usr/include/onnxruntime", "/usr/local/include"]
    include = next((p for p in map(Path, given) if (p / "onnxruntime_cxx_api.h").is_file()), None)
    if include is None:
        pytest.skip(f"NOT TESTED: no onnxruntime_cxx_api.h here; {HEADERS} names its folder")
    capi = Path(onnxruntime.__file__).parent / "capi"
    library = next(capi.glob("libonnxruntime.so*"))
    program = tmp_path / "embed"
    subprocess.run(
        [
            *("g++", "-std=c++17", "-Wall", "-Werror", str(EXAMPLES / "embed.cpp")),
            *("-I", str(include), str(library), f"-Wl,-rpath,{capi}", "-o", str(program)),
        ],
        check=True,
    )
    shutil.copy(custom_ops_library(), tmp_path)
    ids = tokenize(TEXTS[:1])["input_ids"][0]
    done = subprocess.run(
        [program, folder / "onnx" / "model.onnx", "./liboctavo_ort.so", *map(str, ids)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found = np.array([float(line) for line in done.stdout.split()])
    assert float(found @ wanted[0]) > 0.99
