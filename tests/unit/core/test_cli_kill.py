"""``ci-bridge kill``: what it throws is in force at once, what can not be meant is refused, and it is on record who."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import ISSUER, Broker, refused
from test_cli import _settings, failed, run

from bridge.cli import operator


@pytest.fixture
def config(broker: Broker, database: str, tmp_path: Path, short_path: Path) -> Iterator[str]:
    """A settings file with one GitLab, that of the bench, its database, and its broker at work."""
    path, socket = Path(_settings(tmp_path, database)), short_path / "broker.sock"
    text = path.read_text().replace("[broker]", f'[broker]\nsocket = "{socket}"')
    start = text.index('url = "https://')
    path.write_text(f'{text[:start]}url = "{ISSUER}"{text[text.index(chr(10), start) :]}')
    with broker.serving(socket):
        yield str(path)


def shown(*words: str) -> Any:
    """What a command prints with --json."""
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.threat("T16")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("user", "101"), "killed.user"),
        (("user", "101", "--issuer", ISSUER), "killed.user"),
        (("account", "alice"), "killed.account"),
        (("project", "7"), "killed.project"),
        (("runner", "1"), "killed.runner"),
        (("issuer", ISSUER), "killed.issuer"),
        (("all",), "killed.all"),
    ],
)
def test_each_switch_stops_admissions_until_it_is_lifted(
    broker: Broker, config: str, words: tuple[str, ...], code: str
) -> None:
    broker.admission.admit(broker.evidence(302))
    thrown = shown("kill", *words, "--reason", "stolen", "--config", config)
    assert (thrown["new"], thrown["live_runs"], thrown["reason"]) == (True, 1, "stolen")
    assert refused(lambda: broker.admission.admit(broker.evidence())).code == code
    assert [one["switch_id"] for one in shown("kill", "list", "--config", config)] == [thrown["switch_id"]]

    lifted = shown("kill", "lift", thrown["switch_id"], "--reason", "found", "--config", config)
    assert lifted["lifted_by"] == thrown["actor"]
    assert shown("kill", "list", "--config", config) == []
    assert [one["switch_id"] for one in shown("kill", "list", "--lifted", "--config", config)] == [thrown["switch_id"]]
    assert broker.admission.admit(broker.evidence()).attempt == 1
    assert [one["detail"]["act"] for one in broker.records(type="kill")] == ["thrown", "lifted"]
    assert {one["reference"] for one in broker.records(type="kill")} == {thrown["switch_id"]}


def test_people_read_what_was_stopped_and_why(broker: Broker, config: str) -> None:
    assert "No kill switch" in run("kill", "list", "--config", config).stdout
    first = run("kill", "user", "101", "--reason", "stolen", "--config", config).stdout
    assert f"stopped: user 101 of {ISSUER} [" in first
    again = run("kill", "user", "101", "--reason", "once more", "--config", config).stdout
    assert "stopped already: " in again
    listed = run("kill", "list", "--config", config).stdout
    assert "'stolen'" in listed
    assert len(listed.splitlines()) == 1
    switch = listed.split()[0]
    assert (
        f"lifted: user 101 of {ISSUER} [{switch}]"
        in run(*("kill", "lift", switch, "--reason", "found", "--config", config)).stdout
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("kill", "user", "101", "--issuer", "https://gitlab.realm.tset", "--reason", "r"), "kill.issuer"),
        (("kill", "issuer", "gitlab.realm.test", "--reason", "r"), "kill.issuer"),
        (("kill", "all", "--reason", " "), "kill.reason"),
        (("kill", "all", "--reason", "r" * 501), "kill.reason"),
        (("kill", "all", "--reason", "stolen\x1b[2J"), "kill.reason"),
        (("kill", "all", "--reason", "stolen\nlifted by bob"), "kill.reason"),
        (("kill", "lift", "NONE", "--reason", "r"), "kill.unknown"),
    ],
)
def test_what_would_stop_nobody_is_refused(broker: Broker, config: str, words: tuple[str, ...], code: str) -> None:
    failed(run(*words, "--config", config), code)
    assert [one["phase"] for one in broker.records()] in ([], ["denied"])


def test_lifting_twice_is_refused(broker: Broker, config: str) -> None:
    switch = shown("kill", "all", "--reason", "r", "--config", config)["switch_id"]
    shown("kill", "lift", switch, "--reason", "r", "--config", config)
    failed(run("kill", "lift", switch, "--reason", "r", "--config", config), "kill.lifted")


@pytest.mark.parametrize("words", [("user", "0"), ("user", "alice"), ("project", "-1"), ("all",), ("lift",)])
def test_wrong_usage_is_told_from_a_refusal(broker: Broker, config: str, words: tuple[str, ...]) -> None:
    assert run("kill", *words, "--config", config).exit_code == 2
    assert broker.records() == []


def test_without_a_database_nothing_is_stopped_and_that_is_said(tmp_path: Path) -> None:
    config = _settings(tmp_path, f"sqlite:///{tmp_path / 'nowhere.sqlite3'}")
    failed(run("kill", "all", "--reason", "r", "--config", config), "audit.no_database")
    assert not (tmp_path / "nowhere.sqlite3").exists()


def test_the_operator_is_who_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    me = f"{pwd.getpwuid(os.getuid()).pw_name}({os.getuid()})"
    file = tmp_path / "loginuid"
    monkeypatch.setattr(operator, "_LOGIN_UID", file)
    monkeypatch.setenv("SUDO_USER", "mallory")
    assert operator.operator() == me
    file.write_text(str(2**32 - 1))
    assert operator.operator() == me
    file.write_text(str(os.getuid()))
    assert operator.operator() == me
    file.write_text("4242424")
    assert operator.operator() == f"{me} by (4242424)"
