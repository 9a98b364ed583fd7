"""What `import octavo` gives, and what it costs."""

import subprocess
import sys
import time

import pytest

import octavo

NAMES = ["Decision", "Layer", "OctavoError", "Recipe", "Report", "Scheme", "__version__"]
HEAVY = {
    *("torch", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "numpy", "pydantic", "ruamel"),
    *("typer", "rich", "scipy", "sklearn", "optuna", "matplotlib"),
}


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


def seconds(code: str) -> float:
    start = time.perf_counter()
    python(code)
    return time.perf_counter() - start


def test_the_public_names_are_these() -> None:
    assert sorted(octavo.__all__) == NAMES
    assert len(NAMES) <= 15
    assert dir(octavo) == NAMES


def test_every_name_resolves() -> None:
    for name in set(NAMES) - {"__version__"}:
        assert getattr(octavo, name).__name__ == name


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"'octavo' has no attribute 'quantise'; it has \['De"):
        octavo.quantise  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'quantise' from 'octavo'"):
        from octavo import quantise  # noqa: F401


def test_importing_octavo_and_reading_recipes_load_nothing_heavy() -> None:
    said = "print(*sys.modules);"
    first, then = python(
        f"import sys, octavo; {said} octavo.Recipe, octavo.Report; {said}"
    ).splitlines()
    assert "octavo" in first.split() and "octavo." not in first
    assert HEAVY & {name.partition(".")[0] for name in first.split()} == set()
    assert (HEAVY - {"numpy"}) & {name.partition(".")[0] for name in then.split()} == set()


@pytest.mark.real_time
def test_importing_octavo_takes_under_100_ms() -> None:
    # The least of several runs, taken in turns, is what the import costs when nothing else runs.
    runs = [(seconds("import octavo"), seconds("pass")) for _ in range(5)]
    with_octavo, bare = (min(column) for column in zip(*runs, strict=True))
    assert with_octavo - bare < 0.1
