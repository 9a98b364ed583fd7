"""The newcomer does what README says, all of it, and looks at what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import newcomer
from benchmarks.newcomer import Outcome, bare, commands, outcome, shell
from benchmarks.results import REPOSITORY, Row

README = """# A program

```console
$ not this
```

## Try it

```console
$ one --flag   # a remark
what it prints
$ two \\
    with more
```

Then

```console
$ three
```

## More

```console
$ nor this
```
"""


def test_the_commands_are_those_of_the_section() -> None:
    assert commands(README) == ["one --flag   # a remark", "two     with more", "three"]


@pytest.mark.parametrize("title", ["Try", "Try it on", "A program"])
def test_a_section_that_is_not_there_is_an_error(title: str) -> None:
    with pytest.raises(ValueError, match=f"section '{title}' has code blocks"):
        commands(README, title)


def test_code_of_another_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"\['console', 'python'\], not console alone"):
        commands(README.replace("Then\n", "```python\nimport this\n```\n"))


def test_readme_has_the_steps_from_an_environment_to_a_report() -> None:
    steps = commands((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    text = "\n".join(steps)
    order = ["venv", "pip install", newcomer.FLOAT, "octavo quantize", newcomer.PAGE]
    assert sorted(order, key=text.index) == order
    assert any(step.startswith("octavo bench") for step in steps)


def test_one_shell_runs_the_steps(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    environment = bare(tmp_path / "home", caches=False)
    with log.open("w") as file, shell(tmp_path, environment, file) as run:
        assert run("mkdir -p deep && cd deep; export WHO=newcomer") < 5
        assert 0.3 < run("sleep 0.3") < 5
        run('cat; echo "$WHO in $PWD, home $HOME, cache ${PIP_NO_CACHE_DIR}"')
        with pytest.raises(RuntimeError, match=r"^`false # no` failed \(1\)$"):
            run("false # no")
        run("command -v python3 gcc; ! command -v octavo")
        with pytest.raises(RuntimeError, match=r"^`exit 3` failed \(it ended the shell\)$"):
            run("exit 3")
    said, python, gcc = log.read_text().splitlines()
    assert said == f"newcomer in {tmp_path}/deep, home {tmp_path}/home, cache 1"
    assert python == f"{tmp_path}/home/bin/python3"
    assert gcc == "/usr/bin/gcc"


def write(folder: Path, page: str) -> None:
    (folder / newcomer.FLOAT).write_bytes(bytes(400))
    (folder / newcomer.INT8).write_bytes(bytes(100))
    (folder / newcomer.PAGE).write_text(page)


def page(status: str, sentence: str = "It passed.") -> str:
    verification = {"status": status, "error": 0.02, "max_error": 0.1}
    data = json.dumps({"evidence": {}, "report": {"layers": [], "verification": verification}})
    element = f'<script type="application/json" id="data">{data}</script>'
    return f'<h1>x</h1>\n<p class="verdict">{sentence}</p>\n{element}\n<script>1</script>'


def test_the_outcome_is_read_from_the_files(tmp_path: Path) -> None:
    write(tmp_path, page("passed"))
    found = outcome(tmp_path)
    sizes = dict(zip(newcomer.FILES, (400, 100, len(page("passed"))), strict=True))
    assert found == Outcome(sizes, "It passed.", 0.02, 0.1)
    rows = newcomer.report([Row("a", 100.0, "s"), Row("b", 201.0, "s")], found)
    assert (rows[0].measured, rows[0].reached, rows[0].note) == (301.0, False, "It passed.")
    assert rows[1].reached is True
    assert [row.what for row in rows[-2:]] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (page("unchecked"), r"report\.html says of the verification: \{'status': 'unchecked'"),
        (page("passed", sentence=""), "report.html has no verdict"),
        ('<p class="verdict">It passed.</p>', "report.html has no data"),
    ],
)
def test_a_page_without_a_passed_verification_is_an_error(
    text: str, message: str, tmp_path: Path
) -> None:
    write(tmp_path, text)
    with pytest.raises(RuntimeError, match=message):
        outcome(tmp_path)


@pytest.mark.parametrize("name", newcomer.FILES)
def test_a_missing_file_is_an_error(name: str, tmp_path: Path) -> None:
    write(tmp_path, page("passed"))
    (tmp_path / name).unlink()
    with pytest.raises(RuntimeError, match=f"there is no {name} at the end"):
        outcome(tmp_path)
