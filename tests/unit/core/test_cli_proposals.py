"""``ci-bridge policy propose, submit, approve, activate``: a bundle comes into force by two people, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import Broker
from remote_site import RemoteSite, remote_site
from test_cli import failed

from bridge.api.admin import advice
from bridge.policy.files import read_files
from tests.api.admin_site import ROLES
from tests.api.people_web import LINKS

REASON = ("--reason", "as agreed")
WHY = ("--title", "no more gpu")


@pytest.fixture
def there(broker: Broker, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """The bridge, from another machine, with a person for each role."""
    with remote_site(broker, short_path, monkeypatch) as site:
        broker.use(accounts=LINKS, roles=ROLES)
        yield site


@pytest.fixture
def directory(there: RemoteSite, tmp_path: Path) -> Path:
    """A policy directory that refuses everybody, besides all that was said before."""
    return changed(there, tmp_path / "proposed")


def changed(there: RemoteSite, to: Path, text: str | None = None) -> Path:
    """A directory that adds a policy file to the bundle of the settings."""
    for name, content in read_files(there.broker.policies).items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(content)
    (to / "more.cedar").write_text(text or "// a remark\n")
    return to


def step(there: RemoteSite, who: str, *words: str) -> dict[str, Any]:
    """What a ``policy`` command answers with --json."""
    answer: dict[str, Any] = there.shown(who, "policy", *words)
    return answer


def submitted(there: RemoteSite, directory: Path) -> tuple[str, str]:
    """Ann's proposal before the approvers: its id, and the hash of its content."""
    made = step(there, "ann", "submit", str(directory), *WHY)
    return made["proposal_id"], made["content_hash"]


def approved(there: RemoteSite, directory: Path) -> tuple[str, str]:
    """The same, approved by abe."""
    made, named = submitted(there, directory)
    step(there, "abe", "approve", made, *REASON, "--yes", "--hash", named)
    return made, named


def states(there: RemoteSite) -> list[str]:
    """How all proposals stand, newest first."""
    return [one["state"] for one in step(there, "vic", "proposals")]  # type: ignore[index]


def test_a_bundle_comes_into_force_by_two_people_and_goes_back(there: RemoteSite, directory: Path) -> None:
    assert "nothing was activated yet" in there.run("vic", "policy", "history").stdout
    before = step(there, "vic", "active")["content_hash"]
    drafted = there.run("ann", "policy", "propose", str(directory), *WHY).stdout
    (made,) = (one["proposal_id"] for one in step(there, "vic", "proposals"))  # type: ignore[index]
    assert drafted.startswith(f"draft {made}: no more gpu [bundle ")
    assert f"Next, when it is ready: ci-bridge policy submit {made}\n" in drafted
    told = there.run("ann", "policy", "submit", made).stdout
    assert f"Next, an approver who is not its author: ci-bridge policy approve {made} --reason TEXT\n" in told
    shown = there.run("abe", "policy", "show", made).stdout
    named = shown.partition("bundle   ")[2].partition("\n")[0]
    assert f"changes over {before}, which is in force:" in shown
    assert "more.cedar" in shown or "no difference: nothing changes for anybody" in shown
    said = there.run("abe", "policy", "approve", made, *REASON, "--yes", "--hash", named)
    assert "no more gpu" in said.stderr
    assert f"Next, an approver or operator: ci-bridge policy activate {made} --reason TEXT\n" in said.stdout
    there.run("oli", "policy", "activate", made, *REASON)
    assert step(there, "vic", "active")["content_hash"] == named
    assert states(there) == ["activated"]
    assert there.broker.active.now().content_hash == named
    rolled = there.run("abe", "policy", "roll-back", before, *REASON)
    assert rolled.exit_code == 0, rolled.output
    assert rolled.stdout.startswith("in force: ")
    assert there.broker.active.now().content_hash == before
    lines = there.run("vic", "policy", "history").stdout.splitlines()
    assert [line[0] for line in lines] == ["*", *(" " for _ in lines[1:])]
    assert "roll_back" in lines[0]


