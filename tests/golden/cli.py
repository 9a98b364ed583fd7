"""What the command line prints where all goes well: help, reports, JSON, pages, tuning."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from tests.golden import commands
from tests.golden.corpus import Case
from tests.golden.facts import Facts, digest
from tests.golden.graphs import Model
from tests.golden.onnx_attention import encoder
from tests.golden.onnx_conv import two

COMMANDS = ("quantize", "inspect", "compare", "report", "convert-target", "doctor", "bench", "tune")
VOLATILE = ("seconds", "version", "created", "model_bytes_after", "model_bytes_before", "machine")
MEASURED = re.compile(r"(?<![\w.\[-])\d+(?:[.,]\d+)*(?:e-?\d+)?\b ?%?")
"""Numbers that a clock or a file's size may be in."""


def printed(lines: Mapping[str, str] | tuple[str, ...], *, numbers: bool = True) -> Case:
    """Exit code, stdout and stderr of several lines in one folder; without numbers where those are
    measured."""

    def run(folder: Path) -> Facts:
        commands.fill(folder)
        _save(folder / "e.onnx", encoder(1))
        _save(folder / "c.onnx", two())
        facts: Facts = {}
        for line in lines:
            with commands.within(folder):
                code, out, err = commands.command(line, folder)
            shown = out.splitlines()
            if "--json" in line and out.startswith("{"):
                shown = _plain(json.loads(out))
            if not numbers:
                shown = [MEASURED.sub("N", each) for each in shown]
            facts[f"{line} exit"] = code
            facts[f"{line} out"] = shown
            facts[f"{line} err"] = [MEASURED.sub("N", each) for each in err.splitlines()]
        facts["files"] = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
        return facts

    return run


def _save(path: Path, model: Model) -> None:
    onnx.save(model[0], path)


def _plain(data: Any, path: str = "") -> list[str]:
    """Leaves of JSON as `path = value`."""
    if isinstance(data, dict):
        return [
            line
            for k, v in data.items()
            if k not in VOLATILE
            for line in _plain(v, f"{path}.{k}" if path else k)
        ]
    if isinstance(data, list) and any(isinstance(v, (dict, list)) for v in data):
        return [line for i, v in enumerate(data) for line in _plain(v, f"{path}[{i}]")]
    if isinstance(data, float):
        data = f"{data:.2g}"
    return [f"{path} = {data}"]


def page(folder: Path) -> Facts:
    """The pages of `report` and `quantize --report`: their headings."""
    commands.fill(folder)
    _save(folder / "e.onnx", encoder(1))
    facts: Facts = {}
    lines = (
        "octavo quantize e.onnx -o q.onnx --target native --report a.html",
        "octavo report e.onnx q.onnx --html b.html --seconds 0.2",
        "octavo report models:make q.safetensors --html c.html",
    )
    for line in lines:
        with commands.within(folder):
            code, _, err = commands.command(line, folder)
        facts[f"{line} exit"] = f"{code} {MEASURED.sub('N', err)}"
    for name in ("a", "b", "c"):
        path = folder / f"{name}.html"
        if not path.exists():
            continue
        html = path.read_text()
        text = re.sub(r"(?s)<style.*?</style>|<script.*?</script>|<svg.*?</svg>", "", html)
        # Timed: nothing but headings, of the page and of its tables, stays the same.
        text = "".join(re.findall(r"(?s)<(?:h[1-4]|th)\b.*?</(?:h[1-4]|th)>", text))
        words = [" ".join(w.split()) for w in re.sub(r"<[^>]+>", "\n", text).splitlines()]
        shown = [MEASURED.sub("N", commands.tidy(w, folder)) for w in words if w]
        kept = (w for w in shown if "as fast as" not in w and "faster" not in w)
        facts[f"page {name}"] = list(dict.fromkeys(kept))
        facts[f"style {name}"] = digest(
            "".join(re.findall(r"(?s)<style.*?</style>", path.read_text())).encode()
        )
    return facts


CASES: dict[str, Case] = {
    "help": printed(("octavo --help", *(f"octavo {c} --help" for c in COMMANDS))),
    "inspect": printed(
        (
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
        )
    ),
    "quantize": printed(
        (
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
            "octavo quantize m.onnx",
        ),
        numbers=False,
    ),
    "quantize as JSON": printed(
        (
            "octavo quantize e.onnx --json -o j.onnx",
            "octavo quantize e.onnx --json -o n.onnx --target native",
            "octavo quantize models:make --json -o t.safetensors",
        )
    ),
    "convert-target": printed(
        (
            "octavo convert-target portable.onnx --to native -o n.onnx",
            "octavo convert-target native.onnx --to portable -o p.onnx --cpu any",
            "octavo convert-target native.onnx --to portable --json -o p2.onnx",
            "octavo convert-target portable.onnx --to native --no-verify",
        ),
        numbers=False,
    ),
    "compare": printed(
        (
            "octavo compare m.onnx portable.onnx",
            "octavo compare m.onnx native.onnx -v --inputs data.npz",
            "octavo compare m.onnx portable.onnx --json",
            "octavo compare models:make q.safetensors",
        )
    ),
    "doctor": printed(
        (
            "octavo doctor portable.onnx",
            "octavo doctor native.onnx",
            "octavo doctor m.onnx",
            "octavo doctor native.onnx --json",
        ),
        numbers=False,
    ),
    "bench": printed(
        ("octavo bench m.onnx portable.onnx --seconds 0.1 --threads 1 --shape x=2x32",),
        numbers=False,
    ),
    "pages": page,
}
