"""The newcomer does what README says, all of it, and looks at what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import newcomer
from benchmarks.newcomer import bare, commands, timed, verification
from benchmarks.results import REPOSITORY

pytestmark = pytest.mark.slow

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


def test_readme_has_the_steps_from_an_environment_to_a_report() -> None:
    steps = commands((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    text = "\n".join(steps)
    order = ["venv", "pip install", newcomer.FLOAT, "octavo quantize", newcomer.PAGE]
    assert sorted(order, key=text.index) == order
    assert any(step.startswith("octavo bench") for step in steps)


def test_one_shell_runs_the_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    environment = bare(tmp_path / "home", caches=False)
    said = 'cat; echo "$WHO in $PWD, home $HOME, cache ${PIP_NO_CACHE_DIR}"'
    steps = ["mkdir -p deep && cd deep; export WHO=newcomer", "sleep 0.3", said]
    steps.append("command -v python3 gcc; ! command -v octavo")
    first, second, *_ = timed(steps, tmp_path, environment)
    assert first < 5
    assert 0.3 < second < 5
    told, python, gcc = capfd.readouterr().err.splitlines()
    assert told == f"newcomer in {tmp_path}/deep, home {tmp_path}/home, cache 1"
    assert python == f"{tmp_path}/home/bin/python3"
    assert gcc == "/usr/bin/gcc"


@pytest.mark.parametrize("step", ["false # no", "exit 1"])
def test_a_step_that_fails_is_named(step: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=rf"^`{step}` failed \(1\)$"):
        timed(["true", step, "true"], tmp_path, bare(tmp_path / "home", caches=False))


def page(status: str) -> str:
    found = {"status": status, "error": 0.02, "max_error": 0.1}
    data = json.dumps({"evidence": {}, "report": {"layers": [], "verification": found}})
    return f'<script type="application/json" id="data">{data}</script>\n<script>1</script>'


def test_the_verification_is_read_from_the_page() -> None:
    assert verification(page("passed"))["max_error"] == 0.1


@pytest.mark.parametrize("text", [page("unchecked"), "<p>It passed.</p>"])
def test_a_page_without_a_passed_verification_is_an_error(text: str) -> None:
    with pytest.raises(RuntimeError, match=r"report\.html says of the verification: \{"):
        verification(text)
