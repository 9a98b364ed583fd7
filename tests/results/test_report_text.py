"""Reports as text: what they say, and that a terminal's width loses nothing."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from octavo.recipe import Kind, Layer, Scheme
from octavo.report.terminal import show
from octavo.results import words
from octavo.results.report import Conversion, LayerOutcome, Verification
from tests import fresh
from tests.results.reports import linear, report
from tests.results.terminals import on_terminal

SCHEME = Scheme().describe()
LONG = "/encoder/layer.11/attention/self/a_name_without_any_place_to_break_it_in_two/query/MatMul"
REASON = "a product of two activations: it has no weights to make smaller"


def quantized(name: str, sqnr: float | None = 40.0, **changes: object) -> LayerOutcome:
    layer = linear(name)
    outcome = LayerOutcome(layer, True, SCHEME, "", layer.bytes, 595_968, sqnr)
    return replace(outcome, **changes)  # type: ignore[arg-type]


def left(name: str, reason: str = REASON) -> LayerOutcome:
    layer = Layer(name, Kind.ACTIVATION_MATMUL, "MatMul", (), 0, None)
    return LayerOutcome(layer, False, "float", reason, 0, 0)


def text(**changes: object) -> str:
    """The report on one layer, with changes."""
    return report(quantized("/a"), **changes).text()


def test_the_whole_text() -> None:
    shown = report(
        quantized("/a"),
        quantized("/b", 38.04),
        left("/qk"),
        quantized("/c", notes=("activations per tensor, not per row",)),
        notes=("opset raised from 11 to 13",),
    )
    assert shown.text() == (
        """\
model.onnx -> out/model.int8.onnx
recipe int8, target portable, cpu vnni, format qoperator

Quantized: 3 of 4 layers, 7.1 MB -> 1.8 MB
layers  op      before   after  worst SQNR  scheme, and its worst layer
     3  MatMul  7.1 MB  1.8 MB     38.0 dB  int8 per channel, activations per row
                                            /b

Left float: 1 of 4 layers, 0 B
  - 1 MatMul: a product of two activations: it has no weights to make smaller
      /qk

Done differently from what the recipe asks
  - 1 layer: activations per tensor, not per row
      /c

Notes
  - opset raised from 11 to 13

File      90.4 MB -> 22.9 MB (3.9x smaller)
Check     passed: error against the float model 0.0021 (at most 0.1 allowed), 1 - cosine 0.0021; """
        """3 runs on inputs made up
