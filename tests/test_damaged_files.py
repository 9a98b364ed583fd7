"""A file of a stranger that is damaged anywhere is read, or refused by an error of Octavo's."""

from __future__ import annotations

import contextlib
import io
import json
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers

import octavo.onnx
import octavo.torch
from octavo.cli import report as report_command
from octavo.cli.evidence import How
from octavo.core.feeds import read_runs
from octavo.errors import OctavoError
from octavo.files.metadata import metadata
from octavo.measure.readers import READERS as DATA
from octavo.onnx import quantize_dynamic
from octavo.onnx.read.stored_report import stored_report
from octavo.recipe import PRESETS, load_recipe
from octavo.results.tuning import Trial
from octavo.torch.hub import OctavoConfig, load_gguf
from octavo.torch.hub.checkpoint import find_checkpoint
from octavo.torch.hub.inspecting import inspect
from octavo.tune.history import History
from octavo.tune.inc.load import load_config
from tests.cli_support import REPORT, run
from tests.earlier_versions import models
from tests.graphs import mlp, text, weight
from tests.mutations import (
    Mutation,
    in_bytes,
    in_header,
    in_json,
    in_metadata,
    in_model,
    in_words,
)
from tests.report import tuning_samples
from tests.torch.hub import int4_folders
from tests.torch.hub.families import LLAMA
from tests.torch.hub.gguf_models import write_model

OLD = Path(__file__).parent / "earlier_versions" / "0.1.0"
SECONDS = 20  # that one reading may take, on a busy machine
MEMORY = 8 << 30  # bytes beyond what the process has mapped
NAMED = "quantization_config|config.json|layer '|ai.octavo|quantized layer|output '|weight: |"
"""How messages name a part, where a call knows no file."""


@dataclass(frozen=True)
class Reader:
    """`make` writes a sound seed into a folder, of which `file` is damaged; `wide` is how often."""

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    mutate: Mutation
    wide: int


def _written(name: str, data: Any) -> Callable[[Path], object]:
    found = data if isinstance(data, bytes) else json.dumps(data).encode()
    return lambda folder: (folder / name).write_bytes(found)


def _module(folder: Path) -> None:
    octavo.torch.save(octavo.torch.quantize_dynamic(models.module()), folder / "m.safetensors")


def _load(folder: Path) -> None:
    made = octavo.torch.load(folder / "m.safetensors", models.Module)
    made(torch.from_numpy(models.ids()))
    str(octavo.torch.report(made))


def _copied(name: str) -> Callable[[Path], object]:
    return lambda folder: copytree(OLD / name, folder, dirs_exist_ok=True)


def _own_folder(folder: Path) -> None:
    made = transformers.AutoModel.from_pretrained(folder)
    made(torch.from_numpy(models.ids()))


def _of_others(folder: Path) -> None:
    given = {"quantization_config": OctavoConfig()}
    made = transformers.AutoModelForCausalLM.from_pretrained(folder, **given)
    made(torch.from_numpy(models.ids()))


def _layers() -> onnx.ModelProto:
    """A convolution and two linear layers over one input."""
    body = """[conv] c = Conv <strides = [2], pads = [1, 1]> (x, k) p = ReduceMean <axes = [2],
        keepdims = 0> (c) [a] a = MatMul (p, wa) [b] b = MatMul (p, wb) y = Add (a, b)"""
    weights = {"k": weight(32, 16, 3), "wa": weight(32, 16), "wb": weight(32, 16, seed=2)}
    return text(body, "float[n, 16, 20] x", "float[n, 16] y", weights)


def _native(folder: Path) -> None:
    onnx.save(_layers(), folder / "float.onnx")
    given: dict[str, Any] = {"target": "native", "op_types_to_quantize": ["Conv", "MatMul"]}
    quantize_dynamic(folder / "float.onnx", folder / "m.onnx", verify=False, **given)


def _external(folder: Path) -> None:
    onnx.save(mlp(), folder / "m.onnx", save_as_external_data=True, size_threshold=64)


def _quantize(folder: Path) -> None:
    quantize_dynamic(folder / "m.onnx", folder / "out.onnx", verify=False)


def _convert(folder: Path) -> None:
    octavo.onnx.convert_target(folder / "m.onnx", folder / "out.onnx", to="portable", verify=False)


