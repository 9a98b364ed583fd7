"""The public models of benchmarks/zoo, on a few of their real inputs, in both targets; not what is
trained here, as its weights follow the machine."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from octavo.onnx import inspect
from tests.golden.corpus import Case, Missing
from tests.golden.facts import Facts, inspection_facts, under
from tests.golden.onnx_runs import MAIN, TURNS, converted, quantized, session

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


def _minilm() -> tuple[Path, Arrays]:
    minilm = _zoo("minilm")
    return minilm.onnx_path(), minilm.tokenize(minilm.lee_documents()[:FEW])


def _minilm_export(exporter: str) -> tuple[Path, Arrays]:
    return _zoo("minilm_export").onnx_path(exporter), _minilm()[1]


def _magika() -> tuple[Path, Arrays]:
    magika = _zoo("magika")
    known = [file.path for file in magika.known_files()[:40:10]]
    return magika.model_path(), {"bytes": magika.features(known)}


def _dnsmos() -> tuple[Path, Arrays]:
    dnsmos = _zoo("dnsmos")
    return dnsmos.model_path(), {"input_1": dnsmos.clips(1)}


def _ocr() -> tuple[Path, Arrays]:
    ocr = _zoo("nano_ocr")
    return ocr.onnx_path(), {"images": ocr.images(FEW).numpy()}


def _silero(form: str) -> tuple[Path, Arrays]:
    silero = _zoo("silero")
    path = {**silero.forms(), **silero.more_forms()}[form]
    random = np.random.default_rng(0)
    frames = (random.standard_normal((4, 576)) * 0.1).astype(np.float32)
    names = {i.name for i in session(path).get_inputs()}
    if "h" in names:
        zero = np.zeros((1, 1, 128), np.float32)
        return path, {"input": frames, "h": zero, "c": zero}
    rate = {"sr": np.array(16_000, np.int64)} if "sr" in names else {}
    state = np.zeros((2, 1, 128), np.float32)
    return path, {"input": frames[:1], "state": state, **rate}


def onnx_model(find: Callable[[], tuple[Path, Arrays]], more: tuple[str, ...]) -> Case:
    """A model in the main forms and `more`, and each of the main ones for the other target."""

    def run(folder: Path) -> Facts:
        source, feeds = got(find)
        facts: Facts = {}
        for target in MAIN:
            facts |= under(f"{target} inspected", inspection_facts(inspect(source, target=target)))
        for form in (*MAIN, *more):
            found = quantized(folder, (source, feeds), form, verify=form == "native")
            # How many runs fit into the check's seconds follows the machine's load.
            verified = f"{form}: verified"
            facts |= {**found, verified: str(found[verified]).partition(",")[0]}
        for source_form, to in TURNS:
            facts |= converted(folder, feeds, source_form, to)
        return facts

    return run


def _torch(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import torch

    if name == "minilm":
        model = _zoo("minilm_export").torch_model()
        feed = {k: torch.from_numpy(np.asarray(v)) for k, v in _minilm()[1].items()}
        return model, (), feed
    if name == "g2p":
        g2p = _zoo("g2p")
        return g2p.torch_model(), (g2p.graphemes("octavo"),), {}
    return _zoo("nano_ocr").torch_model(), (_zoo("nano_ocr").images(FEW),), {}


def torch_model(name: str) -> Case:
    """A model of PyTorch with several recipes."""

    def run(folder: Path) -> Facts:
        from octavo import Recipe, Scheme
        from octavo.torch import quantize_dynamic as quantize
        from tests.golden.torch_support import model_facts

        model, args, kwargs = got(partial(_torch, name))
        facts: Facts = {}
        recipes = {
            "default": None,
            "int8-accurate": "int8-accurate",
            "all": Recipe("all", Scheme()),
        }
        for label, recipe in recipes.items():
            made = quantize(model, recipe=recipe, allow_nothing=True)
            facts |= under(label, model_facts(made, args, kwargs))
        return facts

    return run


FOUND: dict[str, tuple[Callable[[], tuple[Path, Arrays]], tuple[str, ...]]] = {
    "minilm": (_minilm, ("per-tensor", "accurate", "accurate native")),
    "minilm by dynamo": (partial(_minilm_export, "dynamo"), ()),
    "minilm by torchscript": (partial(_minilm_export, "torchscript"), ("any",)),
    "magika": (_magika, ("accurate native", "block")),
    "dnsmos": (_dnsmos, ()),
    "ocr": (_ocr, ("per-tensor",)),
    "silero initializers": (partial(_silero, "initializers"), ("accurate",)),
    "silero slice_concat": (partial(_silero, "slice_concat"), ()),
    "silero inside_if": (partial(_silero, "inside_if"), ("per-tensor",)),
    "silero outer_scope": (partial(_silero, "outer_scope"), ()),
    "silero gemm": (partial(_silero, "gemm"), ("qdq",)),
}
CASES: dict[str, Case] = {
    **{name: onnx_model(find, more) for name, (find, more) in FOUND.items()},
    **{f"torch {name}": torch_model(name) for name in ("minilm", "g2p", "ocr")},
}
