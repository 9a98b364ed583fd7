"""Who may import whom, and that every module has a caller. The table is the architecture.

Sources are read, never run, so that imports inside functions count too. Only what a type checker
alone sees (`if TYPE_CHECKING:`) makes no circle.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.sources import FILES, SRC, parsed

# package or module (the longest prefix counts): what of octavo, and which libraries it may import.
# Its own modules, `octavo` itself (the version) and the standard library go without saying.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "files": ({"errors"}, set()),
    "core": ({"errors", "_native"}, {"numpy"}),
    # Weights that other quantizers stored, as the groups that kernels read: no front end.
    "checkpoints": ({"core", "errors"}, {"numpy", "gguf"}),
    "recipe": ({"core", "errors"}, {"ruamel", "pydantic"}),
    "results": ({"recipe", "core", "errors"}, set()),
    # The operators of ai.octavo; they know neither a graph's passes nor a front end.
    "ir": ({"core", "errors"}, {"numpy", "onnx_ir"}),
    "graph": ({"ir", "recipe", "core", "errors"}, {"numpy", "onnx_ir"}),
    "graph.analysis": ({"ir", "core", "errors"}, {"numpy", "onnx_ir"}),
    "onnx": (
        {"graph", "ir", "recipe", "results", "core", "files", "errors"},
        {"numpy", "ml_dtypes", "onnx", "onnx_ir", "onnxscript", "onnxruntime", "google"},
    ),
    "torch": (
        {"graph", "ir", "recipe", "results", "core", "files", "errors"},
        {"numpy", "torch", "safetensors", "onnx_ir", "onnxscript", "sympy"},
    ),
    "torch.run.tasks": ({"errors"}, {"transformers"}),
    # Checkpoints of Hugging Face's libraries: what they export is run before it is put in place.
    "torch.hub": (
        {"torch", "checkpoints", "graph", "ir", "recipe", "results", "core", "files", "errors"},
        {
            *("numpy", "torch", "safetensors", "transformers", "huggingface_hub", "peft"),
            *("onnx_ir", "onnxruntime"),
        },
    ),
    # These two see models through callables only: no model library, no front end.
    "measure": (
        {"results", "recipe", "core", "errors"},
        # torchmetrics takes tensors, so that its metrics load torch (late, where it is asked for).
        {
            *("numpy", "scipy", "sklearn", "sacrebleu", "jiwer", "pyarrow", "ruamel"),
            *("torchmetrics", "torch"),
        },
    ),
    "tune": (
        {"measure", "results", "recipe", "core", "files", "front_ends", "errors"},
        {"numpy", "optuna", "pydantic", "ruamel"},
    ),
    # Neural Compressor's call may be asked for a page, which is made late.
    "tune.quantization": (
        {"tune", "report", "measure", "results", "recipe", "core", "files", "front_ends", "errors"},
        {"numpy", "ruamel", "pydantic"},
    ),
    # Metrics by the names of Neural Compressor's files: a table of other libraries.
    "tune.inc": (
        {"tune", "measure", "results", "recipe", "core", "files", "front_ends", "errors"},
        {
            *("numpy", "optuna", "pydantic", "ruamel", "scipy", "sklearn", "sacrebleu", "jiwer"),
            *("torchmetrics", "torch"),
        },
    ),
    "report": ({"results", "recipe", "core", "errors"}, {"rich", "jinja2", "matplotlib"}),
    "cli": (
        {
            *("onnx", "torch", "tune", "measure", "report", "results", "recipe"),
            *("core", "files", "front_ends", "errors"),
        },
        {"typer", "click", "rich"},
    ),
    # Which front end a model belongs to: what loads them for the command line and for tuning.
    "front_ends": ({"onnx", "torch", "results", "recipe", "core", "files", "errors"}, set()),
    "__main__": ({"cli"}, set()),
    "": (
        {"onnx", "torch", "tune", "measure", "report", "results", "recipe", "core", "errors"},
        set(),
    ),
}
FRONT_ENDS = {"onnx", "torch"}

# What serves models, and what of Octavo it may not load: whatever converts.
SERVING = {
    "octavo.onnx.session": ("graph", "results", "recipe", "tune", "measure", "report", "cli"),
    "octavo.torch.files.load": ("graph", "onnx", "tune", "measure", "report", "cli"),
    "octavo.torch.hub.quantizer": ("graph", "onnx", "tune", "measure", "report", "cli"),
}

# Private modules that are imported from outside of their package, and modules that import one
# another. Both are to be empty: no other is added.
PRIVATE: set[str] = set()
CIRCLES: set[frozenset[str]] = set()

# Packages of whose parts none may import another that imports it.
ROOMS_OF = [
    "octavo",
    *(f"octavo.{n}" for n in "graph onnx recipe results report torch tune".split()),
    *("octavo.torch.blocks", "octavo.torch.hub"),
]

ENTRY_POINTS = {"octavo", "octavo.cli", "octavo.onnx", "octavo.torch", "octavo.__main__"}
# Kernels that programs call in C++, by themselves: for tests and measuring.
ENTRY_POINTS |= {"octavo.core.attention", "octavo.core.layer_norm"}


@dataclass(frozen=True)
class Import:
    """An import of `module` (`octavo.core.qparams`, `numpy`); `late` ones are in a function."""

    module: str
    line: int
    late: bool = False
    for_types: bool = False


@cache
def imports(source: str, module: str, is_package: bool = False) -> tuple[Import, ...]:
    """Every import in `source`; `from a import b` gives `a.b`, which may be a module or a name."""
    package = module if is_package else module.rpartition(".")[0]

    found = []
    waiting: list[tuple[ast.AST, bool, bool]] = [(parsed(source), False, False)]
    while waiting:
        node, late, for_types = waiting.pop()
        for name in _imported(node, package):
            found.append(Import(name, node.lineno, late, for_types))  # type: ignore[attr-defined]
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = node.body if isinstance(node, ast.If) and _is_type_checking(node.test) else []
        for child in ast.iter_child_nodes(node):
            waiting.append((child, late, for_types or child in guarded))
    return tuple(sorted(found, key=lambda item: item.line))


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
    """`core` for `octavo.core.qparams`, "" for `octavo` and for a name in it."""
    steps = module.split(".")[1:]
    known = (".".join(steps[:n]) for n in range(len(steps), 0, -1))
    return next((part for part in known if part in ALLOWED or part == "_native"), "")


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What `source` imports against the rules, one sentence each."""
    part = part_of(module)
    if not part and module != "octavo":
        name = module.split(".")[1]
        return [f"{module}: part {name!r} is not in the table of {Path(__file__).name}; add it"]
    packages, libraries = ALLOWED[part]
    found = []
    for item in imports(source, module, is_package):
        where = f"{module}:{item.line}"
        library = item.module.split(".")[0]
        target = part_of(item.module)
        if library != "octavo":
            if library not in libraries | sys.stdlib_module_names:
                found.append(f"{where}: {part or 'octavo'} may not import {library}")
        elif target and not any(f"{target}.".startswith(f"{p}.") for p in (*packages, part)):
            found.append(f"{where}: {part or 'octavo'} may not import octavo.{target}")
        elif (
            target in FRONT_ENDS
            and part.split(".")[0] != target
            and not (item.late or item.for_types)
        ):
            found.append(f"{where}: octavo.{target} may be imported inside functions only")
    return found


