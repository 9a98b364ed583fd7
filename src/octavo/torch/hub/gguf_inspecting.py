"""What becomes of the layers of a GGUF file, by its header alone: no weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path

from octavo.checkpoints.gguf_file import GgufTensor
from octavo.checkpoints.gguf_weights import is_float, will_hold
from octavo.core.kernels import packed_bytes
from octavo.core.layer import Kind
from octavo.recipe import Decision, Recipe
from octavo.recipe.held_bytes import Storage, held_bytes
from octavo.recipe.yaml_files import recipe_of
from octavo.results.inspection import Inspection
from octavo.torch.hub.gguf_checkpoint import GgufCheckpoint
from octavo.torch.hub.gguf_layers import left_by_user
from octavo.torch.hub.gguf_names import GgufNames, Place
from octavo.torch.hub.group_layers import holds_groups, scheme_of
from octavo.torch.replace.inventory import ModuleLayer
from octavo.torch.replace.plan import Planner, recipe_decisions

_FLOAT = 4  # bytes of what stays float, as the kernels read it
Held = dict[str, tuple[GgufTensor, Place]]
"""By a module's name, the tensor of its weight and where it goes."""


def inspect_gguf(found: GgufCheckpoint, recipe: str | Path | Recipe = "int8") -> Inspection:
    """List the layers, and what `load_gguf` would do with each; reasons name the tensors' types.

    Raises ModelError as `find_gguf` does, and for what transformers cannot place.
    """
    chosen = recipe_of(recipe)
    model = found.skeleton()
    planner, names = Planner(model), GgufNames(model, found.file)
    placed = [(tensor, names.place(tensor)) for tensor in found.file.tensors]
    held = {p.name.rpartition(".")[0]: (t, p) for t, p in placed if p and p.name.endswith("weight")}
    tied = dict(model.all_tied_weights_keys)
    source = {target.rpartition(".")[0]: s.rpartition(".")[0] for target, s in tied.items()}
    said = recipe_decisions(planner.parts, chosen, planner.modules)
    left = {p.module for p, d in zip(planner.parts, said, strict=True) if left_by_user(d)}
    left |= {source[name] for name in left if name in source}
    decisions = []
    for part, decision in zip(planner.parts, planner.decisions(chosen), strict=True):
        origin = source.get(part.module, part.module)
        kept = origin in held and origin not in left and holds_groups(planner.modules[part.module])
        decisions.append(_in_groups(part, *held[origin]) or decision if kept else decision)
    own = [held[p.module][0].bytes if p.module in held else 0 for p in planner.parts]
    return Inspection(
        found.name,
        found.bytes,
        chosen.name,
        tuple(decisions),
        weight_bytes=tuple(own),
        bytes_after=_after(planner.parts, decisions, held, found.file.tensors),
        quantized=_types(found),
        keeps=True,
    )


def _in_groups(part: ModuleLayer, tensor: GgufTensor, place: Place) -> Decision | None:
    """Decide on a layer whose weights are integers in the file; return None for floats."""
    if is_float(tensor):
        return None
    groups, kept = will_hold(tensor)
    kept = kept and place.rows(tensor.shape[0]) is not None
    group = None if part.layer.kind is Kind.EMBEDDING else groups.group
    why = "with the file's integers" if kept else "rounded anew, as no groups hold its integers"
    return Decision(part.layer, scheme_of(groups, group=group), f"{tensor.kind.name} {why}")


def _after(
    parts: Sequence[ModuleLayer],
    decisions: Sequence[Decision],
    held: Held,
    tensors: Sequence[GgufTensor],
) -> int:
    """About what all tensors take afterwards, a shared one once."""
    total = sum(_FLOAT * prod(tensor.shape) for tensor in tensors)
    for part, decision in zip(parts, decisions, strict=True):
        weight = decision.scheme.weight
        if part.module not in held or weight is None:
            continue
        tensor, _ = held[part.module]
        total -= _FLOAT * prod(tensor.shape)
        if is_float(tensor):
            total += held_bytes(part.layer, weight, Storage.PACKED)
        else:
            n, k = tensor.shape
            total += packed_bytes(n, k, will_hold(tensor)[0]) + _FLOAT * n
    return total


def _types(found: GgufCheckpoint) -> str:
    counts = Counter(t.kind.name for t in found.file.tensors if not is_float(t))
    listed = ", ".join(f"{n} tensors of {kind}" for kind, n in counts.most_common())
    return f"a GGUF file of {found.file.architecture} with {listed or 'floats alone'}"