def test_a_directory_is_submitted_in_one_step_and_again_is_harmless(there: RemoteSite, directory: Path) -> None:
    made, named = submitted(there, directory)
    assert submitted(there, directory) == (made, named)
    assert states(there) == ["submitted"]
    step(there, "abe", "approve", made, *REASON, "--yes", "--hash", named)
    assert step(there, "ann", "submit", str(directory), *WHY)["state"] == "approved"
    step(there, "abe", "activate", made, *REASON)
    assert step(there, "ann", "submit", str(directory), *WHY) == {"in_force": named}


def test_what_a_pipeline_submits_replaces_what_it_submitted_before(there: RemoteSite, directory: Path) -> None:
    first, _ = submitted(there, directory)
    (directory / "more.cedar").write_text("// another remark\n")
    second = step(there, "ann", "submit", str(directory), *WHY, "--replace")
    assert second["proposal_id"] != first
    assert states(there) == ["submitted", "withdrawn"]
    assert [one["state"] for one in step(there, "vic", "proposals", "--state", "submitted")] == ["submitted"]  # type: ignore[index]
    assert (
        there.run("vic", "policy", "proposals", "--author", "abe@REALM.TEST").stdout == "There is no such proposal.\n"
    )


def test_a_proposal_is_rewritten_rejected_and_withdrawn(there: RemoteSite, directory: Path) -> None:
    made, _ = approved(there, directory)
    (directory / "more.cedar").write_text("// another remark\n")
    assert step(there, "ann", "rewrite", made, str(directory))["state"] == "draft"
    step(there, "ann", "submit", made)
    assert there.run("abe", "policy", "reject", made, "--reason", "why?").stdout.startswith(f"rejected {made}: ")
    second, _ = submitted(there, directory)
    assert there.run("ann", "policy", "withdraw", second).stdout.startswith(f"withdrawn {second}: ")


def test_a_bundle_is_read_from_the_bridge_into_a_directory(there: RemoteSite, directory: Path, tmp_path: Path) -> None:
    made, _ = submitted(there, directory)
    assert there.run("abe", "policy", "show", made, "--to", str(tmp_path / "theirs")).exit_code == 0
    assert read_files(tmp_path / "theirs") == read_files(directory)
    assert there.run("vic", "policy", "active", "--to", str(tmp_path / "active")).exit_code == 0
    assert read_files(tmp_path / "active") == read_files(there.broker.policies)
    failed(there.run("vic", "policy", "active", "--to", str(tmp_path / "active")), "policy.directory_in_use")


def test_a_draft_that_does_not_load_is_shown_with_its_problems(there: RemoteSite, directory: Path) -> None:
    (directory / "more.cedar").write_text("permit (\n")
    made = step(there, "ann", "propose", str(directory), *WHY)["proposal_id"]
    assert "error: more.cedar:" in there.run("abe", "policy", "show", made).stdout
    shown = step(there, "abe", "show", made)
    assert shown["review"] is None
    assert shown["problems"]
    failed(there.run("ann", "policy", "submit", made), "policy.invalid")
    failed(there.run("abe", "policy", "approve", made, *REASON), "policy.invalid")


@pytest.mark.threat("T40")
def test_nobody_approves_their_own_proposal(there: RemoteSite, directory: Path) -> None:
    made = step(there, "amy", "submit", str(directory), *WHY)
    words = ("policy", "approve", made["proposal_id"], *REASON, "--yes", "--hash", made["content_hash"])
    failed(there.run("amy", *words), "policy.four_eyes")
    assert states(there) == ["submitted"]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("words", [(), ("--yes",), ("--hash", "{}")])
def test_without_a_terminal_nothing_is_approved_that_was_not_named(
    there: RemoteSite, directory: Path, words: tuple[str, ...]
) -> None:
    made, named = submitted(there, directory)
    result = there.run("abe", "policy", "approve", made, *REASON, *(word.format(named) for word in words))
    failed(result, "policy.unconfirmed")
    assert states(there) == ["submitted"]


