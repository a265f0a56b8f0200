"""The demo's own steps, each as a test: what the first page of the README promises."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from realm.demo.scenes import Scenes
from realm.workspace import CHECKOUT


def test_each_job_runs_as_the_person_who_started_it_and_its_artifact_arrives(scenes: Scenes) -> None:
    evidence = list(scenes.alice_and_bob()) + list(scenes.artifact())

    assert "who: alice 20001" in evidence
    assert "who: bob 20002" in evidence


def test_exit_code_of_the_script_arrives(scenes: Scenes) -> None:
    assert any("exit code 3" in line for line in scenes.exit_code())


def test_cancel_in_gitlab_ends_the_job_in_slurm(scenes: Scenes) -> None:
    assert any("CANCELLED" in line for line in scenes.cancel())


@pytest.mark.threat("T11")
def test_a_person_without_a_linked_account_is_refused(scenes: Scenes) -> None:
    (line,) = scenes.refused("mallory", "story/mallory", "account.not_mapped")
    assert "reference" in line


@pytest.mark.threat("T18")
def test_a_row_that_says_root_is_refused(scenes: Scenes) -> None:
    (line,) = scenes.refused("eve", "story/eve", "account.privileged")
    assert "root" in line


@pytest.mark.threat("T18")
def test_a_principal_that_is_locked_at_the_kdc_is_refused_by_the_kdc(scenes: Scenes) -> None:
    *_, line = scenes.kdc_refused()
    assert "CLIENT LOCKED OUT" in line


def test_the_audit_log_tells_the_whole_job_and_verifies(scenes: Scenes) -> None:
    if scenes.solved is None:
        list(scenes.alice_and_bob())
    *story, verdict = scenes.timeline()

    kinds = [line.split()[2] for line in story]
    assert kinds[0] == "admission"
    assert kinds[-1] == "run"
    assert "stage/build_script" in kinds
    assert "Merkle root" in verdict


def test_the_demo_tells_every_step_on_a_realm_of_its_own_beside_another() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "realm.demo", "--json"], cwd=CHECKOUT, capture_output=True, timeout=150, check=False
    )
    told = json.loads(done.stdout)

    assert [step["title"] for step in told["steps"] if not step["ok"]] == []
    assert len(told["steps"]) == 10
    assert done.returncode == 0