def edges(
    sources: Mapping[str, str],
    *,
    strings: bool = True,
    late: bool = True,
    discovered: bool = False,
) -> dict[str, set[str]]:
    """The modules of `sources` that each of them imports, apart from what is for types alone.

    `strings` counts those that name a module in a package's `__init__`, which is how names are
    loaded late, `late` what functions import, `discovered` what a module loads because it lies
    beside it.
    """
    packages = {name.rpartition(".")[0] for name in sources}
    found = {}
    for name, source in sources.items():
        is_package = name in packages
        items = imports(source, name, is_package)
        named = {i.module for i in items if not i.for_types and (late or not i.late)}
        if is_package and strings:
            constants = (n for n in ast.walk(parsed(source)) if isinstance(n, ast.Constant))
            named |= {n.value for n in constants if isinstance(n.value, str)}
        if discovered and "iter_modules(" in source:
            folder = name if is_package else name.rpartition(".")[0]
            named |= {other for other in sources if other.rpartition(".")[0] == folder}
        homes = (next((p for p in reversed(_prefixes(m)) if p in sources), "") for m in named)
        found[name] = {home for home in homes if home and home != name}
    return found


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules that all import one another, directly or not."""
    reached = {name: reachable(edges, edges[name]) for name in edges}
    return {
        frozenset({name, *(m for m in reached[name] if name in reached[m])})
        for name in edges
        if name in reached[name]
    }


def room_edges(edges: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    """The edges between the parts of a package, each with all that lies in it."""
    found: dict[str, set[str]] = {}
    for name, imported in edges.items():
        rooms = [
            other.removeprefix(f"{package}.").partition(".")[0]
            for other in imported
            if other.startswith(f"{package}.")
        ]
        if name.startswith(f"{package}."):
            own = name.removeprefix(f"{package}.").partition(".")[0]
            found.setdefault(own, set()).update(room for room in rooms if room != own)
    return found


def reachable(edges: Mapping[str, set[str]], start: Iterable[str]) -> set[str]:
    """`start` and what it imports, directly or not."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return seen


