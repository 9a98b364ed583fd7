"""What the command line prints where all goes well: help, reports, JSON, pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx

from tests.errors.error_files import write_shared
from tests.golden import commands
from tests.golden.corpus import Case
from tests.golden.facts import Facts, digest
from tests.golden.onnx_attention import encoder
from tests.golden.onnx_conv import two

COMMANDS = ("quantize", "inspect", "compare", "report", "convert-target", "doctor", "bench", "tune")
VOLATILE = ("seconds", "version", "created", "model_bytes_after", "model_bytes_before", "machine")


def fill(folder: Path) -> None:
    """The small models of transcripts, an encoder and convolutions."""
    write_shared(folder)
    models = (folder / "models.py").read_text()
    seeded = "def make():\n    nn.init.torch.manual_seed(0)"  # with the weights of q.safetensors
    (folder / "models.py").write_text(models.replace("def make():", seeded))
    onnx.save(encoder(1)[0], folder / "e.onnx")
    onnx.save(two()[0], folder / "c.onnx")


def printed(*lines: str, numbers: bool = True) -> Case:
    """Exit code, stdout and stderr of several lines in one folder; without numbers where those are
    measured."""

    def run(folder: Path) -> Facts:
        fill(folder)
        facts: Facts = {}
        for line in lines:
            code, out, err = commands.command(line, folder)
            as_json = "--json" in line and out.startswith("{")
            shown = _plain(json.loads(out)) if as_json else out.splitlines()
            facts[f"{line}: exit"] = code
            facts[f"{line}: out"] = shown if numbers else commands.plain("\n".join(shown))
            facts[f"{line}: err"] = err
        return facts | commands.files(folder)

    return run


def _plain(data: Any, path: str = "") -> list[str]:
    """Leaves of JSON as `path = value`."""
    if isinstance(data, dict):
        inner = {f"{path}.{k}" if path else k: v for k, v in data.items() if k not in VOLATILE}
    elif isinstance(data, list) and any(isinstance(v, (dict, list)) for v in data):
        inner = {f"{path}[{i}]": v for i, v in enumerate(data)}
    else:
        return [f"{path} = {f'{data:.2g}' if isinstance(data, float) else data}"]
    return [line for key, value in inner.items() for line in _plain(value, key)]


def page(folder: Path) -> Facts:
    """The pages of `report` and `quantize --report`: their headings, as the rest is timed."""
    fill(folder)
    facts: Facts = {}
    lines = {
        "a.html": "octavo quantize e.onnx -o q.onnx --target native --report a.html",
        "b.html": "octavo report e.onnx q.onnx --html b.html --seconds 0.2",
        "c.html": "octavo report models:make q.safetensors --html c.html",
    }
    for name, line in lines.items():
        code, _, err = commands.command(line, folder)
        html = (folder / name).read_text()
        style = "".join(re.findall(r"(?s)<style.*?</style>", html))
        html = re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<svg.*?</svg>", "", html)
        text = "".join(re.findall(r"(?s)<(?:h[1-4]|th)\b.*?</(?:h[1-4]|th)>", html))
        words = [" ".join(w.split()) for w in re.sub(r"<[^>]+>", "\n", text).splitlines()]
        shown = commands.plain(commands.tidy("\n".join(filter(None, words)), folder))
        kept = [w for w in shown if "as fast as" not in w and "faster" not in w]
        facts[f"{line}: exit"] = [f"{code}", *err]
        facts[f"{line}: headings"] = list(dict.fromkeys(kept))
        facts[f"{line}: style"] = digest(style.encode())
    return facts


CASES: dict[str, Case] = {
    "help": printed("octavo --help", *(f"octavo {c} --help" for c in COMMANDS)),
    "inspect": printed(
        "octavo inspect e.onnx",
        "octavo inspect e.onnx -v --recipe int8-block",
        "octavo inspect e.onnx --json --target native",
        "octavo inspect c.onnx",
        "octavo inspect c.onnx --ops Conv --format qdq",
        "octavo inspect portable.onnx",
        "octavo inspect native.onnx --json",
        "octavo inspect models:make",
        "octavo inspect models:make --json",
        "octavo inspect q.safetensors",
    ),
    "quantize": printed(
        "octavo quantize e.onnx",
        "octavo quantize e.onnx --target native -v --force",
        "octavo quantize e.onnx --json -o j.onnx",
        "octavo quantize c.onnx --ops Conv -o c1.onnx --no-verify",
        "octavo quantize e.onnx --recipe int8-block -o b.onnx --exclude '*up*'",
        "octavo quantize m.onnx -o m1.onnx --inputs data.npz --only layer0",
        "octavo quantize e.onnx -o x.onnx --external-data --cpu any",
        "octavo quantize bare.onnx -o bare1.onnx --allow-nothing",
        "octavo quantize models:make -o t.safetensors",
        "octavo quantize models:make -o t2.safetensors --json --recipe int8-accurate",
        "octavo quantize m.onnx --format qdq -o qdq.onnx",
        "octavo quantize m.onnx --recipe float16 -o h.onnx",
        "octavo quantize m.onnx",
        numbers=False,
    ),
    "quantize as JSON": printed(
        "octavo quantize e.onnx --json -o j.onnx",
        "octavo quantize e.onnx --json -o n.onnx --target native",
        "octavo quantize models:make --json -o t.safetensors",
    ),
    "convert-target": printed(
        "octavo convert-target portable.onnx --to native -o n.onnx",
        "octavo convert-target native.onnx --to portable -o p.onnx --cpu any",
        "octavo convert-target native.onnx --to portable --json -o p2.onnx",
        "octavo convert-target portable.onnx --to native --no-verify",
        numbers=False,
    ),
    "compare": printed(
        "octavo compare m.onnx portable.onnx",
        "octavo compare m.onnx native.onnx -v --inputs data.npz",
        "octavo compare m.onnx portable.onnx --json",
        "octavo compare models:make q.safetensors",
    ),
    "bench": printed(
        "octavo bench m.onnx portable.onnx --seconds 0.1 --threads 1 --shape x=2x32",
        numbers=False,
    ),
    "pages": page,
}