@pytest.mark.threat("T40")
@pytest.mark.parametrize("other", ["0" * 64, "", "{0}0", "{0}\n"], ids=range(4))
def test_another_content_than_was_read_is_not_approved(there: RemoteSite, directory: Path, other: str) -> None:
    made, named = submitted(there, directory)
    result = there.run("abe", "policy", "approve", made, *REASON, "--yes", "--hash", other.format(named))
    failed(result, "policy.other_content")
    assert states(there) == ["submitted"]


@pytest.mark.threat("T40")
@pytest.mark.parametrize(("answer", "state"), [("y\n", "approved"), ("n\n", "submitted"), ("\n", "submitted")])
def test_at_a_terminal_somebody_must_say_yes(
    there: RemoteSite, directory: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: str
) -> None:
    made, _ = submitted(there, directory)
    monkeypatch.setattr("bridge.cli.review.at_terminal", lambda: True)
    monkeypatch.setattr("typer.testing.CliRunner.invoke", _answering(answer))
    there.run("abe", "policy", "approve", made, *REASON)
    monkeypatch.undo()
    assert [one.state.value for one in there.broker.register.read().proposals] == [state]


def _answering(text: str) -> Any:
    from typer.testing import CliRunner

    plain = CliRunner.invoke
    return lambda self, app, words: plain(self, app, words, input=text)


