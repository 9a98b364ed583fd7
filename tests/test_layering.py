"""Who may import whom, and that every module has a caller. The table is the architecture.

Sources are read, never run, so that imports inside functions count too.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

# package: (other packages of octavo, libraries) it may import. Its own modules, `octavo` itself
# (the version) and the standard library go without saying.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "files": ({"errors"}, set()),
    "core": ({"errors", "_native"}, {"numpy"}),
    "recipe": ({"core", "errors"}, {"ruamel"}),
    "graph": ({"recipe", "core", "errors"}, {"numpy", "onnx_ir"}),
    "onnx": (
        {"graph", "recipe", "core", "files", "errors"},
        {"numpy", "ml_dtypes", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "google"},
    ),
    "torch": (
        {"graph", "recipe", "core", "files", "errors"},
        {"numpy", "torch", "safetensors", "onnx_ir", "onnxscript"},
    ),
    # These two see models through callables only: no model library, no front end.
    "measure": (
        {"recipe", "core", "errors"},
        {"numpy", "pyarrow"},
    ),
    "tune": (
        {"measure", "recipe", "core", "files", "front_ends", "errors"},
        {
            *("numpy", "optuna", "ruamel", "dask", "distributed"),
            # Metrics: torchmetrics takes tensors, so that its own load torch (late).
            *("scipy", "sklearn", "sacrebleu", "jiwer", "torchmetrics", "torch"),
        },
    ),
    "report": ({"recipe", "core", "errors"}, {"rich", "jinja2"}),
    "cli": (
        {
            *("onnx", "torch", "tune", "measure", "report", "recipe"),
            *("core", "files", "front_ends", "errors"),
        },
        {"typer", "click", "rich", "distributed"},
    ),
    # Which front end a model belongs to: what loads them for the command line and for tuning.
    "front_ends": ({"onnx", "torch", "recipe", "errors"}, set()),
    "__main__": ({"cli"}, set()),
    "": ({"onnx", "torch", "tune", "measure", "report", "recipe", "core", "errors"}, set()),
}
FRONT_ENDS = {"onnx", "torch"}
# Folders that the rest of Octavo imports inside functions only.
LATE_ONLY = ("octavo.tune.inc",)
MAY_LOAD_FRONT_ENDS_LATE = {"cli", "front_ends", ""}

# (importer, imported): (inside functions only?, why)
EXCEPTIONS = {
    ("octavo.results.report", "octavo.report.table"): (True, "print(report) shows the table"),
    ("octavo.results.comparison", "octavo.report.comparison"): (True, "print(...) shows the page"),
    ("octavo.results.tuning", "octavo.report.tuning"): (True, "print(result) shows the page"),
    ("octavo.results.report", "octavo.report.conversion"): (True, "print(...) shows the page"),
    ("octavo.results.benchmark", "octavo.report.bench"): (True, "print(bench(..)) shows the table"),
    ("octavo.recipe.inspection", "octavo.report.inspection"): (True, "print(..) shows the table"),
    ("octavo.report.doctor", "octavo.measure.doctor"): (
        False,
        "Diagnosis and Package are the plain dataclasses that it draws; that module imports late",
    ),
}

ENTRY_POINTS = {"octavo", "octavo.cli", "octavo.onnx", "octavo.torch", "octavo.__main__"}
DISCOVERED = {"octavo.torch.layers.registry": "octavo.torch.layers."}
"""Modules that import all that lie beside them: a file there is a caller's already."""


@dataclass(frozen=True)
class Import:
    """One import of `module` (`octavo.core.qtype`, `numpy`); `late` ones run inside a function."""

    module: str
    line: int
    late: bool = False
    for_types: bool = False


def imports(source: str, module: str, is_package: bool = False) -> Iterator[Import]:
    """Every import in `source`; `from a import b` gives `a.b`, which may be a module or a name."""
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, late: bool, for_types: bool) -> Iterator[Import]:
        for name in _imported(node, package):
            yield Import(name, node.lineno, late, for_types)  # type: ignore[attr-defined]
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = node.body if isinstance(node, ast.If) and _is_type_checking(node.test) else []
        for child in ast.iter_child_nodes(node):
            yield from visit(child, late, for_types or child in guarded)

    yield from visit(ast.parse(source), late=False, for_types=False)


