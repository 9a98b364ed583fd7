"""Families as ONNX files in target native: beside ONNX Runtime's quantizer and OpenVINO.

Each family is written by both exporters with each spelling of attention, and each of these files is
measured; what an exporter or a peer cannot do is a row with its reason.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import latency, variants
from benchmarks.families_aims import Aim, Aims
from benchmarks.latency import Setting
from benchmarks.results import Row, code, say
from benchmarks.rows import note_of
from benchmarks.runner import attempt, reason
from benchmarks.variants import NATIVE, OPENVINO, QD_CHANNEL
from benchmarks.zoo.export import cached, versions
from benchmarks.zoo.family import Family, Size
from benchmarks.zoo.sessions import Array, Feed, Session, open_session
from octavo.measure.timing import Comparison

PEERS = (QD_CHANNEL, OPENVINO)
WHISPER = "Whisper encoder"
CTRANSLATE = "CTranslate2 int8"
_LIST = "files.json"


@dataclass
class Files:
    """Of one family: files by `EXPORT: QUANTIZER`, and reasons for what is missing."""

    files: dict[str, Path] = field(default_factory=dict)
    errors: dict[str, tuple[float, float]] = field(default_factory=dict)
    fused: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    exports: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Into `folder`, with the code that made them."""
        data = {**asdict(self), "files": {n: str(p) for n, p in self.files.items()}}
        (folder / _LIST).write_text(json.dumps([*code(), data], indent=1), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> Files | None:
        """What `write` left there; None if there is nothing of today's code."""
        path = folder / _LIST
        if not path.is_file():
            return None
        *made_by, data = json.loads(path.read_text("utf-8"))
        if made_by != list(code()):
            return None
        data["files"] = {name: Path(file) for name, file in data["files"].items()}
        data["errors"] = {name: tuple(found) for name, found in data["errors"].items()}
        return cls(**data)


def prepare(families: Sequence[Family], two: bool) -> None:
    """The float files and the peers', which stay in the cache; says what cannot be made."""
    for family in families:
        with tempfile.TemporaryDirectory(prefix="octavo-families-") as folder:
            made = files(family, Path(folder), two, ours=False)
        say(f"{family.name}: {len(made.files)} files")
        for name, why in made.refused.items():
            say(f"{family.name}, {name}: {why}")


def made_rows(section: str, family: Family, folder: Path, two: bool, aims: Aims) -> Iterator[Row]:
    """What could be made, its errors, and attentions as one node; the files stay in `folder`."""
    say(section)
    yield from _made_rows(section, family, _made_now(family, folder, two), aims)


def speed_rows(
    section: str, family: Family, folder: Path, two: bool, setting: Setting, aims: Aims
) -> Iterator[Row]:
    """Of the files in `folder`, which are made anew unless today's code made them."""
    made = Files.read(folder) or _made_now(family, folder, two)
    say(section)
    yield from _speed_rows(family, made, setting, aims, section)


def _made_now(family: Family, folder: Path, two: bool) -> Files:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _LIST).unlink(missing_ok=True)
    for old in folder.glob("*.onnx*"):
        old.unlink()
    made = files(family, folder, two)
    made.write(folder)
    return made


def _feed(family: Family) -> Feed:
    from benchmarks.zoo import family_exports, family_models

    return family_exports.numpy_feed(family_models.feed(family, Size.PUBLISHED))


def files(family: Family, folder: Path, two: bool, ours: bool = True) -> Files:
    """What the peers make of its exports, and we with `ours`, in `folder` where it is no cache.

    With `two`, of its exports only the first and the last, which differ most.
    """
    from benchmarks.zoo import family_exports

    made, feed = Files(), _feed(family)
    exports = list(family_exports.exports(family))
    for export in dict.fromkeys((exports[0], exports[-1])) if two else exports:
        try:
            path = family_exports.onnx_path(family, Size.PUBLISHED, export)
        except Exception as error:  # noqa: BLE001  # an exporter that cannot is a row
            made.refused[str(export)] = reason(error)
            continue
        made.exports.append(str(export))
        exact = open_session(path).run(None, feed)[0]
        names = (*PEERS, NATIVE) if ours else PEERS
        quantized, refused = attempt(names, partial(_quantized, path, folder))
        for name, file in quantized.items():
            _try(made, f"{export}: {name}", file, feed, exact)
        made.refused |= {f"{export}: {name}": why for name, why in refused.items()}
    return made


def _try(made: Files, label: str, file: Path, feed: Feed, exact: Array) -> None:
    """Takes the file in if it runs."""
    try:
        found = _opened(file).run(None, feed)[0]
    except Exception as error:  # noqa: BLE001  # a peer that cannot run it is a row
        made.refused[label] = reason(error)
        return
    made.files[label] = file
    made.errors[label] = output_error(found, exact)
    if label.endswith(NATIVE):
        made.fused[label] = _attentions(file)


def _opened(file: Path) -> Session:
    if file.suffix == ".xml":
        from benchmarks.peers_openvino import OpenVinoSession

        return OpenVinoSession(file)
    return open_session(file)


