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
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
OLDEST = {
    "actions/cache": 5,
    "actions/checkout": 5,
    "actions/deploy-pages": 5,
    "actions/download-artifact": 7,
    "actions/setup-python": 6,
    "actions/upload-artifact": 6,
    "actions/upload-pages-artifact": 5,
    "pypa/cibuildwheel": 4,
}
"""The first release of each that runs: GitHub removed Node 20 in September 2026."""
GONE = {"macos-13", "macos-14", "ubuntu-20.04", "windows-2019"}
"""Machines that GitHub no longer has."""
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MATRIX = re.compile(r"matrix\.(\w+)")


def form_faults(*files: Path, schema: str = "github-workflows") -> str:
    """What a schema has against the files, or nothing."""
    pytest.importorskip("check_jsonschema", reason="it comes with the extra dev: make setup")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    command += [f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def jobs(workflow: Path) -> Iterator[tuple[str, dict]]:
    yield from YAML(typ="safe").load(workflow.read_text())["jobs"].items()


def steps(job: dict) -> list[dict]:
    """None where it calls another workflow."""
    return job.get("steps", [])


def commands(workflow: Path) -> Iterator[str]:
    yield from (step["run"] for _, job in jobs(workflow) for step in steps(job) if "run" in step)


@pytest.mark.slow
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


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_machines_and_actions_are_there_still(workflow: Path) -> None:
    for name, job in jobs(workflow):
        matrix = job.get("strategy", {}).get("matrix", {}).get("include", [])
        runners = [job.get("runs-on"), *(machine["runner"] for machine in matrix)]
        assert GONE.isdisjoint(runners), name
    used = re.findall(r"uses: (?!\./)(.+)", workflow.read_text())
    assert used
    for each in used:  # a tag may be moved by whoever owns the action, or took it over
        pinned = re.fullmatch(r"([\w./-]+)@[0-9a-f]{40} # v(\d+)\.\d+\.\d+", each)
        assert pinned is not None, each
        assert int(pinned[2]) >= OLDEST[pinned[1]], each


def test_only_a_tag_publishes_and_without_a_secret() -> None:
    wheels = dict(jobs(ROOT / ".github/workflows/wheels.yml"))
    publish = wheels["publish"]
    assert publish["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    assert publish["permissions"] == {"id-token": "write"}
    assert set(publish["needs"]) == set(wheels) - {"publish"}
    assert "tests.release.tag" in str(wheels["sdist"])
    for workflow in WORKFLOWS:
        assert "secrets." not in workflow.read_text()


def test_nothing_is_published_without_the_tests() -> None:
    """A job that is skipped or fails leaves out those that need it."""
    wheels = dict(jobs(ROOT / ".github/workflows/wheels.yml"))
    called = ROOT / wheels["tests"]["uses"]
    assert wheels["tests"]["if"] == "github.ref_type == 'tag'"
    assert "make test" in commands(called)
    told = YAML(typ="safe").load(called.read_text())
    assert "workflow_call" in told["on"]
    # Groups of the same name would wait for one another.
    assert "github.workflow" not in told["concurrency"]["group"]


@pytest.mark.slow
def test_forms_and_citation_have_their_form(tmp_path: Path) -> None:
    config = FORMS / "config.yml"
    forms = sorted(set(FORMS.glob("*.yml")) - {config})
    assert form_faults(*forms, schema="github-issue-forms") == ""
    assert form_faults(config, schema="github-issue-config") == ""
    assert form_faults(ROOT / "CITATION.cff", schema="citation-file-format") == ""
    broken = tmp_path / "broken.yml"
    broken.write_text(forms[0].read_text().replace("body:", "bodies:"))
    assert "bodies" in form_faults(broken, schema="github-issue-forms")


def test_a_report_of_a_fault_asks_what_the_machine_is() -> None:
    for form in set(FORMS.glob("*.yml")) - {FORMS / "config.yml", FORMS / "feature.yml"}:
        assert "`octavo doctor --json`" in form.read_text(), form
