"""The command line: what it passes on, what it prints where, and what it exits with."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import octavo.onnx
from octavo import errors
from octavo.cli import main
from octavo.recipe import (
    FLOAT,
    PRESETS,
    Decision,
    Kind,
    Layer,
    LayerOutcome,
    Recipe,
    Report,
    Scheme,
    Verification,
)

LAYER = Layer("/fc/MatMul", Kind.LINEAR, "MatMul", (("w", (384, 384)),), 589_824, 147_456)
REPORT = Report(
    source="m.onnx",
    output="m.int8.onnx",
    recipe=PRESETS["int8"].to_dict(),
    target="portable",
    cpu="vnni",
    quant_format="qoperator",
    layers=(LayerOutcome(LAYER, True, Scheme().describe(), "", 589_824, 148_992, 40.0),),
    model_bytes_before=1_000_000,
    model_bytes_after=500_000,
    opset=17,
    min_onnxruntime="1.17",
    verification=Verification("passed", "made up", 1, 0.001, 0.001, 0.1),
    seconds=0.5,
)
OPS = ("Conv", "Gather", "MatMul", "com.microsoft.Attention")
ESCAPE = "\x1b"


class FakeFrontEnd:
    """Stands for `octavo.onnx.quantize_dynamic` and remembers its arguments."""

    def __init__(self) -> None:
        self.model: Any = None
        self.output: Any = None
        self.options: dict[str, Any] = {}
        self.does: Callable[[], None] = lambda: None

    def __call__(self, model_input: Any, model_output: Any, **options: Any) -> Report:
        self.model, self.output, self.options = model_input, model_output, options
        self.does()
        return REPORT


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeFrontEnd:
    fake = FakeFrontEnd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(octavo.onnx), "quantize_dynamic", fake)
    monkeypatch.setitem(vars(octavo.onnx), "supported_ops", lambda: OPS)
    return fake


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    code = exit_.value.code
    return 0 if code is None else int(code)


# What is passed on


def test_defaults(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "folder/model.v2.onnx") == 0
    assert front_end.model == Path("folder/model.v2.onnx")
    assert front_end.output == Path("model.v2.int8.onnx")
    assert front_end.options == {
        "nodes_to_quantize": None,
        "nodes_to_exclude": None,
        "use_external_data_format": False,
        "recipe": PRESETS["int8"],
        "target": "portable",
        "cpu": "vnni",
        "quant_format": "qoperator",
        "check_inputs": None,
        "verify": True,
        "progress": None,
        "allow_quantized": False,
        "allow_nothing": False,
    }


def test_every_option_reaches_the_front_end(front_end: FakeFrontEnd) -> None:
    line = (
        "quantize m.onnx -o out.onnx --recipe int8-accurate --exclude /a/* --exclude /b "
        "--only /c* --inputs data.npz --cpu any --target portable --format qdq --external-data "
        "--no-verify --allow-quantized --allow-nothing --force --verbose"
    )
    assert run(*line.split()) == 0
    assert front_end.output == Path("out.onnx")
    assert front_end.options == {
        "nodes_to_quantize": ["/c*"],
        "nodes_to_exclude": ["/a/*", "/b"],
        "use_external_data_format": True,
        "recipe": PRESETS["int8-accurate"],
        "target": "portable",
        "cpu": "any",
        "quant_format": "qdq",
        "check_inputs": Path("data.npz"),
        "verify": False,
        "progress": None,
        "allow_quantized": True,
        "allow_nothing": True,
    }


def test_float16_has_its_own_suffix(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "--recipe", "float16") == 0
    assert front_end.output == Path("m.fp16.onnx")


def test_a_recipe_file(front_end: FakeFrontEnd, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: int8\nname: mine\n")
    assert run("quantize", "m.onnx", "--recipe", "mine.yaml") == 0
    assert front_end.options["recipe"].name == "mine"


def layer(op: str, kind: Kind, name: str = "/x") -> Layer:
    return Layer(name, kind, op, (), 0, None)


def decided(recipe: Recipe, of: Layer) -> Scheme:
    rule = recipe.rule_for(of)
    return recipe.default if rule is None else rule.scheme


def test_ops_are_quantized_in_addition(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "--ops", "Conv,MatMul", "--ops", "Attention") == 0
    recipe = front_end.options["recipe"]
    assert decided(recipe, layer("Conv", Kind.CONV)) == Scheme()
    assert decided(recipe, layer("MatMul", Kind.LINEAR)) == Scheme()
    assert decided(recipe, layer("com.microsoft.Attention", Kind.ATTENTION)) == Scheme()
    assert decided(recipe, layer("MatMul", Kind.ACTIVATION_MATMUL)) == FLOAT


def test_ops_do_not_override_a_recipes_rules_by_name(
    front_end: FakeFrontEnd, tmp_path: Path
) -> None:
    (tmp_path / "r.yaml").write_text("base: int8\nrules:\n- {name: /stem, scheme: float}\n")
    assert run("quantize", "m.onnx", "--recipe", "r.yaml", "--ops", "Conv") == 0
    recipe = front_end.options["recipe"]
    assert decided(recipe, layer("Conv", Kind.CONV, "/stem")) == FLOAT
    assert decided(recipe, layer("Conv", Kind.CONV, "/other")) == Scheme()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "Conb"], "unknown operator type 'Conb'. Did you mean 'Conv'?"),
        (["--recipe", "int9"], "neither a preset nor a file. Did you mean 'int8'?"),
        (["--recipe", "none.yaml"], "none.yaml"),
        (["--recipe", "float.yaml", "--ops", "Conv"], "'quiet''s default scheme, which is float"),
    ],
)
def test_what_does_not_exist_is_a_usage_error(
    front_end: FakeFrontEnd,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "float.yaml").write_text("name: quiet\ndefault: float\n")
    assert run("quantize", "m.onnx", *arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert message in err
    assert out == ""
    assert front_end.model is None


def test_a_default_output_that_exists_needs_force(
    front_end: FakeFrontEnd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.int8.onnx").touch()
    assert run("quantize", "m.onnx") == 6
    assert "m.int8.onnx exists; name it with -o or give --force" in capsys.readouterr().err
    assert front_end.model is None
    assert run("quantize", "m.onnx", "--force") == 0
    assert run("quantize", "m.onnx", "-o", "m.int8.onnx") == 0


# What is printed


def test_the_report_is_plain_in_a_pipe(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx") == 0
    out, err = capsys.readouterr()
    assert out == str(REPORT) + "\n"
    assert err == ""


def test_verbose_names_layers(front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "m.onnx", "-v") == 0
    assert "  /fc/MatMul  384x384  589.8 kB  149.0 kB  40.0 dB\n" in capsys.readouterr().out


def test_json_is_all_there_is_on_stdout(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("quantize", "m.onnx", "--json") == 0
    out, err = capsys.readouterr()
    assert Report.from_dict(json.loads(out)) == REPORT
    assert err == ""


class Inspected:
    model, opset, ir_version, model_bytes, recipe_name = "m.onnx", 17, 8, 1_000_000, "int8"
    decisions = (Decision(LAYER, Scheme()),)

    def to_dict(self) -> dict[str, Any]:
        return {"model": self.model}


def test_inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, Any] = {}

    def inspect(model: Path, recipe: Recipe, **options: Any) -> Inspected:
        seen.update(model=model, recipe=recipe, **options)
        return Inspected()

    monkeypatch.setitem(vars(octavo.onnx), "inspect", inspect)
    assert run("inspect", "m.onnx", "--recipe", "int8-block", "--cpu", "any", "--format=qdq") == 0
    assert seen == {
        "model": Path("m.onnx"),
        "recipe": PRESETS["int8-block"],
        "target": "portable",
        "cpu": "any",
        "quant_format": "qdq",
    }
    assert "/fc/MatMul  384x384  589.8 kB  100%" in capsys.readouterr().out
    assert run("inspect", "m.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"model": "m.onnx"}


# What it exits with

ERRORS = [
    (errors.ModelError, 3),
    (errors.AlreadyQuantizedError, 3),
    (errors.RecipeError, 2),
    (errors.OptionError, 2),
    (errors.NothingQuantizedError, 4),
    (errors.VerificationError, 5),
    (errors.OutputError, 6),
    (errors.InputDataError, 2),
]


def failing(front_end: FakeFrontEnd, error: BaseException) -> None:
    def fail() -> None:
        raise error

    front_end.does = fail


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda x: getattr(x, "__name__", None))
def test_errors_are_one_message_and_a_code(
    front_end: FakeFrontEnd,
    capsys: pytest.CaptureFixture[str],
    error: type[errors.OctavoError],
    code: int,
) -> None:
    failing(front_end, error("m.onnx: it is\nwrong\x1b[31m"))
    assert run("quantize", "m.onnx", "--json") == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: m.onnx: it is\nwrong\\x1b[31m\n")


def test_every_exit_code_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["quantize"], ["inspect"], ["doctor"]):
        assert run(*command, "--help") == 0
        text = capsys.readouterr().out
        codes = {int(code) for code in re.findall(r"^    (\d+)  ", text, re.MULTILINE)}
        assert codes == {0, 1, 7, 8, 9, 130} | {code for _, code in ERRORS}


def test_a_page_about_the_outcome(front_end: FakeFrontEnd) -> None:
    assert run("quantize", "m.onnx", "-o", "m.int8.onnx", "--report", "m.html") == 0
    text = Path("m.html").read_text()
    assert "/fc/MatMul" in text
    assert "<!doctype html>" in text.lower()


@pytest.mark.parametrize(("page", "words"), [("m.txt", ".html"), ("no/m.html", "no of")])
def test_a_page_that_cannot_be_written_is_known_before(
    front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str], page: str, words: str
) -> None:
    assert run("quantize", "m.onnx", "-o", "m.int8.onnx", "--report", page) in (2, 6)
    assert words in capsys.readouterr().err
    assert front_end.model is None


def test_ctrl_c_is_one_line(front_end: FakeFrontEnd, capsys: pytest.CaptureFixture[str]) -> None:
    failing(front_end, KeyboardInterrupt())
    assert run("quantize", "m.onnx") == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_what_is_unexpected_keeps_its_traceback(front_end: FakeFrontEnd) -> None:
    failing(front_end, ZeroDivisionError("boom"))
    with pytest.raises(ZeroDivisionError):
        main(["quantize", "m.onnx"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["quantize"],
        ["quantize", "m.onnx", "--nonsense"],
        ["quantize", "m.onnx", "--cpu", "sse"],
        ["quantize", "m.onnx", "--target", "nativ"],
        ["nonsense"],
        ["inspect"],
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Usage: octavo" in err


# The help


def test_help_names_values_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", "-h") == 0
    text = " ".join(capsys.readouterr().out.split())
    for name in PRESETS:
        assert name in text
    for value in ("[default: int8]", "[default: vnni]", "[default: qoperator]"):
        assert value in text
    for value in (
        "<vnni|any>",
        "<portable|native>",
        "<qoperator|qdq>",
        ".npz or .jsonl",
        ".int8.onnx",
    ):
        assert value in text


def test_the_commands_are_listed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_help_and_version_load_no_framework(tmp_path: Path, argument: str) -> None:
    script = f"""