Needs     ONNX Runtime 1.17 or newer (opset 17)
Made for  VNNI, AMX or NEON; other x86 processors need octavo.onnx.session
Took      1.2 s
Verdict   Check before you ship: it was compared on made-up inputs alone
Next      Compare it on inputs of yours, a hundred are enough: one entry for each input.
          octavo report model.onnx out/model.int8.onnx --html out/model.int8.html """
        """--inputs data.npz"""
    )


def test_four_hundred_layers_take_few_lines_and_verbose_names_each() -> None:
    layers = [quantized(f"/layer.{i}/MatMul") for i in range(400)]
    shown = report(*layers, *(left(f"/layer.{i}/qk") for i in range(400)))
    short = shown.text()
    assert len(short.splitlines()) < 22
    assert "  - 400 MatMul: a product of two activations" in short
    assert "\n      /layer.*/qk\n" in short
    full = shown.text(verbose=True)
    squeezed = re.sub(r"(?<=\S) +", " ", full)
    for i in range(400):
        assert f"  /layer.{i}/MatMul 384x1536 2.4 MB 596.0 kB 40.0 dB\n" in squeezed
        assert f"/layer.{i}/qk" in full


def test_groups_are_by_operator_and_scheme() -> None:
    gather = replace(linear("/emb"), op="Gather", kind=Kind.EMBEDDING)
    shown = report(
        quantized("/a"), quantized("/emb", layer=gather), quantized("/b", scheme="other")
    )
    rows = [line.split()[:2] for line in shown.text().splitlines() if " dB  " in line]
    assert rows == [["1", "MatMul"], ["1", "Gather"], ["1", "MatMul"]]


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_is_never_overrun(width: int, verbose: bool) -> None:
    shown = report(quantized(LONG), left(LONG), notes=("n" * 300,), source="/s" * 70)
    assert max(len(line) for line in on_terminal(shown, verbose, width).splitlines()) <= width


def test_on_80_columns_long_names_fold_and_lose_nothing() -> None:
    screen = on_terminal(report(quantized(LONG), left(LONG)), verbose=True)
    lines = screen.splitlines()
    header = next(line for line in lines if line.startswith("  layer"))
    start, edge = lines.index(header) + 1, header.index("weights")
    assert LONG in "".join(line[:edge].strip() for line in lines[start : start + 4])
    assert LONG in "".join(line.strip() for line in lines[lines.index(header) + 4 :])
    assert "…" not in screen
    assert "..." not in screen


@pytest.mark.parametrize("width", [80, 1000])
def test_a_long_name_is_a_glob_and_verbose_says_it_whole(width: int) -> None:
    shown = report(quantized(LONG), quantized("/output/dense/MatMul", 50.0))
    short = on_terminal(shown, width=width)
    assert "*/query/MatMul" in short and LONG not in short
    assert LONG in shown.text(verbose=True)


def test_layers_of_one_reason_are_one_line_whatever_numbers_are_in_it() -> None:
    tables = [left(f"/t{i}", f"its table has {512 * i} bytes: too small") for i in (1, 3, 2)]
    other = replace(left("/g", "its table has 64 bytes: too small"), bytes_before=64)
    gemm = replace(other, layer=replace(other.layer, op="Gemm"))
    text = report(*tables, gemm).text()
    assert "  - 3 MatMul, 1 Gemm, 64 B: its table has 64 to 1536 bytes: too small\n" in text
    assert "\n      /t*, /g\n" in text


def test_plain_text_holds_a_long_path_in_one_line() -> None:
    long_path = "/".join(["folder"] * 60) + "/model.onnx"
    shown = report(quantized(LONG), left("/qk"), source=long_path)
    assert long_path in shown.text()
    stream = io.StringIO()
    show(shown, Console(file=stream, width=80))  # no terminal
    assert stream.getvalue() == shown.text() + "\n"


def test_names_cannot_style_or_break_the_text() -> None:
    shown = report(quantized("/a[bold]b[/bold]"), left("/esc\x1b[31m\nred"), source="m\x1b.onnx")
    out = shown.text(verbose=True)
    assert "\x1b" not in out
    assert "/a[bold]b[/bold]" in out
    assert r"/esc\x1b[31m\nred" in out
    assert "\x1b" not in on_terminal(shown, verbose=True)


@pytest.mark.parametrize(
    ("verification", "said"),
    [
        (Verification("skipped"), "skipped"),
        (
            Verification("unchecked", "made up", detail="an input has no known shape"),
            "could not be checked on made-up inputs: pass --inputs (check_inputs); an input has",
        ),
        (
            Verification(
                *("compared", "made up", 2, 0.002, 0.001, 0.1),
                *("before Sigmoid 's', whose output is saturated", "x [2, 3] normal"),
            ),
            "compared in part, before Sigmoid 's', whose output is saturated: error against "
            "the float model 0.002 (at most 0.1 allowed), 1 - cosine 0.001; 2 runs on inputs made "
            "up: x [2, 3] normal\n",
        ),
    ],
    ids=lambda value: getattr(value, "status", ""),
)
def test_verification_that_is_not_whole_is_not_called_passed(
    verification: Verification, said: str
) -> None:
    shown = text(verification=verification)
    assert f"Check     {said}" in shown
    assert "passed" not in shown


def test_a_pytorch_model_has_no_words_of_onnx() -> None:
    shown = report(
        quantized("encoder.query"),
        source="BertModel",
        output="",
        target="torch",
        cpu="",
        quant_format="",
        opset=0,
        min_onnxruntime="",
        verification=Verification("skipped", detail="no inputs to compare with"),
    )
    assert shown.text() == (
        """\
BertModel
recipe int8, target torch

Quantized: 1 of 1 layer, 2.4 MB -> 596.0 kB
layers  op      before     after  worst SQNR  scheme, and its worst layer
     1  MatMul  2.4 MB  596.0 kB     40.0 dB  int8 per channel, activations per row
                                              encoder.query

