"""What `import octavo` gives, and what it costs."""

import json
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


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves(name: str) -> None:
    value = getattr(octavo, name)
    assert value is getattr(octavo, name)
    assert name == "__version__" or value.__name__ == name


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"'octavo' has no attribute 'quantise'; it has \['De"):
        octavo.quantise  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'quantise' from 'octavo'"):
        from octavo import quantise  # noqa: F401


def test_importing_octavo_loads_nothing_heavy() -> None:
    loaded = json.loads(python("import sys, json, octavo; print(json.dumps(list(sys.modules)))"))
    assert "octavo" in loaded
    assert HEAVY & {name.partition(".")[0] for name in loaded} == set()
    assert [name for name in loaded if name.startswith("octavo.")] == []


def test_reading_recipes_loads_no_model_library() -> None:
    code = "import sys, octavo; octavo.Recipe, octavo.Report; print(*sys.modules, sep='\\n')"
    loaded = {name.partition(".")[0] for name in python(code).split()}
    assert (HEAVY - {"numpy"}) & loaded == set()


@pytest.mark.real_time
def test_importing_octavo_takes_under_100_ms() -> None:
    # The least of several runs, taken in turns, is what the import costs when nothing else runs.
    runs = [(seconds("import octavo"), seconds("pass")) for _ in range(5)]
    with_octavo, bare = (min(column) for column in zip(*runs, strict=True))
    assert with_octavo - bare < 0.1
