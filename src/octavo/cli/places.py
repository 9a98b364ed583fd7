"""Files that a command writes: its output, and recipes, pages and plots beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from octavo.core.packages import all_of, need
from octavo.errors import OptionError, OutputError

if TYPE_CHECKING:
    from octavo.report.plots.style import Plot

PLOT_SUFFIXES = (".svg", ".png")


def plot_option(what: str) -> Any:
    """Return the option `--plot`, which draws `what`."""
    return typer.Option(
        "--plot",
        metavar="PICTURE",
        help=f"Draw {what} into this .svg or .png file. Default: none is drawn.",
        show_default=False,
    )


def free_output(out: Path, *, force: bool, read: Sequence[Path] = ()) -> Path:
    """Return `out`; raise OutputError where a file `out` exists and `force` is not given.

    What is wrong with a folder, or with one of the files that are `read`, is said elsewhere.
    """
    if not force and _is_file(out) and not any(_is_same(out, other) for other in read):
        raise OutputError(f"{out} exists; name another with -o, or give --force to replace it")
    return out


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _is_same(one: Path, other: Path) -> bool:
    return _is_file(other) and one.samefile(other)


def check_places(
    taken: Sequence[Path],
    *,
    recipe: Path | None = None,
    page: Path | None = None,
    plot: Path | None = None,
    page_option: str = "--report",
) -> None:
    """Refuse, before the work begins, files that cannot or must not be written.

    `taken` are the command's other files. `page_option` is the option that named the `page`.
    """
    from octavo.files.staging import Staging

    others = list(taken)
    for named, path, suffixes in (
        ("--recipe-out", recipe, (".yaml", ".yml")),
        (page_option, page, (".html", ".htm")),
        ("--plot", plot, PLOT_SUFFIXES),
    ):
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            raise OptionError(f"{named} {path}: end the name with {' or '.join(suffixes)}")
        if any(path.absolute() == other.absolute() for other in others):
            raise OptionError(f"{named}: {path} is named twice: give each file a name of its own")
        Staging(path, [other for other in others if other.is_file()])
        others.append(path)
    asked = [(page_option, "jinja2")] * (page is not None)
    asked += [("--plot", "matplotlib")] * (plot is not None)
    if asked:
        verb = "needs" if len(asked) == 1 else "need"
        what = all_of([option for option, _ in asked])
        need(f"{what} {verb}", *(module for _, module in asked), error=OptionError)


def say_written(path: Path) -> None:
    """Say on stderr that `path` is written: stdout is the result's."""
    print(f"{path} is written", file=sys.stderr)  # noqa: T201


def write_plot(path: Path | None, draw: Callable[[], Plot | None]) -> None:
    """Draw into `path`, if there is one, and say so on stderr: stdout is the result's."""
    from octavo.files.staging import write_bytes

    if path is None:
        return
    plot = draw()
    if plot is None:
        print(f"{path} is not written: nothing was measured that it could show", file=sys.stderr)  # noqa: T201
        return
    write_bytes(path, plot.png() if path.suffix.lower() == ".png" else plot.svg().encode())
    say_written(path)
