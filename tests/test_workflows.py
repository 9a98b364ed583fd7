"""The workflows for hosted machines, which no test here can run: their form, and what they name."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MATRIX = re.compile(r"matrix\.(\w+)")


def form_faults(*workflows: Path) -> str:
    """What GitHub's schema of workflows has against them, or nothing."""
    pytest.importorskip("check_jsonschema", reason="it comes with the extra dev: make setup")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += ["vendor.github-workflows", *map(str, workflows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def jobs(workflow: Path) -> Iterator[tuple[str, dict]]:
    yield from YAML(typ="safe").load(workflow.read_text())["jobs"].items()


def commands(workflow: Path) -> Iterator[str]:
    yield from (step["run"] for _, job in jobs(workflow) for step in job["steps"] if "run" in step)


def test_the_workflows_have_the_form_of_github(tmp_path: Path) -> None:
    assert WORKFLOWS
    assert form_faults(*WORKFLOWS) == ""
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs_on:"))
    assert "runs_on" in form_faults(broken)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_runs_is_there(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {target for line in targets for target in line.split()}
    for command in commands(workflow):
        for target in re.findall(r"^make (\S+)", command, re.MULTILINE):
            assert target in known
        for path in re.findall(r"\btests/[\w/.]+", command):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_machine_of_a_matrix_says_all_that_its_job_asks(workflow: Path) -> None:
    for name, job in jobs(workflow):
        asked = set(MATRIX.findall(str(job)))
        for machine in job.get("strategy", {}).get("matrix", {}).get("include", [{}]):
            assert asked <= set(machine), name
