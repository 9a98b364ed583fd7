"""A checkpoint of transformers, by its folder or its name: where it is, what it holds and is for.

found = find_checkpoint("path/to/checkpoint")     # or "org/name", from Hugging Face's cache
found.architecture, found.task                    # "BertModel", Task.FEATURES
found.tensors                                     # names, shapes, dtypes, bytes: no values
found.skeleton(), found.load()                    # the module without and with its weights
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from octavo.core.packages import CHECKPOINTS, need
from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    brief,
    listed,
    suggest,
    typed,
)
from octavo.files.checkpoints import CONFIG, INDEX, MODULES, PARTS, WEIGHTS
from octavo.torch.files.factories import skeleton
from octavo.torch.hub.gptq_scheme import GptqConfig
from octavo.torch.hub.headers import StoredTensor, stored_tensors
from octavo.torch.hub.libraries import quiet_libraries
from octavo.torch.run.tasks import Task, task_of

if TYPE_CHECKING:
    from torch import nn

_OTHERS = (
    *(MODULES, "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("1_Pooling/config.json", "2_Normalize/config.json", "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model"),
    *("sentencepiece.bpe.model", "preprocessor_config.json", "processor_config.json"),
    "chat_template.jinja",
)
"""Files beside the weights that tokenizers and processors are loaded from, where there are some."""
KEPT = ("compressed-tensors", "gptq", "awq", "auto-round")
"""Who stores weights that Octavo's layers hold with the same integers."""
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".gguf", ".ot")
_OTHER_FORMS = frozenset(
    {"onnx", "openvino", "coreml", ".git", ".gitattributes", ".gitignore", ".cache"}
)
_MOST_LAYERS = 10_000
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine. `name` is what it was asked for by; `folder` has its files.

    `root` is the folder of a sentence-transformers model that `folder` is a part of, else `folder`.
    `config` is transformers' configuration object.
    """

    name: str
    root: Path
    folder: Path
    config: Any

    @property
    def architecture(self) -> str:
        """The name of the class that it was saved from; AutoModel where it does not say."""
        named = getattr(self.config, "architectures", None) or ["AutoModel"]
        if not isinstance(named, list) or not isinstance(named[0], str):
            raise ModelError(
                f"{self.folder / CONFIG} is damaged: architectures is {named!r}, and it is a list "
                "of a class's name; get the file again"
            )
        return str(named[0])

    @cached_property
    def model_class(self) -> Any:
        """Return the architecture's class. Raises ModelError where transformers has it not."""
        import transformers

        found = getattr(transformers, self.architecture, None)
        if found is not None:
            return found
        if getattr(self.config, "auto_map", None):
            raise ModelError(
                f"{self.name}: {self.architecture} is code in its repository (auto_map), which is "
                "not run here. Load the model in Python, and pass it "
                "to octavo.torch.quantize_dynamic"
            )
        raise ModelError(
            f"{self.name}: {self.folder / CONFIG} names the architecture {self.architecture!r}, "
            f"which transformers {transformers.__version__} has not."
            f"{suggest(self.architecture, dir(transformers))} A newer one may have it: "
            "pip install -U transformers"
        )

    @property
    def task(self) -> Task:
        """Return what the model is for. Raises ModelError for a class of no known task."""
        if self.architecture == "AutoModel":
            return Task.FEATURES
        return task_of(self.architecture)

    @cached_property
    def tensors(self) -> tuple[StoredTensor, ...]:
        """Return what safetensors files hold. Raises ModelError for missing and damaged ones."""
        return stored_tensors(self.folder)

    @property
    def bytes(self) -> int:
        """Return the bytes of all tensors of the checkpoint."""
        return sum(tensor.bytes for tensor in self.tensors)

    def skeleton(self) -> nn.Module:
        """Build the module on device meta, without weights: eval mode, the checkpoint's dtype."""
        dtype = getattr(self.config, "dtype", None) or torch.float32
        try:
            return skeleton(lambda: self.build(dtype), "meta").eval()
        except ModelError as error:
            raise ModelError(f"{self.name}: {error}") from error

    def build(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Build a new module without the checkpoint's weights."""
        auto = self.model_class.__name__.startswith("AutoModel")
        build = self.model_class.from_config if auto else self.model_class._from_config
        made: nn.Module = build(self.config, dtype=dtype)
        return made

    def refuse_quantized(self, *, readable: bool = False) -> None:
        """Raise AlreadyQuantizedError where the config says that the weights are quantized.

        `readable`: not for methods whose integers Octavo keeps.
        """
        if not self.method or (readable and self.kept_by):
            return
        raise AlreadyQuantizedError(
            f"{self.name} was quantized by {self.method} (its configuration or tensors say so); "
            "give the float checkpoint"
        )

    @property
    def method(self) -> str:
        """Say who quantized the weights, as the config or the tensors tell; "" where nobody did."""
        said = getattr(self.config, "quantization_config", None)
        if said is None:
            older = GptqConfig.of_old(self.folder, {tensor.name for tensor in self.tensors})
            return "" if older is None else older.method
        known = said if isinstance(said, dict) else getattr(said, "__dict__", {})
        method = known.get("quant_method", type(said).__name__)
        return str(getattr(method, "value", method))

    @property
    def kept_by(self) -> str:
        """The method, where its integers are kept; "" for floats, and for other methods."""
        return self.method if self.method in KEPT else ""

    @property
    def loader(self) -> Any:
        """The class's from_pretrained."""
        return self.model_class.from_pretrained

    def write_others(self, place: Path) -> None:
        """Copy what is there beside the weights: configuration, tokenizer, other parts."""

        def left_out(folder: str, names: list[str]) -> set[str]:
            if Path(folder) != self.folder:
                return set(_OTHER_FORMS.intersection(names))
            weights = {n for n in names if n.endswith(_WEIGHTS) or n.endswith(".index.json")}
            return weights.union(_OTHER_FORMS.intersection(names))

        shutil.copytree(self.root, place, ignore=left_out, dirs_exist_ok=True)

    def load(self, dtype: torch.dtype = torch.float32, *, quantized: bool = False) -> Any:
        """Load the module in eval mode with its weights in `dtype`.

        Raises ModelError, and AlreadyQuantizedError for a quantized one unless `quantized` is set.
        """
        if not quantized:
            self.refuse_quantized()
        self.tensors  # noqa: B018 - damage is said in our words
        try:
            with quiet_libraries():
                made = self.loader(self.folder, dtype=dtype)
        except Exception as error:  # whatever transformers raises of a checkpoint
            raise ModelError(f"{self.name}: transformers cannot load it: {typed(error)}") from error
        return made.eval()


def find_checkpoint(
    name_or_path: str | os.PathLike[str], *, cached_only: bool = False
) -> Checkpoint:
    """Find the checkpoint in a folder, or of that name in Hugging Face's cache.

    What a name stands for is found as transformers' from_pretrained finds it: in the cache, and on
    the Hub where that may be asked (HF_HUB_OFFLINE=1 forbids it); `cached_only` asks the cache
    alone. Raises ModelError for what is no checkpoint, cannot be reached, or is of an architecture
    that transformers does not know.
    """
    name = os.fspath(name_or_path)
    need("checkpoints need", *CHECKPOINTS)
    given = Path(name).expanduser()
    if given.is_dir():
        root = given
    elif os.path.lexists(given):
        raise ModelError(f"{name} is a file; give the folder of a checkpoint, which has {CONFIG}")
    elif _NAME.fullmatch(name) is None:
        raise ModelError(f"{name}: there is no such folder; give that of a checkpoint, or its name")
    else:
        root = _cached(name, cached_only)
    folder = root / _part(root)
    with quiet_libraries():
        return Checkpoint(name, root, folder, _config(name, folder))


def _part(root: Path) -> str:
    """Return where a sentence-transformers folder has its transformer, mostly "".

    Raises ModelError where the folder names none.
    """
    if (root / CONFIG).is_file() or not (root / MODULES).is_file():
        return ""
    try:
        modules = json.loads((root / MODULES).read_text("utf-8"))
        return str(next(m["path"] for m in modules if str(m["type"]).endswith("Transformer")))
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
        raise ModelError(
            f"{root / MODULES} names no Transformer; Octavo quantizes models that have one"
        ) from None


def _config(name: str, folder: Path) -> Any:
    from transformers import AutoConfig

    if not (folder / CONFIG).is_file():
        found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        raise ModelError(
            f"{name} is no checkpoint: {folder} holds no {CONFIG} (it holds "
            f"{listed(found, 5) or 'nothing'}). A checkpoint's folder holds {PARTS}; "
            "save_pretrained writes them"
        )
    try:
        found = AutoConfig.from_pretrained(folder)
    except Exception as error:  # whatever transformers raises of a file
        raise ModelError(f"{folder / CONFIG} cannot be used: {brief(error)}") from error
    refuse_depth(found, folder / CONFIG, _MOST_LAYERS)
    return found


def refuse_depth(config: Any, where: Path, most: int) -> None:
    """Raise ModelError for a model of more than `most` layers, which would be built for hours."""
    layers = getattr(config, "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > most:
        raise ModelError(
            f"{where} is damaged: it says that there are {layers:,} layers, and {most:,} can be at "
            "most; get the file again"
        )


def _cached(name: str, cached_only: bool) -> Path:
    """Return a name's snapshot in the cache; gets files that are not there unless `cached_only`."""
    from transformers.utils.hub import cached_file, get_checkpoint_shard_files

    here: dict[str, Any] = {"local_files_only": cached_only}
    if_there = {**here, "_raise_exceptions_for_missing_entries": False}
    try:
        config = cached_file(name, CONFIG, **here)
        if cached_file(name, WEIGHTS, **if_there) is None:
            index = cached_file(name, INDEX, **if_there)
            if index is not None:
                get_checkpoint_shard_files(name, index, **here)
        for other in () if cached_only else _OTHERS:
            cached_file(name, other, _raise_exceptions_for_connection_errors=False, **if_there)
    except OSError as error:
        raise ModelError(_not_found(name, error, cached_only)) from error
    return Path(str(config)).parent


def _not_found(name: str, error: OSError, cached_only: bool) -> str:
    from huggingface_hub import constants

    where = f"neither a folder here nor in Hugging Face's cache ({constants.HF_HUB_CACHE})"
    if cached_only:
        return f"{name} is {where}: download it (hf download {name}), or give its folder"
    if constants.HF_HUB_OFFLINE:
        return (
            f"{name} is {where}, and the Hub is not asked, as HF_HUB_OFFLINE is set: download it "
            f"where there is a network (hf download {name}), or give its folder"
        )
    return f"{name} is {where}, and the Hub has not given it: {brief(error)}"