import sys
for name in ("onnx", "onnx_ir", "onnxruntime", "onnxscript", "torch", "numpy"):
    sys.modules[name] = None  # importing it fails
from octavo.cli import main
main([{argument!r}])
"""
    done = piped([sys.executable, "-c", script], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    expected = {"--version": f"octavo {octavo.__version__}\n", "--help": "Usage: octavo"}
    assert done.stdout.startswith(expected[argument])


# Doctor


def int8_model(path: Path, **said: str) -> Path:
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["m", 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", 2])],
        [numpy_helper.from_array(np.ones((4, 2), np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {f"octavo.{key}": value for key, value in said.items()})
    onnx.save(model, path)
    return path


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    out = capsys.readouterr().out
    assert re.search(r"^onnxruntime  \d+\.\d+\.\d+ \(needs >=", out, re.MULTILINE)
    assert "int8 kernels" in out
    assert run("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_doctor_on_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.core.kernels.cpu_features", lambda: ["sse2", "fma", "avx2"])
    path = int8_model(tmp_path / "m.onnx", cpu="vnni", min_onnxruntime="1.17")
    assert run("doctor", str(path)) == 0
    out = capsys.readouterr().out
    assert "warning: " in out
    assert "to mend it: open it with octavo.onnx.session" in out
    int8_model(path, cpu="any", min_onnxruntime="99.0")
    assert run("doctor", str(path)) == 7
    assert "needs ONNX Runtime 99.0 or newer" in capsys.readouterr().out
    assert run("doctor", str(tmp_path / "none.onnx")) == 3
    assert run("doctor", str(tmp_path)) == 3


# With the real front end


@pytest.fixture
def float_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An embedding, two products with weights and one of two activations."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    weights = {"table": (100, 64), "w1": (64, 128), "w2": (128, 64)}
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["e"], "/emb/Gather"),
            helper.make_node("MatMul", ["e", "w1"], ["a"], "/fc1/MatMul"),
            helper.make_node("Relu", ["a"], ["b"], "/relu"),
            helper.make_node("MatMul", ["b", "w2"], ["c"], "/fc2/MatMul"),
            helper.make_node("Transpose", ["c"], ["t"], "/transpose", perm=[0, 2, 1]),
            helper.make_node("MatMul", ["c", "t"], ["y"], "/qk"),
        ],
        "g",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", "length"])],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def quantized_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Report:
    assert run("quantize", "m.onnx", "--json", *arguments) == 0
    return Report.from_dict(json.loads(capsys.readouterr().out))


def test_a_model_is_quantized_checked_and_runs(
    float_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = quantized_json(capsys)
    done = {o.layer.name for o in report.quantized}
    assert done == {"/emb/Gather", "/fc1/MatMul", "/fc2/MatMul"}
    assert report.verification.status == "passed"
    ids = np.arange(12).reshape(2, 6)
    y, float_y = (
        InferenceSession(name, providers=["CPUExecutionProvider"]).run(None, {"ids": ids})[0]
        for name in ("m.int8.onnx", "m.onnx")
    )
    assert np.abs(y - float_y).max() < 0.03 * np.abs(float_y).max()
    assert run("doctor", "m.int8.onnx") == 0
    assert "octavo.recipe" in capsys.readouterr().out


def test_only_exclude_and_inputs(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("data.npz", ids=np.arange(8).reshape(1, 8))
    report = quantized_json(capsys, "--only", "/fc*", "--exclude", "/fc2/*", "--inputs", "data.npz")
    assert [o.layer.name for o in report.quantized] == ["/fc1/MatMul"]
    assert report.verification.inputs == "given"


def test_inspect_a_model(float_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("inspect", "m.onnx") == 0
    out = capsys.readouterr().out
    assert re.search(r"^    /fc1/MatMul  64x128 +32\.8 kB  50\.0%$", out, re.MULTILINE)
    assert "Leave float: a product of two activations" in out
    assert run("inspect", "m.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["opset"] == 17


def test_failures_leave_nothing(
    float_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "strict.yaml").write_text("base: int8\nmax_error: 1.0e-12\n")
    before = sorted(tmp_path.iterdir())
    assert run("quantize", "text.onnx") == 3
    assert run("quantize", "none.onnx") == 3
    assert run("quantize", "m.onnx", "--only", "/nothing*") == 2
    assert run("quantize", "m.onnx", "--exclude", "/*") == 4
    assert run("quantize", "m.onnx", "--inputs", "none.npz") == 2
    assert run("quantize", "m.onnx", "--recipe", "strict.yaml") == 5
    assert run("quantize", "m.onnx", "-o", "no/such/folder/out.onnx") == 6
    assert sorted(tmp_path.iterdir()) == before
    assert capsys.readouterr().err.count("error: ") == 7


# As a process: pipes, terminals, signals

DRIVER = """
import sys, time
import octavo.onnx
from test_cli import REPORT
from octavo.cli import main