def _quantized(path: Path, folder: Path, name: str) -> Path:
    """The peers' files stay in the cache: they are what they were."""
    if name == NATIVE:
        return variants.quantized(name, path, folder)[0]
    if name == QD_CHANNEL:
        title = f"{path.stem}-channel-{versions('onnxruntime')}.onnx"
        return cached(title, lambda out: variants.onnxruntime_quantize(path, out, per_channel=True))
    from benchmarks.peers_openvino import write_compressed

    where = path.parent / f"families-{versions('openvino', 'nncf')}"
    where.mkdir(exist_ok=True)
    kept = where / f"{path.stem}.openvino.xml"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(dir=where) as work:
            written = write_compressed(path, Path(work))
            for suffix in (".bin", ".xml"):
                written.with_suffix(suffix).replace(kept.with_suffix(suffix))
    return kept


def output_error(found: Array, exact: Array) -> tuple[float, float]:
    """1 - cosine, and the worst element's difference as a share of the root mean square."""
    a, b = found.astype(np.float64).ravel(), exact.astype(np.float64).ravel()
    angle = 1 - float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return angle, float(np.abs(a - b).max() / np.sqrt(np.square(b).mean()))


def _attentions(file: Path) -> int:
    import onnx

    nodes = onnx.load(file, load_external_data=False).graph.node
    return sum(node.op_type == "Attention" and node.domain == "ai.octavo" for node in nodes)


def _made_rows(section: str, family: Family, made: Files, aims: Aims) -> Iterator[Row]:
    for label, why in made.refused.items():
        yield Row(label, math.nan, section=section, note=why)
    wanted = family.count(Size.PUBLISHED)
    for label, count in made.fused.items():
        aims.add(Aim.FUSED, f"{family.name}, {label.partition(':')[0]}", count / wanted)
        what = f"{label}: attentions as one node"
        yield Row(what, count, f"of {wanted}", at_least=wanted, section=section)
    for label, (angle, worst) in made.errors.items():
        note = f"worst element {worst:.3f} of the root mean square"
        yield Row(f"{label}: 1 - cosine with float", angle, section=section, note=note)


def _speed_rows(
    family: Family, made: Files, setting: Setting, aims: Aims, section: str
) -> Iterator[Row]:
    given = dict(made.files)
    if family.name == WHISPER:
        from benchmarks.families_ctranslate import encoder_folder

        found, refused = attempt((CTRANSLATE,), lambda name: encoder_folder(family))
        given |= found
        made.refused |= refused
    compared = latency.compare(given, {"call": _feed(family)}, setting)["call"]
    yield from compared_rows(family, made, compared, setting, aims, section)


def compared_rows(
    family: Family,
    made: Files,
    compared: Comparison,
    setting: Setting,
    aims: Aims,
    section: str,
) -> Iterator[Row]:
    """Each export over its peers, the exports over each other, and Whisper over all."""
    where = f"{family.name}, {setting.words}"
    for export in made.exports:
        yield from _export_rows(export, compared, made.refused, aims, where, section)
    yield from _spread_rows(made.exports, compared, aims, where, section)
    if CTRANSLATE in compared.timings:
        yield from _best_rows(compared, made.exports, aims, where, section)


def _export_rows(
    export: str,
    compared: Comparison,
    refused: Mapping[str, str],
    aims: Aims,
    where: str,
    section: str,
) -> Iterator[Row]:
    """Over each peer, and over the best of them."""
    ours = f"{export}: {NATIVE}"
    if ours not in compared.timings:
        yield Row(f"{export}: {NATIVE}", math.nan, section=section, note=refused.get(ours, ""))
        return
    speeds = {}
    for peer in PEERS:
        label = f"{export}: {peer}"
        if label in compared.timings:
            speeds[peer] = compared.speed(ours, label).median
            note = note_of(compared, ours, label)
            yield Row(f"{export}: over {peer}", speeds[peer], "x", section=section, note=note)
    if speeds:
        least = min(speeds.values())
        aims.add(Aim.ONNX_OVER_PEERS, f"{where}, {export}", least)
        asked = Aim.ONNX_OVER_PEERS.least
        yield Row(f"{export}: over the best", least, "x", at_least=asked, section=section)


def _spread_rows(
    exports: Sequence[str], compared: Comparison, aims: Aims, where: str, section: str
) -> Iterator[Row]:
    """How much slower the slowest export is than the fastest."""
    labels = [f"{export}: {NATIVE}" for export in exports]
    known = sorted(
        (label for label in labels if label in compared.timings), key=lambda n: compared[n].median
    )
    if len(known) > 1:
        share = compared.time(known[0], known[-1]).median
        aims.add(Aim.EXPORTERS, where, share)
        note = f"{known[0].partition(':')[0]} to {known[-1].partition(':')[0]}"
        what = "fastest export's time as a share of the slowest's"
        yield Row(what, share, at_least=Aim.EXPORTERS.least, section=section, note=note)


def _best_rows(
    compared: Comparison, exports: Sequence[str], aims: Aims, where: str, section: str
) -> Iterator[Row]:
    """Of all files: what a user would take."""
    ours = [label for label in compared.timings if label.endswith(NATIVE)]
    theirs = [label for label in compared.timings if label not in ours]
    best, peer = (min(names, key=lambda n: compared[n].median) for names in (ours, theirs))
    speed = compared.speed(best, peer).median
    aims.add(Aim.WHISPER, where, speed)
    note = f"{best} over {peer}; {note_of(compared, best, peer)}"
    what = "the best file over the best of all peers"
    yield Row(what, speed, "x", at_least=Aim.WHISPER.least, section=section, note=note)