def private_imports(sources: Mapping[str, str]) -> set[str]:
    """The private modules that modules outside of their package import."""
    found = set()
    for name, imported in edges(sources, discovered=True).items():
        for module in imported:
            *package, last = module.split(".")
            if last.startswith("_") and not f"{name}.".startswith(f"{'.'.join(package)}."):
                found.add(module)
    return found


def unreachable(sources: dict[str, str], entry_points: set[str]) -> set[str]:
    """Modules that nothing loads, directly or not, from `entry_points`."""
    # `a.b.c` loads a and a.b first.
    with_parents = {
        name: {prefix for module in imported for prefix in _prefixes(module) if prefix in sources}
        for name, imported in edges(sources, discovered=True).items()
    }
    seen = reachable(with_parents, [name for name in entry_points if name in sources])
    return {name for name in set(sources) - seen if _has_code(sources[name])}


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _has_code(source: str) -> bool:
    return any(not isinstance(node, ast.Expr) for node in parsed(source).body)


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path.read_text(encoding="utf-8") for path in FILES}


def test_a_module_imports_what_its_layer_may() -> None:
    for path in FILES:
        name = module_name(path)
        assert violations(SOURCES[name], name, path.name == "__init__.py") == []


def test_every_module_has_a_caller() -> None:
    assert unreachable(SOURCES, ENTRY_POINTS) == set()


def test_no_modules_import_one_another() -> None:
    assert circles(edges(SOURCES)) == CIRCLES


@pytest.mark.parametrize("package", ROOMS_OF)
def test_no_rooms_of_a_package_import_one_another(package: str) -> None:
    """Arrows go one way between what lies in a package: its modules, and packages in it."""
    assert circles(room_edges(edges(SOURCES, strings=False), package)) == set()


def test_private_modules_stay_in_their_package() -> None:
    assert private_imports(SOURCES) == PRIVATE


@pytest.mark.parametrize("module", SERVING)
def test_serving_loads_nothing_that_converts(module: str) -> None:
    loaded = reachable(edges(SOURCES, strings=False, late=False), [module])
    assert {name for name in loaded if part_of(name).startswith(SERVING[module])} == set()


LATE = "def f():\n    import numpy"
AWAITED = "async def f():\n    import octavo.onnx"
CALLED = "import importlib\nf = lambda: importlib.import_module('octavo.torch')"
TYPED = "if TYPE_CHECKING:\n    from octavo.onnx import Inspection"


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
        ("octavo.recipe.x", LATE, "octavo.recipe.x:2: recipe may not import"),
        ("octavo.graph.x", "import octavo.onnx.rule", "graph may not import octavo.onnx"),
        ("octavo.onnx.rules.x", "import torch", "onnx may not import torch"),
        ("octavo.onnx.x", "from octavo.torch import ops", "onnx may not import octavo.torch"),
        ("octavo.tune.x", AWAITED, "tune may not import octavo.onnx"),
        ("octavo.measure.x", CALLED, "octavo.measure.x:2: measure may not import octavo.torch"),
        ("octavo.measure.x", TYPED, "measure may not import octavo.onnx"),
        ("octavo.cli", "from octavo.onnx import inspect", "may be imported inside functions only"),
        ("octavo", "import octavo.torch", "octavo.torch may be imported inside functions only"),
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
        ("octavo", "def __getattr__(name):\n    return import_module('octavo.onnx')"),
    ],
)
def test_what_is_allowed_passes(module: str, source: str) -> None:
    assert violations(source, module, is_package=module == "octavo") == []


def test_planted_circles_are_found() -> None:
    sources = {
        "octavo": "",
        "octavo.a": "def f():\n    from octavo.b import x",
        "octavo.b": "import octavo.c",
        "octavo.c": "import importlib\nf = lambda: importlib.import_module('octavo.a')",
        "octavo.d": "import octavo.a\nif TYPE_CHECKING:\n    import octavo.e",
        "octavo.e": "import octavo.d",
        "octavo.f": "_HOME = {'x': 'octavo.f.g'}",
        "octavo.f.g": "from octavo.f import h",
        "octavo.f.h": "from octavo.f import y",
    }
    assert circles(edges(sources)) == {
        frozenset({"octavo.a", "octavo.b", "octavo.c"}),
        frozenset({"octavo.f", "octavo.f.g", "octavo.f.h"}),
    }


def test_planted_imports_of_private_modules_are_found() -> None:
    sources = {
        "octavo.a._own": "",
        "octavo.a.b": "from octavo.a._own import x",
        "octavo.a.c.d": "from octavo.a import _own",
        "octavo.e._other": "",
        "octavo.f": "def f():\n    from octavo.e._other import x",
    }
    assert private_imports(sources) == {"octavo.e._other"}


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