@pytest.mark.threat("T40")
@pytest.mark.parametrize("path", ["/proposals/", "/bundles/active"])
def test_files_that_are_not_those_of_their_hash_are_not_shown_for_approval(
    there: RemoteSite, directory: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A web process that lies about what is proposed, or what it is compared with."""
    from bridge.cli.remote import Remote

    made, named = submitted(there, directory)
    plain = Remote.get

    def lying(self: Remote, at: str) -> dict[str, Any]:
        answer = plain(self, at)
        if path in at:
            answer["files"]["more.cedar"] = "// harmless\n"
        return answer

    monkeypatch.setattr(Remote, "get", lying)
    failed(there.run("abe", "policy", "approve", made, *REASON, "--yes", "--hash", named), "policy.content")
    monkeypatch.undo()
    assert [one.state.value for one in there.broker.register.read().proposals] == ["submitted"]


@pytest.mark.threat("T48")
def test_what_changes_between_reading_and_deciding_is_not_decided(
    there: RemoteSite, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If-Match: the author writes anew while the approver reads."""
    made, named = submitted(there, directory)
    plain = __import__("bridge.cli.review", fromlist=["x"]).require_shown

    def meanwhile(*args: Any, **more: Any) -> None:
        caller = there.broker.caller("ann@REALM.TEST")
        before = there.broker.register.read().proposal(made)
        assert before is not None
        there.broker.proposing.rewrite(caller, made, before.version, read_files(there.broker.policies))
        plain(*args, **more)

    monkeypatch.setattr("bridge.cli.review.require_shown", meanwhile)
    failed(there.run("abe", "policy", "approve", made, *REASON, "--yes", "--hash", named), "policy.changed")


def test_what_a_bundle_would_have_refused_is_told(there: RemoteSite, tmp_path: Path, directory: Path) -> None:
    run_id = there.broker.admission.admit(there.broker.evidence()).run_id
    forbid = '@id("stop")\n@reason("stop")\nforbid (principal, action, resource);\n'
    hard = changed(there, tmp_path / "hard", forbid)
    same = there.run("vic", "policy", "replay", str(directory), "--since", "12h")
    assert (same.exit_code, same.stdout) == (0, "0 of 1 jobs would come out otherwise\n")
    told = there.run("vic", "policy", "replay", str(hard))
    assert told.exit_code == 1, told.output
    assert told.stdout.startswith(f"{run_id}  user 101 as alice  allowed -> policy.")
    assert advice.MOST_REPLAYED > 1
    failed(there.run("vic", "policy", "replay", str(hard), "--since", "yesterday"), "run.age")
    failed(there.run("alice", "policy", "replay", str(hard)), "caller.role")


@pytest.mark.parametrize(("words", "ended"), [((), False), (("--cancel-revoked",), True)])
def test_runs_that_the_new_bundle_would_refuse_are_listed_and_can_be_ended(
    there: RemoteSite, tmp_path: Path, words: tuple[str, ...], ended: bool
) -> None:
    run_id = there.broker.admission.admit(there.broker.evidence()).run_id
    shipped = changed(there, tmp_path / "hard")
    accounts = shipped / "accounts.toml"
    accounts.write_text(accounts.read_text().replace('users = ["root"', 'users = ["alice", "root"'))
    for case in (shipped / "cases").iterdir():
        case.unlink()
    made, _ = approved(there, shipped)
    told = there.run("oli", "policy", "activate", made, *REASON, *words)
    assert told.exit_code == 0, told.output
    assert run_id in told.stdout
    assert ("cancelled" if ended else "goes on") in told.stdout
    with there.broker.ledger.read() as view:
        assert bool(view.cancels(run_id)) is ended


@pytest.mark.threat("T40")
def test_an_emergency_takes_two_operators_and_the_content_that_was_read(there: RemoteSite, directory: Path) -> None:
    words = ("policy", "break-glass", str(directory), "--minutes", "30", *REASON)
    failed(there.run("abe", *words), "caller.role")
    asked = there.run("oli", *words)
    assert asked.stdout.endswith("Next, another operator: ci-bridge policy confirm 1\n"), asked.output
    assert "(nobody has confirmed it)" in there.run("vic", "policy", "history").stdout
    named = step(there, "vic", "history")["activations"][0]["content_hash"]
    confirm = ("policy", "confirm", "1", "--yes", "--hash")
    failed(there.run("oli", *confirm, named), "policy.four_eyes")
    failed(there.run("ola", *confirm, "0" * 64), "policy.other_content")
    failed(there.run("ola", "policy", "confirm", "2", "--yes", "--hash", named), "policy.nothing_to_confirm")
    failed(there.run("ola", "policy", "confirm", "1", "--yes"), "policy.unconfirmed")
    done = there.run("ola", *confirm, named)
    assert done.exit_code == 0, done.output
    assert "more.cedar" in done.stderr or "no difference" in done.stderr
    assert there.broker.active.now().content_hash == named
    assert "emergency until" in there.run("vic", "policy", "active").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("propose", "{}"),
        ("submit",),
        ("submit", "{}"),
        ("approve", "7F3K-9QXM-2DTB"),
        ("activate", "7F3K-9QXM-2DTB"),
        ("break-glass", *REASON, "--minutes", "30"),
        ("break-glass", "{}", "--hash", "0" * 64, *REASON, "--minutes", "30"),
        ("break-glass", "{}", *REASON, "--minutes", "241"),
        ("proposals", "--state", "old"),
        ("proposals", "--limit", "0"),
    ],
)
def test_wrong_usage_of_policy_asks_nobody(there: RemoteSite, directory: Path, words: tuple[str, ...]) -> None:
    assert there.run("ann", "policy", *(word.format(directory) for word in words)).exit_code == 2
    assert there.client.asked == []


@pytest.mark.parametrize("verb", ["show", "withdraw", "approve", "reject", "activate", "submit"])
def test_what_is_no_id_asks_nobody(there: RemoteSite, verb: str) -> None:
    reason = REASON if verb in ("approve", "reject", "activate") else ()
    failed(there.run("ann", "policy", verb, "../me", *reason), "remote.no_id")
    assert there.client.asked == []


def test_a_directory_that_is_none_is_named(there: RemoteSite, tmp_path: Path) -> None:
    failed(there.run("ann", "policy", "submit", str(tmp_path), *WHY), "policy.invalid")
    assert there.client.asked == []


def test_json_of_a_review_has_all_of_it(there: RemoteSite, directory: Path) -> None:
    made, named = submitted(there, directory)
    shown = step(there, "abe", "show", made)
    assert shown["review"]["content_hash"] == named
    assert {"difference", "cases", "findings", "against"} <= shown["review"].keys()
    assert all(case["passed"] for case in shown["review"]["cases"])
    json.dumps(shown)