def _imported(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in ("import_module", "__import__"):
            return [str(node.args[0].value)]
    return []


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def part_of(module: str) -> str:
    """`core` for `octavo.core.qtype`, "" for `octavo` and for a name in it."""
    part = [*module.split("."), ""][1]
    return part if part in ALLOWED or part == "_native" else ""


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What `source` imports against the rules, one sentence each."""
    part = module.partition(".")[2].partition(".")[0]
    if part not in ALLOWED:
        return [f"{module}: part {part!r} is not in the table of {Path(__file__).name}; add it"]
    packages, libraries = ALLOWED[part]
    found = []
    for item in imports(source, module, is_package):
        where = f"{module}:{item.line}"
        if item.module.split(".")[0] != "octavo":
            library = item.module.split(".")[0]
            if library not in libraries | sys.stdlib_module_names:
                found.append(f"{where}: {part or 'octavo'} may not import {library}")
            continue
        target = part_of(item.module)
        if _is_exception(module, item):
            continue
        if target not in packages | {part, ""}:
            found.append(f"{where}: {part or 'octavo'} may not import octavo.{target}")
        elif target in FRONT_ENDS and part != target and not (item.late or item.for_types):
            found.append(f"{where}: octavo.{target} may be imported inside functions only")
        for folder in LATE_ONLY:
            inside, own = _is_in(item.module, folder), _is_in(module, folder)
            if inside and not own and not (item.late or item.for_types):
                found.append(f"{where}: {folder} may be imported inside functions only")
    return found


def _is_exception(module: str, item: Import) -> bool:
    return any(
        module == importer
        and f"{item.module}.".startswith(f"{imported}.")
        and (item.late or not late_only)
        for (importer, imported), (late_only, _) in EXCEPTIONS.items()
    )


def _is_in(module: str, folder: str) -> bool:
    return f"{module}.".startswith(f"{folder}.")


def unreachable(sources: dict[str, str], entry_points: set[str]) -> set[str]:
    """Modules that nothing loads, directly or not, from `entry_points`.

    `sources` maps module names to their text, packages included. Strings in a package's
    `__init__` that name a module count: that is how names are loaded late.
    """
    packages = {name.rpartition(".")[0] for name in sources}
    edges = {}
    for name, source in sources.items():
        is_package = name in packages
        named = {i.module for i in imports(source, name, is_package) if not i.for_types}
        if is_package:
            named |= {
                node.value
                for node in ast.walk(ast.parse(source))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
        # `a.b.c` loads a and a.b first; `from a.b import c` gives a.b.c where c is no module.
        edges[name] = {
            prefix for target in named for prefix in _prefixes(target) if prefix in sources
        }
    seen: set[str] = set()
    waiting = [name for name in entry_points if name in sources]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return {name for name in set(sources) - seen if _has_code(sources[name])}


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _has_code(source: str) -> bool:
    return any(not isinstance(node, ast.Expr) for node in ast.parse(source).body)


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(SRC.glob("octavo/**/*.py"))
SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(SRC)) for p in FILES])
def test_a_module_imports_what_its_layer_may(path: Path) -> None:
    name = module_name(path)
    assert violations(SOURCES[name], name, path.name == "__init__.py") == []


def test_every_module_has_a_caller() -> None:
    found = {name for name in SOURCES if name.startswith(tuple(DISCOVERED.values()))}
    assert set(DISCOVERED) <= set(SOURCES)
    assert unreachable(SOURCES, ENTRY_POINTS | found) == set()


@pytest.mark.parametrize(("importer", "imported"), EXCEPTIONS)
def test_every_exception_is_needed(importer: str, imported: str) -> None:
    found = [i for i in imports(SOURCES[importer], importer) if _is_exception(importer, i)]
    assert any(f"{i.module}.".startswith(f"{imported}.") for i in found)


# --- the checker itself ---


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("octavo.core.x", "import onnx", "octavo.core.x:1: core may not import onnx"),
        ("octavo.core.x", "import yaml.nodes", "core may not import yaml"),
        ("octavo.core.x", "from octavo.recipe import Scheme", "core may not import octavo.recipe"),
        ("octavo.core.x", "from octavo import recipe", "core may not import octavo.recipe"),
        ("octavo.core.x", "from ..recipe import plan", "core may not import octavo.recipe"),
        ("octavo.core.x", "from .. import recipe", "core may not import octavo.recipe"),
        ("octavo.recipe.x", "from octavo import _native", "recipe may not import octavo._native"),
        (
            "octavo.recipe.x",
            "def f():\n    import numpy",
            "octavo.recipe.x:2: recipe may not import",
        ),
        (
            "octavo.recipe.x",
            "from octavo.report import table",
            "recipe may not import octavo.report",
        ),
        (
            "octavo.results.report",
            "from octavo.report.table import report_text",
            "recipe may not import octavo.report",
        ),
        (
            "octavo.results.report",
            "def f():\n    from octavo.report.html import page",
            "recipe may not import octavo.report",
        ),
        ("octavo.graph.x", "import onnx", "graph may not import onnx"),
        ("octavo.graph.x", "import octavo.onnx.rule", "graph may not import octavo.onnx"),
        ("octavo.onnx.rules.x", "import torch", "onnx may not import torch"),
        ("octavo.onnx.x", "from octavo.torch import ops", "onnx may not import octavo.torch"),
        (
            "octavo.onnx.x",
            "class A:\n  def f(self):\n    import octavo.report.table",
            "octavo.report",
        ),
        ("octavo.torch.export", "from octavo.onnx import session", "may not import octavo.onnx"),
        (
            "octavo.tune.x",
            "async def f():\n    import octavo.onnx",
            "tune may not import octavo.onnx",
        ),
        ("octavo.measure.x", "import onnxruntime", "measure may not import onnxruntime"),
        (
            "octavo.measure.x",
            "import importlib\nf = lambda: importlib.import_module('octavo.torch')",
            "octavo.measure.x:2: measure may not import octavo.torch",
        ),
        (
            "octavo.measure.x",
            "if TYPE_CHECKING:\n    from octavo.onnx import Inspection",
            "measure may not import octavo.onnx",
        ),
        ("octavo.report.x", "from octavo.measure import bench", "may not import octavo.measure"),
        ("octavo.errors", "import rich", "errors may not import rich"),
        ("octavo.cli", "from octavo.onnx import inspect", "may be imported inside functions only"),
        ("octavo.cli", "import onnx", "cli may not import onnx"),
        ("octavo", "import octavo.torch", "octavo.torch may be imported inside functions only"),
        ("octavo.tune.x", "from octavo.tune.inc import load", "inside functions only"),
        ("octavo.extra", "", "part 'extra' is not in the table"),
    ],
)
def test_a_planted_violation_is_caught(module: str, source: str, message: str) -> None:
    (found,) = violations(source, module, is_package=module == "octavo")
    assert message in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("octavo.core.x", "import numpy.typing\nfrom octavo import _native\nfrom . import qtype"),
        ("octavo.onnx.x", "import octavo\nfrom octavo import __version__\nimport onnx_ir as ir"),
        ("octavo.cli", "import typer\ndef f():\n    from octavo.onnx import inspect"),
        ("octavo.cli", "if TYPE_CHECKING:\n    from octavo.torch import quantize"),
        (
            "octavo.results.report",
            "def f():\n    from octavo.report.table import report_text",
        ),
        ("octavo", "def __getattr__(name):\n    return import_module('octavo.onnx')"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert violations(source, module, is_package=module == "octavo") == []


def test_a_planted_orphan_is_found() -> None:
    sources = {
        "octavo": "_HOME = {'a': 'octavo.late'}",
        "octavo.late": "from octavo.core import used",
        "octavo.core": '"""Nothing but a docstring."""',
        "octavo.core.used": "from . import also",
        "octavo.core.also": "import octavo.core.used",
        "octavo.core.one": "import octavo.core.two",  # these two know each other, and nobody them
        "octavo.core.two": "def f():\n    import octavo.core.one",
        "octavo.core.typed": "x = 1",
        "octavo.spare": '"""Nothing but a docstring."""',
        "octavo.cli": "if TYPE_CHECKING:\n    from octavo.core.typed import x",
    }
    orphans = {"octavo.core.one", "octavo.core.two", "octavo.core.typed"}
    assert unreachable(sources, {"octavo", "octavo.cli"}) == orphans
    assert unreachable(sources, {"octavo"}) == {*orphans, "octavo.cli"}
