"""How long a newcomer takes from a fresh clone to a verified int8 all-MiniLM-L6 with its report.

The commands are those of README.md, section "Try it": all of them, in order, and no other. They run
in a clone in a temporary folder, in one bare shell: a home folder of its own, nothing in pip's
cache, and of programs python3 and what the system has. At the end the page is looked at.
`python -m benchmarks.newcomer [--quick]`; with `--quick` pip may use its cache.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import runner
from benchmarks.results import REPOSITORY, Row

SECTION = "Try it"
FLOAT, INT8, PAGE = "model.onnx", "model.native.onnx", "report.html"
AT_MOST = 300.0
# How this machine reaches the package registry.
_NETWORK = re.compile(r"pip_.*|ssl_cert_.*|requests_ca_bundle|curl_ca_bundle|.*_proxy", re.I)


def commands(readme: str, section: str = SECTION) -> list[str]:
    """The commands of a section of `readme`: what follows `$ ` in its console blocks.

    Raises ValueError where there are none, or where the section has code of another kind, which
    a reader might take for a step.
    """
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", found[1], re.M | re.S) if found else []
    kinds = {kind for kind, _ in blocks}
    if kinds != {"console"}:
        raise ValueError(f"section {section!r} has code blocks {sorted(kinds)}, not console alone")
    lines = "\n".join(text.replace("\\\n", "") for _, text in blocks).splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")]


def timed(steps: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[float]:
    """Seconds of each of `steps` in one shell, as if typed; what they print goes to stderr.

    Raises RuntimeError for a step that fails.
    """
    # In braces, which are no shell of their own: a step may change folder or environment.
    script = "".join(f"{{ {step}\n}} </dev/null >&2 || exit\ndate +%s.%N\n" for step in steps)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", f"date +%s.%N\n{script}"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    clock = list(map(float, done.stdout.split()))
    if len(clock) <= len(steps):
        raise RuntimeError(f"`{steps[len(clock) - 1]}` failed ({done.returncode})")
    return [end - start for start, end in pairwise(clock)]


def bare(home: Path, caches: bool) -> dict[str, str]:
    """An environment with python3 and the system's programs, `home`, and the way to the network."""
    programs = home / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(Path(sys.base_prefix, "bin", "python3").resolve())
    network = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    cache = {"PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip")}
    fresh = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}
    return {**network, **fresh, **(cache if caches else {"PIP_NO_CACHE_DIR": "1"})}


def verification(page: str) -> dict[str, Any]:
    """Of the report in the data of a page. Raises RuntimeError unless it passed."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(data[1])["report"]["verification"] if data else {}
    if found.get("status") != "passed":
        raise RuntimeError(f"{PAGE} says of the verification: {found}")
    return found


def rows(folder: Path, caches: bool) -> Iterator[Row]:
    """The whole, what came of it, then the steps."""
    clone = folder / "octavo"
    typed = commands((REPOSITORY / "README.md").read_text("utf-8"))
    steps = [f"git clone --quiet {REPOSITORY} {clone} && cd {clone}", *typed]
    seconds = timed(steps, folder, bare(folder / "home", caches))
    page = (clone / PAGE).read_text("utf-8")
    found = verification(page)
    what = "from a fresh clone to a verified int8 all-MiniLM-L6 with its report"
    sentence = re.search(r'<p class="verdict">([^<]+)</p>', page)
    yield Row(what, sum(seconds), "s", at_most=AT_MOST, note=sentence[1] if sentence else "")
    yield Row("error, as the report has it", found["error"], at_most=found["max_error"])
    for name in (FLOAT, INT8, PAGE):
        yield Row(name, (clone / name).stat().st_size / 1e6, "MB")
    for step, took in zip(["clone", *(f"`{step}`" for step in typed)], seconds, strict=True):
        yield Row(step, took, "s", section="Steps")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("newcomer", __doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="octavo-newcomer-") as name:
        sections = {"newcomer": partial(rows, Path(name), options.quick)}
        runner.publish("newcomer", "A newcomer's first minutes", sections, options, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
