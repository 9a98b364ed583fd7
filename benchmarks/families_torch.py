"""Families in PyTorch: octavo's modules beside the float ones and torch.ao's.

`rows` asks children; `whole` and `threads` are what these measure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import results, runner, torch_variants
from benchmarks.families_aims import Aim, Aims
from benchmarks.latency import Setting
from benchmarks.results import Row, say
from benchmarks.rows import note_of
from benchmarks.runner import Job
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO
from benchmarks.zoo.families import FAMILIES
from benchmarks.zoo.family import Family, Inputs, Size
from octavo.measure.timing import Comparison, idle, interleave, pooled

BFLOAT16 = "torch bfloat16"
PEERS = (FLOAT, AO_CHANNEL, OCTAVO)
LEAST_ERROR = 1e-9  # of anything that is in int8
SHAPES = ((1, 1), (1, 16), (8, 128))
"""Batches and lengths at which more threads must not be slower."""


def rows(section: str, family: Family, setting: Setting, aims: Aims) -> Iterator[Row]:
    """One call of the whole model, and its error."""
    say(section)
    found, errors = ask("families_torch:whole", family, setting, PEERS)
    for peer, aim in ((AO_CHANNEL, Aim.TORCH_OVER_AO), (FLOAT, Aim.TORCH_OVER_FLOAT)):
        if isinstance(errors.get(peer), str):
            yield failure_row(peer, errors, section)
            continue
        speed, note = found.speed(OCTAVO, peer).median, note_of(found, OCTAVO, peer)
        if peer in errors and errors[peer][0] < LEAST_ERROR:
            note += "; it leaves every layer in float"
        aims.add(aim, f"{family.name}, {setting.words}", speed)
        what = f"{OCTAVO}: speed over {peer}"
        yield Row(what, speed, "x", at_least=aim.least, section=section, note=note)
    if setting.threads == 1:
        yield from error_rows(errors, section)


def ask(
    part: str, family: Family, setting: Setting, peers: tuple[str, ...]
) -> tuple[Comparison, dict[str, Any]]:
    """What children find: a comparison, and by peer its errors, or why it fails."""
    job = Job(
        part,
        threads=setting.threads,
        rounds=setting.rounds,
        peers=peers,
        options={"family": family.name},
    )
    parts = []
    for i in range(setting.processes):
        turned = (*peers[i % len(peers) :], *peers[: i % len(peers)])
        parts.append(runner.value(replace(job, peers=turned)))
    compared = [Comparison.from_dict(found["times"]) for found in parts]
    return pooled(compared), parts[0]["errors"]


def failure_row(peer: str, errors: dict[str, Any], section: str) -> Row:
    """Of a peer that cannot run the model."""
    what = f"{OCTAVO}: speed over {peer}"
    return Row(what, math.nan, "x", section=section, note=f"{peer} fails: {errors[peer]}")


def error_rows(errors: dict[str, Any], section: str) -> Iterator[Row]:
    """1 - cosine with float's output, and the worst element as a share of their mean square."""
    for name, found in errors.items():
        if isinstance(found, str):
            continue
        angle, worst = found
        note = f"worst element {worst:.3f} of the root mean square"
        yield Row(f"{name}: 1 - cosine with float", angle, section=section, note=note)


def few_and_many(setting: Setting, family: Family) -> tuple[int, int] | None:
    """Counts of threads to compare; None on one core, of a quick run, and of what is no text."""
    cores = results.machine().cores
    if cores == 1 or setting.rounds < 5 or family.inputs is not Inputs.TEXT:
        return None
    return (4, 16) if cores >= 16 else (1, 2)


def thread_rows(
    section: str, family: Family, setting: Setting, threads: tuple[int, int], aims: Aims
) -> Iterator[Row]:
    """Short and long calls with many threads over few."""
    say(section)
    few, many = threads
    job = Job(
        "families_torch:threads",
        cells=SHAPES,
        threads=many,
        rounds=setting.rounds,
        options={"family": family.name, "few": few},
    )
    for label, found in runner.run(job).found.items():
        speed = found.speed(str(many), str(few)).median
        aims.add(Aim.MORE_THREADS, f"{family.name}, {label}", speed)
        note = note_of(found, str(many), str(few))
        yield Row(label, speed, "x", at_least=1.0, section=section, note=note)


# --- what children measure ------------------------------------------------------------------------


def module(name: str, family: Family, exact: Any) -> Any:
    """What the peer `name` makes of the float module."""
    import copy

    import torch

    if name == OCTAVO:
        return torch_variants.front_end().quantize_dynamic(exact, recipe="int8")
    if name == BFLOAT16:
        return copy.deepcopy(exact).to(torch.bfloat16)
    return torch_variants.quantized(name, exact)


def whole(job: Job) -> dict[str, Any]:
    """Calls of the whole model, all tokens at once."""
    from benchmarks.zoo import family_models

    family = FAMILIES[job.options["family"]]
    given = family_models.feed(family, Size.PUBLISHED)

    def call(made: Any, name: str) -> Callable[[], Any]:
        return lambda: family_models.output(made(**given))

    return compare(job, family, call)


def compare(
    job: Job, family: Family, call: Callable[[Any, str], Callable[[], Any]]
) -> dict[str, Any]:
    """Times and errors of what `call` makes of each peer's module."""
    import torch

    from benchmarks.zoo import family_models

    with torch.inference_mode(False), torch.no_grad():
        exact = family_models.model(family, Size.PUBLISHED, family.spellings[-1])

        def ready(name: str) -> tuple[Callable[[], Any], Any]:
            run = call(module(name, family, exact), name)
            return run, run()

        made, errors = runner.attempt(job.peers, ready)
    for name in (FLOAT, OCTAVO):
        if name in errors:
            raise RuntimeError(f"{name}: {errors[name]}")
    calls = {name: run for name, (run, _) in made.items()}
    exact_output = made[FLOAT][1]
    found: dict[str, Any] = dict(errors)
    found |= {n: output_error(y, exact_output) for n, (_, y) in made.items() if n != FLOAT}
    settle = None if job.threads == 1 else lambda name: idle()
    times = interleave(calls, rounds=job.rounds, settle=settle, budget=20.0)
    times.check_threads(job.threads)
    return {"times": times.to_dict(), "errors": found}


def output_error(found: Any, exact: Any) -> list[float]:
    """1 - cosine, and the worst element's difference as a share of the root mean square."""
    found, exact = found.double().flatten(), exact.double().flatten()
    angle = 1 - float(found @ exact / (found.norm() * exact.norm()))
    worst = float((found - exact).abs().max() / exact.square().mean().sqrt())
    return [angle, worst]


def threads(job: Job) -> dict[str, Comparison]:
    """The same module with few threads and with many."""
    import torch

    from benchmarks import ours
    from benchmarks.zoo import family_models

    family = FAMILIES[job.options["family"]]
    with torch.inference_mode(False), torch.no_grad():
        exact = family_models.model(family, Size.PUBLISHED, family.spellings[-1])
        made = module(OCTAVO, family, exact)
    counts = {str(count): count for count in (job.options["few"], job.threads)}

    def settle(name: str) -> None:
        idle()
        ours.set_num_threads(counts[name])

    found = {}
    for batch, length in job.cells:
        given = family_models.feed(family, Size.PUBLISHED, batch, length)
        calls = dict.fromkeys(counts, partial(made, **given))
        found[f"{batch}x{length}"] = interleave(
            calls, rounds=job.rounds, settle=settle, budget=10.0
        )
    return found
