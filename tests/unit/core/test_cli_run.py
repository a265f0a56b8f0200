"""``ci-bridge run`` and ``api-token``: runs for people with roles, and programs that call by a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import ISSUER, Broker
from remote_site import RemoteSite, remote_site
from test_cli import failed
from typer.testing import CliRunner

from bridge.cli.main import app
from bridge.policy.files import read_files
from tests.api.admin_site import ROLES
from tests.api.people_web import LINKS

NOTE = ("--note", "the policy's pipeline")


@pytest.fixture
def there(broker: Broker, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """The bridge, from another machine, with a person for each role."""
    monkeypatch.delenv("CI_BRIDGE_TOKEN_FILE", raising=False)
    with remote_site(broker, short_path, monkeypatch) as site:
        broker.use(accounts=LINKS, roles=ROLES)
        yield site


@pytest.fixture
def runs(there: RemoteSite) -> list[str]:
    """Runs of alice and bob."""
    evidence = (there.broker.evidence(), there.broker.evidence(302, 102))
    return [there.broker.admission.admit(one).run_id for one in evidence]


def test_runs_are_listed_by_what_is_asked(there: RemoteSite, runs: list[str]) -> None:
    alice, bob = runs
    lines = there.run("vic", "run", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [bob, alice]
    assert f"job 301 of project 7 by user 101 of {ISSUER}" in lines[1]
    for words, expected in (
        (("--account", "alice"), [alice]),
        (("--issuer", ISSUER, "--user-id", "102"), [bob]),
        (("--project-id", "7", "--issuer", ISSUER), [bob, alice]),
        (("--cluster", "nosuch"), []),
        (("--state", "ended"), []),
        (("--since", "1h"), [bob, alice]),
        (("--limit", "1"), [bob]),
    ):
        assert [one["run_id"] for one in there.shown("vic", "run", "list", *words)] == expected, words
    assert there.run("vic", "run", "list", "--state", "ended").stdout == "There is no such run.\n"


def test_lists_that_are_longer_than_a_page_come_whole(
    there: RemoteSite, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.cli.paging.PAGE", 1)
    assert {one["run_id"] for one in there.shown("vic", "run", "list")} == set(runs)
    monkeypatch.setattr("bridge.cli.paging.MOST_PAGES", 1)
    failed(there.run("vic", "run", "list"), "remote.unreadable")


def test_a_run_is_shown_with_all_that_is_on_record(there: RemoteSite, runs: list[str]) -> None:
    shown = there.run("vic", "run", "show", runs[0])
    assert shown.exit_code == 0, shown.output
    assert f"run      {runs[0]}, admitted, attempt " in shown.stdout
    assert f"who      user 101 of {ISSUER} as alice (uid 20001)" in shown.stdout
    assert "bundle   " in shown.stdout
    assert "admission" in shown.stdout
    assert there.shown("vic", "run", "show", runs[0])["run"]["account"] == "alice"


def test_an_operator_cancels_and_says_why(there: RemoteSite, runs: list[str]) -> None:
    words = ("run", "cancel", runs[0], "--reason", "it hangs")
    assert there.run("oli", *words).stdout.startswith(f"cancelled {runs[0]} by oli@REALM.TEST: it hangs\n")
    assert there.shown("ola", *words)["cancelled_by"] == "oli@REALM.TEST"
    assert "cancel   by oli@REALM.TEST: it hangs" in there.run("vic", "run", "show", runs[0]).stdout


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    ("who", "words", "code"),
    [
        ("alice", ("list",), "caller.role"),
        ("alice", ("show", "{}"), "caller.role"),
        ("vic", ("log", "{}"), "caller.role"),
        ("vic", ("cancel", "{}", "--reason", "r"), "caller.role"),
        ("ann", ("cancel", "{}", "--reason", "r"), "caller.role"),
        ("oli", ("log", "{}"), "run.log_elsewhere"),
        ("oli", ("cancel", "../me", "--reason", "r"), "remote.no_id"),
        ("vic", ("show", "0" * 25), "remote.no_id"),
        ("vic", ("list", "--since", "0d"), "run.age"),
    ],
)
def test_what_one_may_not_do_with_runs_is_refused(
    there: RemoteSite, runs: list[str], who: str, words: tuple[str, ...], code: str
) -> None:
    failed(there.run(who, "run", *(word.format(runs[0]) for word in words)), code)
    with there.broker.ledger.read() as view:
        assert view.cancels(runs[0]) == []  # type: ignore[arg-type]


@pytest.mark.threat("T45")
def test_a_jobs_log_does_nothing_to_the_operators_terminal(
    there: RemoteSite, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.cli.remote.Remote.get_bytes", lambda *_: b"one\n\x1b]0;owned\x07two\xff\r\n\x9b2J")
    shown = there.run("oli", "run", "log", runs[0])
    assert shown.stdout == "one\n\\x1b]0;owned\\x07two\ufffd\n\ufffd2J\n"


def make_token(there: RemoteSite, who: str, tmp_path: Path, *scopes: str) -> Path:
    """A file with an API token of somebody."""
    made = there.run(who, "api-token", "create", *(w for one in scopes for w in ("--scope", one)), *NOTE)
    assert made.exit_code == 0, made.output
    file = tmp_path / "token"
    file.write_text(made.stdout)
    return file


def test_a_token_is_made_listed_and_revoked(there: RemoteSite, tmp_path: Path) -> None:
    file = make_token(there, "ann", tmp_path, "author")
    assert file.read_text().startswith("cib_")
    assert file.read_text().count("\n") == 1
    (line,) = there.run("ann", "api-token", "list").stdout.splitlines()
    assert "ann@REALM.TEST  author  until" in line
    assert file.read_text().strip() not in line
    assert there.run("vic", "api-token", "list").stdout == "There is no token.\n"
    gone = there.run("ann", "api-token", "revoke", line.split()[0])
    assert gone.stdout.startswith(f"revoked {line.split()[0]}"), gone.output
    failed(there.run("ann", "policy", "withdraw", "7F3K-9QXM-2DTB", "--token-file", str(file)), "caller.unknown")


@pytest.mark.threat("T40")
def test_a_pipeline_submits_by_its_token_and_can_not_approve_with_it(
    there: RemoteSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_token(there, "amy", tmp_path, "author", "approver")
    directory = tmp_path / "policies"
    for name, text in read_files(there.broker.policies).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    (directory / "more.cedar").write_text("// a remark\n")
    servers = len(there.tickets.servers)
    words = ("policy", "submit", str(directory), "--title", "t", "--token-file", str(file))
    made = there.shown("nobody", *words)
    assert (made["state"], made["author"]) == ("submitted", "amy@REALM.TEST")
    theirs = there.shown("ann", "policy", "submit", str(directory), "--title", "by ann")
    monkeypatch.setenv("CI_BRIDGE_TOKEN_FILE", str(file))
    again = there.shown("nobody", *words[:-2])
    assert again["proposal_id"] == made["proposal_id"]
    approve = ("policy", "approve", theirs["proposal_id"], "--reason", "r", "--yes", "--hash", theirs["content_hash"])
    failed(there.run("nobody", *approve), "caller.not_a_person")
    assert len(there.tickets.servers) == servers + 1


@pytest.mark.threat("T40")
@pytest.mark.parametrize(
    "text",
    [
        *(
            None,
            "",
            "cib_",
            "cib_" + "a" * 42,
            "cib_" + "a" * 44,
            "x" + "cib_" + "a" * 43,
            "cib_" + "a" * 43 + "\nX: y",
        ),
        *("cib_" + "a" * 42 + "é", " cib_" + "a" * 43, "-----BEGIN RSA PRIVATE KEY-----"),
    ],
    ids=range(10),
)
def test_a_file_that_has_no_token_is_never_sent(there: RemoteSite, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    said = failed(
        there.run("ann", "policy", "withdraw", "7F3K-9QXM-2DTB", "--token-file", str(file)), "remote.token_file"
    )
    assert text is None or len(text) < 5 or text.strip() not in said
    assert there.client.asked == []


@pytest.mark.parametrize("words", [("create", *NOTE), ("create", "--scope", "root", *NOTE), ("revoke",)])
def test_wrong_usage_of_tokens_asks_nobody(there: RemoteSite, words: tuple[str, ...]) -> None:
    assert there.run("ann", "api-token", *words).exit_code == 2
    assert there.client.asked == []


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("bash", "complete -o default -F"), ("zsh", "#compdef ci-bridge"), ("fish", "complete --command ci-bridge")],
)
def test_every_shell_gets_its_completion(shell: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: (shell, shell))
    result: Any = CliRunner().invoke(app, ["--show-completion"], prog_name="ci-bridge")
    assert result.exit_code == 0, result.output
    assert expected in result.stdout
    assert "_CI_BRIDGE_COMPLETE" in result.stdout


@pytest.mark.parametrize(("typed", "offered"), [("ci-bridge policy sub", "submit"), ("ci-bridge run ", "cancel")])
def test_commands_are_completed(typed: str, offered: str) -> None:
    words = typed.split(" ")
    env = {"_CI_BRIDGE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    assert offered in CliRunner().invoke(app, [], prog_name="ci-bridge", env=env).stdout
