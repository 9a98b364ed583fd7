"""The checks of documents: what would be wrong in one is found, wherever it stands."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from sybil import Document
from sybil.example import SybilFailure

from tests.docs.blocks import parser
from tests.docs.commands import Command, commands
from tests.docs.evaluators import EVALUATORS
from tests.docs.shown import differs

pytestmark = pytest.mark.slow


def run(folder: Path, text: str) -> None:
    path = folder / "page.md"
    path.write_text(textwrap.dedent(text))
    for example in Document.parse(str(path), parser(EVALUATORS)):
        example.evaluate()


@pytest.mark.parametrize(
    ("text", "substance"),
    [
        ("```bash\n$ octavo doctor\n```\n", "nothing runs blocks of language 'bash'"),
        ("Words.\n\n    octavo doctor\n", "an indented block has no language"),
        ("<pre>\noctavo doctor\n</pre>\n", "HTML with code in it"),
        ("```text\n$ octavo doctor\n```\n", "this looks like code"),
        ("```console\noctavo doctor\n```\n", "no line starts with `$ `"),
        ("```console\n$ octavo quantize gone.onnx\n```\n", "gone.onnx does not exist"),
        ("```console\n$ octavo doctor gone.onnx\n$ echo $?\n2\n```\n", "ended with 3, not ('2',)"),
        ("```console\n$ octavo --version\noctave 0.1.0\n```\n", "not printed in this order"),
        ("```console\n$ rm -r /\n```\n", "nothing here runs 'rm'"),
        ("```console\n$ make coffee\n```\n", "no target coffee"),
        ("```console\n$ pip install 'octavo[gpu]'\n```\n", "no extra 'gpu'"),
        ("```console\n$ python -m benchmarks.gone\n```\n", "no module benchmarks.gone"),
    ],
)
def test_what_cannot_be_run_or_fails_is_found(
    text: str, substance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SybilFailure) as caught:
        run(tmp_path, text)
    assert substance in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nassert 1 == 2\n```\n", AssertionError),
        ("1. first\n\n   ```python\n   undefined\n   ```\n", NameError),
        ("```yaml\nbase: int8\nrule: []\n```\n", ValueError),
        ("```yaml\nmodel:\n  framework: caffe\n```\n", ValueError),
    ],
)
def test_wrong_python_and_yaml_raise(
    text: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        run(tmp_path, text)


def test_blocks_go_on_where_those_before_them_ended_and_titles_name_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(
        tmp_path,
        """
        ```python title="mine.py"
        x = 41
        ```

        ```yaml title="recipes/mine.yaml"
        base: int8
        ```

        ```python
        from pathlib import Path

        Path("found.txt").write_text(f"{x + 1} {Path('recipes/mine.yaml').read_text()}")
        ```

        ```console
        $ cat mine.py && octavo --version
        octavo 0.0.7
        $ octavo quantize gone.onnx
        error: gone.onnx does not exist...
        $ echo $?
        3
        $ make test && pip install '.[torch]'
        ```
        """,
    )
    assert (tmp_path / "found.txt").read_text() == "42 base: int8\n"
    assert (tmp_path / "mine.py").read_text() == "x = 41\n"


def test_an_error_in_python_is_at_its_line_in_the_document(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(tmp_path, "# A title\n\nWords.\n\n```python\nx = 1\nx / 0\n```\n")
    assert caught.traceback[-1].lineno + 1 == 7


def test_commands_have_comments_continuations_and_output() -> None:
    found = list(commands("$ a 'b *' \\\n    c  # why\nout\n  more\n\n$ d && e\n"))
    assert found == [
        Command(("a", "b *", "c"), ("out", "  more")),
        Command(("d",), ()),
        Command(("e",), ()),
    ]


PRINTED = ["model  2 layers  12.5 kB", "", "took 31.2 ms", "wrote a.onnx"]


@pytest.mark.parametrize(
    "shown",
    [
        ["model 38 layers 90.1 MB", "took 1.2 s", "wrote a.onnx"],
        ["...", "took 1 us", "..."],
        ["...", "wrote ..."],
    ],
)
def test_numbers_units_and_gaps_may_differ(shown: list[str]) -> None:
    assert differs(shown, PRINTED) is None


@pytest.mark.parametrize(
    "shown",
    [
        ["model 2 layers 12.5 kB", "wrote a.onnx"],  # a line is missing
        ["model 2 layers 12.5 kB", "took 31.2 ms"],  # and at the end
        ["took 31.2 ms", "wrote a.onnx"],  # and at the begin
        ["...", "wrote a.onnx", "took 31.2 ms"],  # another order
        ["model 2 layers", "..."],
    ],
)
def test_other_words_and_another_order_may_not(shown: list[str]) -> None:
    assert differs(shown, PRINTED) is not None
