"""One token after a cache of keys and values, in PyTorch: octavo beside other modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import families_torch
from benchmarks.families_aims import Aim, Aims
from benchmarks.families_torch import BFLOAT16
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.rows import note_of
from benchmarks.runner import Job
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Size
from octavo.measure.timing import Comparison

PEERS = (FLOAT, BFLOAT16, AO_CHANNEL, OCTAVO)
CACHED = 128  # tokens
ASKED = {BFLOAT16: Aim.TOKEN_OVER_BF16, AO_CHANNEL: Aim.TOKEN_OVER_AO}
"""Of the Llama-shaped model."""


def rows(section: str, family: Family, setting: Setting, aims: Aims) -> Iterator[Row]:
    """Figures are asked of Llama, and the others inform."""
    say(section)
    found, errors = families_torch.ask("families_decoding:token", family, setting, PEERS)
    yield from _speed_rows(family, found, errors, setting, aims, section)
    if setting.threads == 1:
        yield from families_torch.error_rows(errors, section)


def _speed_rows(
    family: Family,
    found: Comparison,
    errors: dict[str, Any],
    setting: Setting,
    aims: Aims,
    section: str,
) -> Iterator[Row]:
    for peer in PEERS[:-1]:
        if isinstance(errors.get(peer), str):
            yield families_torch.failure_row(peer, errors, section)
            continue
        speed, aim = found.speed(OCTAVO, peer).median, ASKED.get(peer)
        least = aim.least if aim is not None and family.name == "Llama" else None
        if least is not None and aim is not None:
            aims.add(aim, f"{family.name}, {setting.words}", speed)
        what, note = f"{OCTAVO}: speed over {peer}", note_of(found, OCTAVO, peer)
        yield Row(what, speed, "x", at_least=least, section=section, note=note)


def token(job: Job) -> dict[str, Any]:
    """What a child measures."""
    import torch

    from benchmarks.zoo import family_models

    family = FAMILIES[job.options["family"]]
    given = family_models.feed(family, Size.PUBLISHED, 1, CACHED + 1)

    def call(made: Any, name: str) -> Callable[[], Any]:
        dtype = torch.bfloat16 if name == BFLOAT16 else torch.float32
        own = {n: t.to(dtype) if t.is_floating_point() else t for n, t in given.items()}
        return family_models.Steps(family, made, own)

    return families_torch.compare(job, family, call)
