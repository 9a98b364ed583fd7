"""Tables of `families` and `quantized_files`, a family a line: what sections say one by one.

Figures that were asked for and missed are bold; what could not be measured is left empty, and the
section of that family says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks import quantized_files
from benchmarks.families_torch import BFLOAT16
from benchmarks.results import Result, Row
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO
from benchmarks.variants import NATIVE, OPENVINO, QD_CHANNEL
from benchmarks.zoo.families import FAMILIES

ERROR = ": 1 - cosine with float"
Found = Mapping[tuple[str, str], Row]


def torch_lines(result: Result) -> list[str]:
    """PyTorch modules, one call of 128 tokens, a picture or a recording."""
    columns = (
        ("over torch.ao", "PyTorch, {0}", f"{OCTAVO}: speed over {AO_CHANNEL}"),
        ("over float", "PyTorch, {0}", f"{OCTAVO}: speed over {FLOAT}"),
        ("two threads: over torch.ao", "PyTorch, {1}", f"{OCTAVO}: speed over {AO_CHANNEL}"),
        ("error", "PyTorch, {0}", OCTAVO + ERROR),
        ("error of torch.ao", "PyTorch, {0}", AO_CHANNEL + ERROR),
    )
    return _lines(result, ["family"], columns, [((name,), name, "") for name in FAMILIES])


def token_lines(result: Result) -> list[str]:
    """One token behind a cache of 128."""
    section = "one token after a cache, {0}"
    over = f"{OCTAVO}: speed over "
    columns = (
        ("over torch.ao", section, over + AO_CHANNEL),
        ("over bfloat16", section, over + BFLOAT16),
        ("over float", section, over + FLOAT),
        ("error", section, OCTAVO + ERROR),
        ("error of torch.ao", section, AO_CHANNEL + ERROR),
    )
    return _lines(result, ["family"], columns, [((name,), name, "") for name in FAMILIES])


def onnx_lines(result: Result) -> list[str]:
    """ONNX files in target native, an export a line."""
    speed, two = ("ONNX, target native: speed, {0}", "ONNX, target native: speed, {1}")
    made = "ONNX, target native: what was made"
    columns = (
        ("over the best peer", speed, "{2}over the best"),
        ("over ONNX Runtime", speed, f"{{2}}over {QD_CHANNEL}"),
        ("over OpenVINO", speed, f"{{2}}over {OPENVINO}"),
        ("two threads: over ONNX Runtime", two, f"{{2}}over {QD_CHANNEL}"),
        ("over OpenVINO", two, f"{{2}}over {OPENVINO}"),
        ("error", made, f"{{2}}{NATIVE}{ERROR}"),
        ("of ONNX Runtime", made, f"{{2}}{QD_CHANNEL}{ERROR}"),
        ("of OpenVINO", made, f"{{2}}{OPENVINO}{ERROR}"),
    )
    lines = [
        ((family.name, f"{exporter}, {spelling}"), family.name, f"{exporter} {spelling}: ")
        for family in FAMILIES.values()
        for exporter in ("torchscript", "dynamo")
        for spelling in family.spellings
    ]
    return _lines(result, ["family", "export"], columns, lines)


def files_lines(result: Result) -> list[str]:
    """Files of ONNX Runtime's quantizer, converted to target native."""
    js, defaults = (form + ", {0}" for form in quantized_files.FORMS)
    two = quantized_files.JS + ", {1}"
    columns = (
        ("speed", js, quantized_files.SPEED),
        ("two threads", two, quantized_files.SPEED),
        ("error", js, quantized_files.ERROR),
        ("speed, file of the defaults", defaults, quantized_files.SPEED),
        ("error", defaults, quantized_files.ERROR),
    )
    lines = [((name,), name, "") for name in quantized_files.ARCHITECTURES]
    return _lines(result, ["family"], columns, lines)


TABLES: dict[str, Callable[[Result], list[str]]] = {
    "torch": torch_lines,
    "token": token_lines,
    "onnx": onnx_lines,
    "files": files_lines,
}


def _lines(
    result: Result,
    first: Sequence[str],
    columns: Sequence[tuple[str, str, str]],
    lines: Sequence[tuple[tuple[str, ...], str, str]],
) -> list[str]:
    """A Markdown table. A column is a title, a section and a row of it, a line its first cells, a
    family and what stands in `{2}`'s place."""
    found: Found = {(row.section, row.what): row for row in result.rows}
    titles = [*first, *(title for title, _, _ in columns)]
    made = ["| " + " | ".join(titles) + " |", "|---" * len(first) + "|--:" * len(columns) + "|"]
    for cells, family, export in lines:
        words = ("1 thread", "2 threads", export)
        figures = list(_cells(found, family, columns, words))
        if any(figures):
            made.append("| " + " | ".join([*cells, *figures]) + " |")
    return made


def _cells(
    found: Found, family: str, columns: Sequence[tuple[str, str, str]], words: Sequence[str]
) -> Iterator[str]:
    for _, section, what in columns:
        row = found.get((f"{family}: {section.format(*words)}", what.format(*words)))
        if row is None or math.isnan(row.measured):
            yield ""
            continue
        share = row.unit == "x" or row.what == quantized_files.ERROR
        text = f"{row.measured:.2f}" if share else f"{row.measured:.1e}"
        yield f"**{text}**" if row.reached is False else text
