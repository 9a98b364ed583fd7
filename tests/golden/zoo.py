"""The public models of benchmarks/zoo, on a few of their real inputs, in both targets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.onnx import convert_target, inspect, quantize_dynamic
from tests.golden.corpus import Case, Missing
from tests.golden.facts import (
    Facts,
    conversion_facts,
    digest,
    file_facts,
    inspection_facts,
    outputs,
    report_facts,
    under,
)
from tests.golden.onnx_runs import FORMS, brief, session

Arrays = Mapping[str, Any]
FEW = 2


def _zoo(module: str) -> Any:
    return importlib.import_module(f"benchmarks.zoo.{module}")


def got(make: Callable[[], Any]) -> Any:
    """What a fetcher gives; Missing where it cannot (no network, a package that is not there)."""
    try:
        return make()
    except Exception as error:  # any failure to fetch
        raise Missing(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


def _minilm() -> tuple[Path, list[Arrays]]:
    minilm = _zoo("minilm")
    return minilm.onnx_path(), [minilm.tokenize(minilm.lee_documents()[:FEW])]


def _minilm_export(exporter: str) -> tuple[Path, list[Arrays]]:
    return _zoo("minilm_export").onnx_path(exporter), _minilm()[1]


def _magika() -> tuple[Path, list[Arrays]]:
    magika = _zoo("magika")
    known = [file.path for file in magika.known_files()[:40:10]]
    return magika.model_path(), [{"bytes": magika.features(known)}]


def _dnsmos() -> tuple[Path, list[Arrays]]:
    dnsmos = _zoo("dnsmos")
    return dnsmos.model_path(), [{"input_1": dnsmos.clips(1)}]


def _ocr() -> tuple[Path, list[Arrays]]:
    ocr = _zoo("nano_ocr")
    return ocr.onnx_path(), [{"images": ocr.images(FEW).numpy()}]


def _fashion() -> tuple[Path, list[Arrays]]:
    fashion = _zoo("fashion_mnist")
    return fashion.onnx_path(), [{"images": fashion.images()[:4]}]


def _silero(form: str) -> tuple[Path, list[Arrays]]:
    silero = _zoo("silero")
    path = {**silero.forms(), **silero.more_forms()}[form]
    random = np.random.default_rng(0)
    frames = (random.standard_normal((4, 576)) * 0.1).astype(np.float32)
    names = {i.name for i in session(path).get_inputs()}
    if "h" in names:
        zero = np.zeros((1, 1, 128), np.float32)
        return path, [{"input": frames, "h": zero, "c": zero}]
    rate = {"sr": np.array(16_000, np.int64)} if "sr" in names else {}
    state = np.zeros((2, 1, 128), np.float32)
    return path, [{"input": frames[i : i + 1], "state": state, **rate} for i in range(2)]


def onnx_model(find: Callable[[], tuple[Path, list[Arrays]]], forms: tuple[str, ...]) -> Case:
    """A model in several forms, and each of the main ones for the other target."""

    def run(folder: Path) -> Facts:
        source, feeds = got(find)
        facts: Facts = {}
        for target in ("portable", "native"):
            found = inspection_facts(inspect(source, target=target))
            facts[f"{target}: inspected"] = digest(
                "\n".join(f"{k} {v}" for k, v in found.items()).encode()
            )
        for form in forms:
            path = folder / f"{form}.onnx"
            options = FORMS[form]
            said = report_facts(quantize_dynamic(source, path, verify=form == "native", **options))
            # How many runs fit into the check's seconds follows the machine's load.
            said["verified"] = str(said["verified"]).partition(",")[0]
            exact = options.get("target") == "native"
            facts |= under(
                form, brief({**said, **file_facts(path), **_outputs(path, feeds, exact)})
            )
        for form, to in (("portable", "native"), ("native", "portable")):
            path = folder / f"turned_{to}.onnx"
            done = convert_target(folder / f"{form}.onnx", path, to=to, verify=False)
            found = {
                **conversion_facts(done),
                **file_facts(path),
                **_outputs(path, feeds, to == "native"),
            }
            facts |= under(f"{form} to {to}", brief(found))
        return facts

    return run


def _outputs(path: Path, feeds: list[Arrays], exact: bool) -> Facts:
    opened = session(path)
    names = [o.name for o in opened.get_outputs()]
    facts: Facts = {}
    for i, feed in enumerate(feeds):
        found = outputs([f"{n}{i or ''}" for n in names], opened.run(None, dict(feed)), exact=exact)
        facts |= found
    return facts


def _torch(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    if name == "minilm":
        model = _zoo("minilm_export").torch_model()
        feed = {k: torch.from_numpy(np.asarray(v)) for k, v in _minilm()[1][0].items()}
        return model, (), feed
    if name == "g2p":
        g2p = _zoo("g2p")
        return g2p.torch_model(), (g2p.graphemes("octavo"),), {}
    if name == "ocr":
        return _zoo("nano_ocr").torch_model(), (_zoo("nano_ocr").images(FEW),), {}
    fashion = _zoo("fashion_mnist")
    return fashion.torch_model(), (torch.from_numpy(fashion.images()[:4]),), {}


def torch_model(name: str) -> Case:
    """A model of PyTorch with several recipes."""

    def run(folder: Path) -> Facts:
        from octavo import Recipe, Scheme
        from octavo.torch import quantize_dynamic as quantize
        from tests.golden.torch_support import model_facts

        model, args, kwargs = got(partial(_torch, name))
        facts: Facts = {}
        for label, said in {
            "default": {},
            "int8-accurate": {"recipe": "int8-accurate"},
            "all": {"recipe": Recipe("all", Scheme())},
        }.items():
            found = model_facts(
                quantize(model, allow_nothing=True, **said), args, full=False, kwargs=kwargs
            )
            facts |= under(label, found)
        return facts

    return run


FOUND: dict[str, Callable[[], tuple[Path, list[Arrays]]]] = {
    "minilm": _minilm,
    "minilm by dynamo": partial(_minilm_export, "dynamo"),
    "minilm by torchscript": partial(_minilm_export, "torchscript"),
    "magika": _magika,
    "dnsmos": _dnsmos,
    "ocr": _ocr,
    "fashion": _fashion,
    **{
        f"silero {form}": partial(_silero, form)
        for form in ("initializers", "slice_concat", "inside_if", "outer_scope", "gemm")
    },
}
CASES: dict[str, Case] = {
    **{
        name: onnx_model(find, ("portable", "native", *more))
        for (name, find), more in zip(
            FOUND.items(),
            (
                ("per-tensor", "accurate", "accurate native"),
                (),
                ("any",),
                ("accurate native", "block"),
                (),
                ("per-tensor",),
                ("any",),
                ("accurate",),
                (),
                ("per-tensor",),
                (),
                ("qdq",),
            ),
            strict=True,
        )
    },
    **{f"torch {name}": torch_model(name) for name in ("minilm", "g2p", "ocr", "fashion")},
}