Tensors  90.4 MB -> 22.9 MB (3.9x smaller)
Check    skipped: no inputs to compare with
Took     1.2 s
Verdict  Check before you ship: it was not compared with the float model
Next     Compare it on a batch of yours: inputs by the names that forward gives them.
         import octavo.torch; print(octavo.torch.compare(float_model, model, **batch))"""
    )


def test_inputs_that_were_given_are_said_to_be() -> None:
    given = Verification("passed", "given", 1, 0.5, None, 1.0, "output 'y' is the worst")
    line = "0.5 (at most 1 allowed); 1 run on inputs given; output 'y' is the worst"
    assert line in text(verification=given)


def test_a_model_in_which_nothing_is_quantized() -> None:
    out = report(left("/qk")).text()
    assert "Quantized: 0 of 1 layer\n" in out
    assert "Made for" not in out
    assert "Quantized: 0 of 0 layers" in report().text()


def test_what_needs_no_integer_products_is_made_for_every_processor() -> None:
    weights_only = report(quantized("/a", scheme="float16, weights only"))
    assert "Made for" not in weights_only.text()


def test_a_shared_weight_is_counted_once_and_said_to_be_shared() -> None:
    tied = linear("/b", shares_with=("/a",))
    again = quantized("/b", layer=tied, bytes_before=0, bytes_after=0)
    line = next(
        line
        for line in report(quantized("/a"), again).text(verbose=True).splitlines()
        if line.startswith("  /b")
    )
    assert line.split() == ["/b", "384x1536", "shared", "shared", "40.0", "dB"]


def test_weights_without_noise_or_number() -> None:
    assert "exact  int8" in report(quantized("/a", math.inf)).text()
    assert "/a" not in report(quantized("/a", None)).text()


def test_sizes_are_decimal_and_durations_round() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_949: "999.9 kB", 999_950: "1.0 MB"}
    sizes |= {90_387_630: "90.4 MB", 999_960_000: "1.00 GB", 4_294_967_296: "4.29 GB"}
    sizes[3_000_000_000_000] = "3000.00 GB"
    assert {n: words.size(n) for n in sizes} == sizes
    durations = {0.0312: "31 ms", 0.9996: "1.0 s", 59.9: "59.9 s", 59.96: "1 min 0 s"}
    durations[125] = "2 min 5 s"
    assert {seconds: words.duration(seconds) for seconds in durations} == durations


def test_ratios() -> None:
    ratios = {(400, 100): "4.0x smaller", (100, 120): "1.2x larger", (5, 5): "the same size"}
    ratios[0, 5] = "0 B to 5 B"
    assert {sizes: words.ratio(*sizes) for sizes in ratios} == ratios


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (1000, 1200, "Nothing gained in size: the file grows, 1.0 kB -> 1.2 kB"),
        (5000, 5000, "Nothing gained in size: the file is as large as before, 5.0 kB -> 5.0"),
        (10_000, 9600, "Little gained in size: the file is 4.0% smaller, 10.0 kB -> 9.6 kB"),
    ],
)
def test_the_first_line_says_where_nothing_is_gained(before: int, after: int, said: str) -> None:
    shown = report(quantized("/a"), model_bytes_before=before, model_bytes_after=after)
    assert shown.gains_nothing
    assert shown.text().startswith(said)
    modules = replace(shown, target="torch").text()
    assert modules.startswith(said.replace("the file", "the model"))


def test_a_tenth_is_a_gain_and_an_empty_model_gains_nothing() -> None:
    shown = report(quantized("/a"), model_bytes_before=1000, model_bytes_after=900)
    assert not shown.gains_nothing and shown.saved == pytest.approx(0.1)
    assert shown.text().startswith("model.onnx -> ")
    assert report(model_bytes_before=0, model_bytes_after=0).saved == 0.0


def test_a_result_says_itself_where_rich_is_not_installed(tmp_path: Path) -> None:
    shown = report(quantized("/a"), left("/b"), notes=("opset raised",))
    (tmp_path / "report.json").write_text(shown.to_json())
    code = (
        "import pathlib, sys; sys.modules['rich'] = None; import octavo, json; "
        "print(octavo.Report.from_dict(json.loads(pathlib.Path(sys.argv[1]).read_text())))"
    )
    done = fresh.python(code, tmp_path / "report.json")
    assert (done.stdout, done.stderr) == (f"{shown}\n", "")


@pytest.mark.parametrize(
    ("target", "cpu", "said"),
    [
        ("portable", "vnni", "Made for  VNNI, AMX or NEON; other x86 processors need"),
        ("portable", "any", ""),
        ("native", "", "Opens with  octavo.onnx.session, which registers Octavo's operators"),
    ],
)
def test_every_command_says_in_the_same_words_who_runs_its_file(
    target: str, cpu: str, said: str
) -> None:
    skipped = Verification("skipped")
    turned = Conversion(
        *("a.onnx", "b.onnx", target, cpu, {"Linear": 2}, 100, 100, 17, "1.17", skipped, 1.0)
    )
    for page in (turned.text(), text(target=target, cpu=cpu)):
        assert ("Made for" in page) == said.startswith("Made")
        assert page.count("octavo.onnx.session") == bool(said)
        assert said in page