def _reports(folder: Path) -> None:
    metadata(folder / "m.onnx")
    stored_report(folder / "m.onnx", folder / "m.onnx")


def _page(folder: Path) -> None:
    report_command.from_json(folder / "found.json", folder / "page.html", How())


def _resume(folder: Path) -> None:
    with History(folder, {"model": "m"}, resume=True) as history:
        for kind, key in history._found:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # said by what asks for it
                Trial.from_dict(history.get(kind, key))


def _history(folder: Path) -> None:
    with History(folder, {"model": "m"}) as history:
        history.put("trial", "k", tuning_samples.BEST.to_dict(), 1.0)


def _in_history(raw: bytes, random: Random) -> bytes:
    first, second = raw.splitlines()
    return first + b"\n" + in_json()(second, random) + b"\n"


def _gguf(folder: Path) -> None:
    write_model(folder / "m.gguf", LLAMA.make(), "llama", "Q4_0")


def _arrays(folder: Path) -> None:
    np.savez(folder / "d.npz", x=np.ones((3, 4), np.float32), label=np.arange(3))


def _data(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        if not name.endswith(".csv"):
            read_runs(folder / name)
        list(DATA[Path(name).suffix](folder / name, None, 4))

    return read


ENTRY = in_json("quantization_config")
RECIPE = {**PRESETS["int4"].to_dict(), "attention": "bfloat16", "mix": {"bits": 5}}
CONFIG = {
    "model": {"name": "bert", "framework": "onnxrt_integerops"},
    "quantization": {"approach": "post_training_dynamic_quant", "op_wise": {"fc": {"weight": {}}}},
    "tuning": {"accuracy_criterion": {"relative": 0.01}, "exit_policy": {"timeout": 0}},
}
GRAPH = models.graph().SerializeToString()
SAMPLE = b'{"x": [[0.5, 1.0]], "label": [1]}\n'
TABLE = b'x,label\n"[0.5, 1.0]",1\n"[0.5, 2.0]",0\n'


def _portable(folder: Path) -> None:
    (folder / "m.onnx").write_bytes((OLD / "portable.int8.onnx").read_bytes())


READERS = {
    "safetensors header": Reader("m.safetensors", _module, _load, in_header, 200),
    "safetensors manifest": Reader("m.safetensors", _module, _load, in_metadata("octavo"), 200),
    "safetensors bytes": Reader("m.safetensors", _module, _load, in_bytes, 200),
    "own folder": Reader("config.json", _copied("checkpoint.int4"), _own_folder, ENTRY, 40),
    "own folder header": Reader(
        "model.safetensors", _copied("checkpoint.int8"), _own_folder, in_header, 60
    ),
    **{
        case: Reader(
            "config.json", lambda f, case=case: int4_folders.written(f, case), _of_others, ENTRY, 18
        )
        for case in ("gptq", "gptq-v2", "awq", "auto-round", "compressed", "compressed-w4a8")
    },
    **{
        f"{case} header": Reader(
            "model.safetensors",
            lambda f, case=case: int4_folders.written(f, case),
            _of_others,
            in_header,
            8,
        )
        for case in ("gptq", "awq", "compressed-affine")
    },
    "config.json": Reader(
        "config.json",
        lambda folder: LLAMA.make().save_pretrained(folder),
        lambda folder: inspect(find_checkpoint(folder)),
        in_json(),
        60,
    ),
    "GGUF": Reader("m.gguf", _gguf, lambda f: load_gguf(f / "m.gguf"), in_words(1800), 60),
    "GGUF bytes": Reader("m.gguf", _gguf, lambda f: load_gguf(f / "m.gguf"), in_bytes, 30),
    "ONNX": Reader("m.onnx", _written("m.onnx", GRAPH), _quantize, in_model, 100),
    "ONNX bytes": Reader("m.onnx", _written("m.onnx", GRAPH), _quantize, in_bytes, 60),
    "ONNX with external data": Reader("m.onnx", _external, _quantize, in_model, 60),
    "native": Reader("m.onnx", _native, _convert, in_model, 150),
    "native bytes": Reader("m.onnx", _native, _convert, in_bytes, 40),
    "portable": Reader("m.onnx", _portable, _reports, in_model, 60),
    "recipe": Reader(
        "r.yaml", _written("r.yaml", RECIPE), lambda f: load_recipe(f / "r.yaml"), in_json(), 120
    ),
    "recipe bytes": Reader(
        "r.yaml", _written("r.yaml", RECIPE), lambda f: load_recipe(f / "r.yaml"), in_bytes, 60
    ),
    "Neural Compressor": Reader(
        "c.yaml", _written("c.yaml", CONFIG), lambda f: load_config(f / "c.yaml"), in_json(), 120
    ),
    "report": Reader("found.json", _written("found.json", REPORT.to_dict()), _page, in_json(), 20),
    "search": Reader(
        "found.json", _written("found.json", tuning_samples.result().to_dict()), _page, in_json(), 8
    ),
    "history": Reader("history.jsonl", _history, _resume, _in_history, 150),
    "npz": Reader("d.npz", _arrays, _data("d.npz"), in_bytes, 150),
    "jsonl": Reader("d.jsonl", _written("d.jsonl", SAMPLE), _data("d.jsonl"), in_json(), 150),
    "csv": Reader("d.csv", _written("d.csv", TABLE), _data("d.csv"), in_bytes, 150),
}


class _TooLong(BaseException):
    """A reading that does not end."""


def _stop(*_: object) -> None:
    raise _TooLong


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Ends what takes too long or asks for memory out of proportion."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, handler)


def _fault(reader: Reader, folder: Path) -> str:
    """What is wrong with how the file is refused; "" for one that is read, or refused well."""
    sink = io.StringIO()
    try:
        with (
            _bounded(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore")
            reader.read(folder)
    except OctavoError as error:
        words = (str(folder), reader.file, *NAMED.split("|")[:-1], *int4_folders.CASES)
        named = any(word in str(error) for word in words)
        return "" if named and error.exit_code > 1 else f"not named: {error!r}"
    except (Exception, _TooLong) as error:  # noqa: BLE001 - each that is no OctavoError is a fault
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if "/src/octavo/" in f.filename and f.name != "chosen"]
        # transformers refuses what it reads before it asks Octavo.
        return "".join(traceback.format_exception(error)[-4:]) if ours else ""
    return ""


def _faults(reader: Reader, folder: Path, name: str, count: int) -> list[str]:
    reader.make(folder)
    assert _fault(reader, folder) == ""
    path, found = folder / reader.file, []
    sound = path.read_bytes()
    for i in range(count):
        path.write_bytes(reader.mutate(sound, Random(f"{name} {i}")))
        if fault := _fault(reader, folder):
            found.append(f"{name} {i}: {fault}")
    return found


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    assert _faults(READERS[name], tmp_path, name, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    assert _faults(READERS[name], tmp_path, name, READERS[name].wide) == []


def _opset(folder: Path) -> None:
    model = onnx.load(folder / "m.onnx")
    model.opset_import[0].version = 1 << 40
    onnx.save(model, folder / "m.onnx")


def _without_attribute(folder: Path) -> None:
    model = onnx.load(folder / "m.onnx")
    del model.graph.node[0].attribute[:]
    onnx.save(model, folder / "m.onnx")


def _deep(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 1 << 63}))


def _nested(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text("[" * 100_000)


def _seconds(folder: Path) -> None:
    path = folder / "found.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": []}))


def _recipe(folder: Path) -> None:
    _nested("r.yaml")(folder)
    onnx.save(mlp(), folder / "m.onnx")


COMMANDS: dict[str, tuple[str, Callable[[Path], object], tuple[str, ...], int]] = {
    "opset": ("ONNX", _opset, ("inspect", "m.onnx"), 3),
    "native": ("native", _without_attribute, ("convert-target", "m.onnx", "--to", "portable"), 3),
    "layers": ("config.json", _deep, ("inspect", "."), 3),
    "nested config": ("config.json", _nested("config.json"), ("inspect", "."), 3),
    "recipe": ("recipe", _recipe, ("inspect", "m.onnx", "--recipe", "r.yaml"), 2),
    "report": ("report", _seconds, ("report", "found.json", "--html", "page.html"), 2),
    "nested report": (
        "report", _nested("found.json"), ("report", "found.json", "--html", "page.html"), 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_ends_with_the_code_of_a_bad_file(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, damage, command, code = COMMANDS[case]
    READERS[seed].make(tmp_path)
    damage(tmp_path)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert run(*command) == code
    assert capsys.readouterr().err.startswith("error: ")
