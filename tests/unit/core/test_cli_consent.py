"""``ci-bridge consent``: an owner stops and lets go on what runs as them, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import ISSUER, Broker, refused
from remote_site import RemoteSite, client_file, remote_site
from test_cli import failed


@pytest.fixture
def there(broker: Broker, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteSite]:
    """The bridge, from another machine."""
    with remote_site(broker, short_path, monkeypatch) as site:
        yield site


@pytest.mark.threat("T16")
def test_what_was_stopped_is_refused_until_it_is_resumed_and_nobody_elses_is(there: RemoteSite) -> None:
    broker = there.broker
    said = there.run("alice", "consent", "stop")
    assert (said.exit_code, said.stdout.splitlines()[0]) == (0, "stop, for alice")
    assert "Nobody may act as you" in said.stdout
    assert refused(lambda: broker.admission.admit(broker.evidence(302))).code == "consent.stopped"
    assert broker.admission.admit(broker.evidence(303, 102)).grant.account.name == "bob"

    assert there.shown("alice", "consent", "resume")["mode"] == "site"
    assert broker.admission.admit(broker.evidence(304)).grant.account.name == "alice"


@pytest.mark.threat("T16")
def test_a_denied_project_is_refused_and_an_allowed_one_is_not(there: RemoteSite) -> None:
    broker = there.broker
    assert f"deny: project 7 of {ISSUER}, for alice" in there.run("alice", "consent", "deny", "7").stdout
    assert refused(lambda: broker.admission.admit(broker.evidence(302))).code.startswith("consent.")
    assert f"  denied   project 7 of {ISSUER}" in there.run("alice", "consent", "show").stdout
    consent = there.shown("alice", "consent", "allow", "7")
    assert (consent["allowed"], consent["denied"]) == ([{"issuer": ISSUER, "project_id": 7}], [])
    assert broker.admission.admit(broker.evidence(303)).grant.account.name == "alice"


@pytest.mark.threat("T16")
def test_only_listed_lets_in_nobody_but_the_listed(there: RemoteSite) -> None:
    broker = there.broker
    assert "Only the projects that you allowed" in there.run("alice", "consent", "only-listed").stdout
    assert refused(lambda: broker.admission.admit(broker.evidence(302))).code.startswith("consent.")
    there.run("alice", "consent", "allow", "7")
    assert broker.admission.admit(broker.evidence(303)).grant.account.name == "alice"
    assert there.shown("alice", "consent", "unlist")["mode"] == "site"


@pytest.mark.threat("T16")
def test_one_person_says_nothing_about_another(there: RemoteSite) -> None:
    for act in ("stop", "only-listed"):
        assert there.shown("mallory", "consent", act)["account"] == "mallory"
    failed(there.run("mallory", "consent", "deny", "7"), "consent.issuer")
    there.shown("mallory", "consent", "deny", "7", "--issuer", ISSUER)
    assert there.shown("alice", "consent", "show")["consent"] is None
    assert there.broker.admission.admit(there.broker.evidence(302)).grant.account.name == "alice"


def test_an_owner_sees_who_becomes_them(there: RemoteSite) -> None:
    shown = there.run("alice", "consent", "show").stdout.splitlines()
    assert shown[0] == "account alice (uid 20001)"
    assert f"  user 101 of {ISSUER}, by the administrators' accounts.toml" in shown
    assert shown[-1].startswith("Every project that policy lets in may act as you")
    assert there.shown("alice", "consent", "show")["rows"] == [[ISSUER, 101]]
    assert "  nobody; see 'ci-bridge account link'" in there.run("mallory", "consent", "show").stdout


def test_where_owners_are_asked_first_that_is_said(there: RemoteSite) -> None:
    accounts = "\n[links]\nself_service = true\nadmin = true\n\n[consent]\nask_first = true\n"
    there.broker.use(accounts=accounts)
    assert there.run("alice", "consent", "show").stdout.splitlines()[-1].startswith("Only the projects that you")
    assert "by the site's rule" in there.run("alice", "consent", "unlist").stdout


def test_the_issuer_of_a_project_is_named_or_the_client_files_or_the_only_one(
    there: RemoteSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "https://gitlab.elsewhere.test"
    failed(there.run("alice", "consent", "deny", "7", "--issuer", other), "consent.project")
    file = client_file(tmp_path / "c.toml", server=there.url, ca_file=there.ca_file, issuer=other)
    monkeypatch.setenv("CI_BRIDGE_CLIENT", str(file))
    failed(there.run("alice", "consent", "deny", "7"), "consent.project")
    assert there.shown("alice", "consent", "deny", "7", "--issuer", ISSUER)["denied"][0]["issuer"] == ISSUER


@pytest.mark.parametrize(
    "words", [("allow",), ("allow", "0"), ("deny", "chem/water"), ("deny", "-1"), ("stop", "7"), ("say",)]
)
def test_wrong_usage_asks_nobody(there: RemoteSite, words: tuple[str, ...]) -> None:
    assert there.run("alice", "consent", *words).exit_code == 2
    assert there.client.asked == []


def test_a_service_has_no_consent_to_give(there: RemoteSite) -> None:
    said = failed(there.run("host/node1.realm.test", "consent", "stop"), "caller.no_account")
    (denied,) = there.broker.records(type="consent", phase="denied")
    assert f"Reference: {denied['reference']}" in said