def quantize_dynamic(model_input, model_output, *, progress, **options):
    assert (progress is None) == (not sys.stderr.isatty())
    for stage in ("converting", "verifying"):
        for done in range(4):
            if progress:
                progress(stage, done, 4)
                time.sleep(0.05)
    if "hang" in str(model_input):
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    if "boom" in str(model_input):
        raise ZeroDivisionError("boom")
    return REPORT

vars(octavo.onnx)["quantize_dynamic"] = quantize_dynamic
main()
"""


def environment(**more: str) -> dict[str, str]:
    """This one, with a terminal that has colours and a size of its own, and nothing to say more."""
    drop = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return {**kept, "TERM": "xterm-256color", "PYTHONPATH": str(Path(__file__).parent), **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(DRIVER), *arguments]


def piped(
    arguments: list[str], cwd: Path, stdout: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        check=False,
        cwd=cwd,
        env=environment(**env),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


class Terminal:
    """A process whose chosen streams are a terminal of 80 columns."""

    def __init__(self, arguments: list[str], cwd: Path, streams: str, **env: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=theirs if "out" in streams else pipe,
            stderr=theirs if "err" in streams else pipe,
        )
        os.close(theirs)
        self.screen = ""

    def read(self, until: str | None = None, seconds: float = 60) -> str:
        """What the screen gets, to the end or until a text is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if until is not None and until in self.screen:
                return self.screen
            if not select.select([self.ours], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.ours, 65536)
            except OSError:  # EIO: the other side is closed
                data = b""
            if not data:
                return self.screen
            self.screen += data.decode()
        raise AssertionError(f"nothing more came: {self.screen!r}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        self.process.wait()
        os.close(self.ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_(*arguments: str, streams: str = "out err", **env: str) -> Terminal:
        opened.append(Terminal(command(*arguments), tmp_path, streams, **env))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


def printed(screen: str) -> list[str]:
    """The lines of a screen without styles, as far as no line is drawn over."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r\n", "\n").splitlines()


def test_in_pipes_there_is_no_escape_code_and_no_bar(tmp_path: Path) -> None:
    done = piped(command("quantize", "m.onnx"), tmp_path, FORCE_COLOR="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == str(REPORT) + "\n"


def test_a_terminal_of_80_columns_gets_styles_and_a_bar(
    terminal: Callable[..., Terminal],
) -> None:
    tty = terminal("quantize", "m.onnx")
    screen = tty.read()
    assert tty.process.wait() == 0
    assert ESCAPE + "[1m" in screen
    assert "converting" in screen
    assert "verifying" in screen
    report = screen[screen.rindex("m.onnx -> ") :]
    assert max(map(len, printed(report))) <= 80


def test_no_color_styles_nothing(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", streams="out", NO_COLOR="1")
    assert ESCAPE not in tty.read()
    assert tty.process.wait() == 0
    tty = terminal("quantize", "m.onnx", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", tty.read())


def test_the_bar_is_on_stderr_only(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", "--json", streams="err")
    assert "converting" in tty.read()
    assert tty.process.stdout is not None
    assert json.loads(tty.process.stdout.read())["output"] == "m.int8.onnx"


def test_no_bar_where_only_stdout_is_a_terminal(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "m.onnx", streams="out")
    assert "converting" not in tty.read()
    assert tty.process.stderr is not None
    assert tty.process.stderr.read() == b""


def test_ctrl_c_on_a_terminal(terminal: Callable[..., Terminal]) -> None:
    tty = terminal("quantize", "hang.onnx")
    tty.read(until="ready")
    tty.process.send_signal(signal.SIGINT)
    screen = tty.read()
    assert tty.process.wait() == 130
    assert printed(screen)[-1].strip() == "interrupted"
    assert "Traceback" not in screen
    shown, hidden = screen.rfind(ESCAPE + "[?25h"), screen.rfind(ESCAPE + "[?25l")
    assert shown > hidden  # the cursor is back


def test_ctrl_c_in_a_pipe(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("quantize", "hang.onnx"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_traceback_and_code_1_for_what_is_unexpected(tmp_path: Path) -> None:
    done = piped(command("quantize", "boom.onnx"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ZeroDivisionError: boom\n")


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = piped(command("quantize", "m.onnx"), tmp_path, theirs)
    finally:
        os.close(theirs)
    assert "Traceback" not in done.stderr


def test_names_that_the_locale_cannot_write_are_escaped(tmp_path: Path) -> None:
    path = int8_model(tmp_path / "m.onnx", recipe="größe")
    done = piped(command("doctor", str(path)), tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\xf6\xdfe" in done.stdout
