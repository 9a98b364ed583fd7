"""What rounding to 4 bits costs a model's outputs, by how scales and integers are found.

Nothing is timed: all-MiniLM-L6's hidden states, and the next token that SmolLM2-135M predicts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import runner
from benchmarks.decoders_accuracy import THREADS
from benchmarks.families_aims import Aims
from benchmarks.results import Row, say
from benchmarks.runner import Job
from benchmarks.zoo import minilm, smollm
from octavo.recipe import Recipe
from octavo.recipe.bit_budget import Mix
from octavo.recipe.recipe import preset

TEXTS = 128
TEXT, WINDOW = 1024, 512  # tokens
ERROR, DIVERGENCE = "1 - cosine of hidden states", "divergence of the next token"
INT4, MIXED, MIXED_MORE = "int4", "int4-mixed, as many bytes", "int4-mixed, about 5 bits"
RANGE = "by the range"
MOST_ERROR, MOST_DIVERGENCE = 0.6, 0.7


@dataclass(frozen=True)
class Rounding:
    """One way to round: `recipe` with samples of `texts` texts, and with error feedback."""

    recipe: Recipe
    texts: int = 0
    feedback: bool = False

    def quantized(self, exact: Any) -> Any:
        """A copy of the float module, quantized."""
        from octavo.torch import quantize_dynamic

        texts = minilm.questions().texts[: self.texts]
        feeds = [minilm.tokenize([text]) for text in texts]
        return quantize_dynamic(
            copy.deepcopy(exact),
            recipe=self.recipe,
            inputs=feeds or None,
            error_feedback=self.feedback,
            inplace=True,
        )


def _weights(recipe: Recipe, **changes: Any) -> Recipe:
    assert recipe.default.weight is not None
    weight = replace(recipe.default.weight, **changes)
    return replace(recipe, default=replace(recipe.default, weight=weight))


def roundings() -> dict[str, Rounding]:
    """What is compared, in groups of 32; the preset is `INT4`."""
    int4 = preset("int4")
    by_range = _weights(int4, observer="minmax")
    return {
        RANGE: Rounding(by_range),
        INT4: Rounding(int4),
        f"{INT4}, mean squares of {TEXTS} texts": Rounding(int4, TEXTS),
        f"{INT4}, error feedback, made-up inputs": Rounding(int4, feedback=True),
        f"{INT4}, error feedback, {TEXTS} texts": Rounding(int4, TEXTS, feedback=True),
        f"{RANGE}, with zero points": Rounding(_weights(by_range, symmetric=False)),
        f"{INT4}, with zero points": Rounding(_weights(int4, symmetric=False)),
    }


def hidden_rows(section: str, quick: bool, aims: Aims) -> Iterator[Row]:
    """Of all-MiniLM-L6: errors, and each as a share of that by the range."""
    say(section)
    names = [RANGE, INT4] if quick else list(roundings())
    job = Job("decoders_rounding:hidden_errors", threads=THREADS, peers=tuple(names))
    found: dict[str, float] = runner.value(job)
    for name, error in found.items():
        yield Row(f"{name}: {ERROR}", error, section=section)
    for name, error in found.items():
        if name != RANGE:
            most = MOST_ERROR if name == INT4 else None
            what = f"{name}: that error over that {RANGE}"
            yield Row(what, error / found[RANGE], "x", at_most=most, section=section)


def hidden_errors(job: Job) -> dict[str, float]:
    """What a child finds: the job's peers, and a mix of as many bytes as the preset."""
    import torch

    from octavo.torch import report

    known, found = roundings(), {}
    exact = minilm.torch_model()
    with torch.inference_mode(False):
        for name in job.peers:
            made = known[name].quantized(exact)
            found[name] = minilm.hidden_state_error(exact, made)
            if name == INT4:
                found[MIXED] = minilm.hidden_state_error(
                    exact, _mixed(report(made).model_bytes_after).quantized(exact)
                )
    return found


def _mixed(size: int | None) -> Rounding:
    """The preset, for `size` bytes or as it is."""
    return Rounding(replace(preset("int4-mixed"), mix=Mix(size=size)))


def divergence_rows(section: str, quick: bool, aims: Aims) -> Iterator[Row]:
    """Of SmolLM2-135M, in nats: what is predicted by the float model less what ours predict."""
    say(section)
    options = {"tokens": WINDOW if quick else TEXT}
    found: dict[str, float] = runner.value(
        Job("decoders_rounding:divergences", threads=THREADS, options=options)
    )
    for name, value in found.items():
        yield Row(f"{name}: {DIVERGENCE}", value, section=section)
    for name, other, most in ((MIXED, INT4, MOST_DIVERGENCE), (INT4, RANGE, None)):
        what = f"{name}: that divergence over that of {other}"
        yield Row(what, found[name] / found[other], "x", at_most=most, section=section)


def divergences(job: Job) -> dict[str, float]:
    """What a child finds; the float model has the weights of the file, a Q4_1 one."""
    import torch

    from octavo.torch import report

    exact = smollm.model(dtype=torch.float32)
    windows = torch.tensor(smollm.tokens(job.options["tokens"])).split(WINDOW)
    wanted = [_predicted(exact, window) for window in windows]
    found = {}

    def measure(name: str, way: Rounding) -> int:
        with torch.inference_mode(False):
            made = way.quantized(exact)
        lost = [_divergence(p, _predicted(made, w)) for p, w in zip(wanted, windows, strict=True)]
        found[name] = float(torch.cat(lost).mean())
        return report(made).model_bytes_after

    known = roundings()
    measure(RANGE, known[RANGE])
    size = measure(INT4, known[INT4])
    measure(MIXED, _mixed(size))
    measure(MIXED_MORE, _mixed(None))
    return found


def _predicted(model: Any, window: Any) -> Any:
    """Logarithms of probabilities, [tokens, vocabulary]."""
    import torch

    return torch.log_softmax(model(window[None], use_cache=False).logits[0].float(), -1)


def _divergence(wanted: Any, found: Any) -> Any:
    """Of each token, [tokens]."""
    return (wanted.exp() * (wanted - found)).sum(-1)
