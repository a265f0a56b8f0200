"""The doctor's word on an issuer: each thing that can be wrong is named, with what to do about it (T9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from bridge.doctor.finding import Finding, State
from bridge.doctor.issuers import check_issuer
from bridge.settings import Issuer
from tests.unit.oidc.https_server import HttpsServer, https_server
from tests.unit.oidc.jwk import jwk_of, new_key

DISCOVERY, KEYS = "/.well-known/openid-configuration", "/oauth/discovery/keys"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[HttpsServer]:
    """A GitLab with one good key."""
    with https_server(tmp_path) as server:
        document = {"issuer": server.url, "jwks_uri": f"{server.url}{KEYS}"}
        server.body(DISCOVERY, json.dumps(document).encode())
        server.body(KEYS, json.dumps({"keys": [jwk_of(new_key().public_key(), "key-1")]}).encode())
        yield server


def issuer(site: HttpsServer, ca_file: Path | None = None) -> Issuer:
    return Issuer(url=site.url, audience="https://bridge.realm.test", ca_file=ca_file or site.ca_file)


def failures(findings: list[Finding]) -> list[str]:
    assert all(finding.remedy for finding in findings if finding.state is not State.OK)
    return [finding.check for finding in findings if finding.state is not State.OK]


def test_a_good_issuer_is_reached_trusted_and_on_time(site: HttpsServer) -> None:
    findings = list(check_issuer(issuer(site)))
    assert [finding.check for finding in findings] == ["issuer-tls", "issuer-clock", "issuer-discovery", "issuer-keys"]
    assert failures(findings) == []
    assert findings[-1].detail == "1 usable: key-1"


@pytest.mark.threat("T9")
@pytest.mark.parametrize(("seconds", "bad"), [(-300, True), (-62, True), (-50, False), (50, False), (62, True)])
def test_a_clock_more_than_a_minute_off_is_named(site: HttpsServer, seconds: int, *, bad: bool) -> None:
    body = json.dumps({"issuer": site.url, "jwks_uri": f"{site.url}{KEYS}"}).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(200)
        handler.send_header("Date", format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True))
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    site.answers[DISCOVERY] = answer
    findings = list(check_issuer(issuer(site)))
    assert failures(findings) == (["issuer-clock"] if bad else [])


def test_an_answer_without_a_date_is_not_called_good(site: HttpsServer) -> None:
    body = json.dumps({"issuer": site.url, "jwks_uri": f"{site.url}{KEYS}"}).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    site.answers[DISCOVERY] = answer
    (found,) = [one for one in check_issuer(issuer(site)) if one.state is not State.OK]
    assert (found.check, found.state) == ("issuer-clock", State.NOT_CHECKED)


def test_a_stranger_with_another_authority_is_not_trusted(site: HttpsServer, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with https_server(tmp_path / "other") as other:
        (found,) = check_issuer(issuer(site, other.ca_file))
    assert found.check == "issuer-tls"
    assert "self-signed" in found.detail or "self signed" in found.detail or "unable to get" in found.detail
    assert "issuers.ca_file" in found.remedy


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_that_is_none_is_named(site: HttpsServer, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "missing.pem"
    if content is not None:
        path.write_text(content)
    (found,) = check_issuer(issuer(site, path))
    assert found.check == "issuer-tls"
    assert str(path) in found.detail


def test_nobody_at_the_address_is_named(site: HttpsServer, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    with https_server(tmp_path / "gone") as gone:
        pass
    (found,) = check_issuer(issuer(gone))
    assert found.check == "issuer-tls"
    assert found.detail.startswith("not reachable")


def test_wrong_discovery_and_bad_keys_are_named(site: HttpsServer) -> None:
    site.body(KEYS, json.dumps({"keys": []}).encode())
    assert failures(list(check_issuer(issuer(site)))) == ["issuer-keys"]
    del site.answers[DISCOVERY]
    assert failures(list(check_issuer(issuer(site)))) == ["issuer-discovery", "issuer-keys"]
    site.body(DISCOVERY, b"", 302, {"Location": "https://evil.test/"})
    assert failures(list(check_issuer(issuer(site)))) == ["issuer-discovery", "issuer-keys"]


def test_keys_from_a_file_are_looked_at_there(site: HttpsServer, tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    static = issuer(site).model_copy(update={"jwks_file": path})
    site.answers.clear()
    assert failures(list(check_issuer(static))) == ["issuer-keys"]
    path.write_text(json.dumps({"keys": [jwk_of(new_key().public_key(), "by-hand")]}))
    findings = list(check_issuer(static))
    assert failures(findings) == []
    assert findings[0].detail == "1 usable: by-hand"
