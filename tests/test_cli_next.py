"""Every command that a page says to run next runs as it is printed, where it was printed."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli_support import MAKES, run, shorten_measurements, write_module
from tests.graphs import mlp, save
from tests.torch.hub.families import FAMILIES, checkpoint

COMMAND = re.compile(r"<pre[^>]*>\s*(?:<code>)?((?:octavo|import) [^<]+?)\s*(?:</code>)?\s*</pre>")
WIDTH = 64


def onnx_file(monkeypatch: pytest.MonkeyPatch) -> None:
    save(mlp(2, WIDTH), Path("model.onnx"))
    np.savez("data.npz", x=np.random.default_rng(0).standard_normal((8, WIDTH), np.float32))


def factory(monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(monkeypatch, "shop", MAKES)
    np.savez("data.npz", input=np.random.default_rng(0).standard_normal((8, 32), np.float32))


def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sits"]
    (checkpoint(FAMILIES[0], Path("bert")) / "vocab.txt").write_text("\n".join(words))
    Path("texts.jsonl").write_text('{"text": "a cat sits"}\n' * 4)


WAYS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "portable": (onnx_file, "model.onnx -o small.onnx"),
    "native": (onnx_file, "model.onnx --target native -o small.onnx"),
    "options": (onnx_file, "model.onnx --recipe int8-accurate --exclude 'layer1*' -o 'a b.onnx'"),
    "module": (factory, "shop:make -o small.safetensors"),
    "checkpoint": (folder, "bert -o small"),
    "to native": (folder, "bert --to native -o small"),
    "to onnx": (folder, "bert --to onnx -o small"),
}
SLOW = ("to onnx", "to native")


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=pytest.mark.slow if w in SLOW else ()) for w in WAYS]
)
def test_what_a_page_says_to_run_next_runs(
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And so does what the pages say that those commands write."""
    monkeypatch.chdir(tmp_path)
    shorten_measurements(monkeypatch)
    make, given = WAYS[way]
    make(monkeypatch)
    assert run("quantize", *shlex.split(given), "--report", "page.html") == 0
    on_terminal = capsys.readouterr().out.partition("\nNext")[2].splitlines()
    todo = commands(Path("page.html"))
    assert todo and [line.strip() for line in on_terminal if line.strip() in todo[:1]]
    done: list[str] = []
    while todo:
        said = todo.pop(0)
        words = shlex.split(said)
        made = words[words.index("-o") + 1] if "-o" in words else ""
        if said in done or (made and Path(made).exists()):
            continue
        done.append(said)
        if words[0] == "octavo":
            quick = ("--seconds", "0.1") if words[1] == "bench" else ()
            assert run(*words[1:], *quick) == 0, (said, capsys.readouterr().err)
        else:
            subprocess.run([sys.executable, "-W", "ignore", "-c", said], check=True)
        pages = [word for word in words if word.endswith(".html")]
        todo += [one for page in pages for one in commands(Path(page))]
    assert done


def commands(page: Path) -> list[str]:
    """What is said there to run."""
    return [html.unescape(one) for one in COMMAND.findall(page.read_text())]
