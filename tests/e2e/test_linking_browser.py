"""A person with a ticket and a real browser links their GitLab user; the pages need no JavaScript and nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from realm import Realm, forge, tls
from realm.bridgehost import URL
from realm.gitlab.client import GitLabControl
from tests.e2e.at_desk import AtDesk
from tests.e2e.test_linking import linking_policies

SCRIPT = Path(__file__).with_name("linking_browser.py")


def _pin(realm: Realm, host: str) -> str:
    """What Chromium pins a server's key by: SHA-256 over its SubjectPublicKeyInfo, in base64."""
    certificate = x509.load_pem_x509_certificate(realm.host(host).read(tls.CERTIFICATE_PATH))
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


@pytest.fixture(scope="module", autouse=True)
def policies(realm: Realm) -> Iterator[None]:
    with linking_policies(realm):
        yield


@pytest.mark.threat("T41")
def test_a_person_links_themselves_with_a_browser_that_runs_no_script(realm: Realm, gitlab: GitLabControl) -> None:
    mallory = AtDesk(realm, gitlab, "mallory")
    desk = realm.host("desk")
    password = desk.read(forge.token_header("mallory")).decode().partition(": ")[2].encode()
    pins = ",".join(_pin(realm, host) for host in ("bridge", "gitlab"))
    argv = [sys.executable, "-P", str(SCRIPT), URL, pins, "mallory"]
    done = desk.run(argv, user="mallory", input=password, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    seen = json.loads(done.stdout)

    assert "Your account on the cluster is mallory (uid 20003)." in seen["before"]
    for text in ("mallory, number 103", "https://gitlab.realm.test", "mallory, uid 20003", "runs as mallory"):
        assert text in seen["question"]
    assert "(103)" in seen["after"]
    assert seen["address"] == f"{URL}/link"
    assert "No GitLab user is linked" in seen["ended"]
    assert mallory.links() == []
    assert seen["background"] == "rgb(21, 24, 28)"
    assert not [one for one in seen["problems"] if "Content Security Policy" in one and "frame" not in one]

    assert "request.cross_site" in seen["from_site"]
    assert "request.cross_site" in seen["from_nowhere"]
    assert "Who may act" not in seen["framed"]
    assert mallory.get("/v1/consent").json["standing"]["consent"] is None
    assert {one["url"].partition("://")[2].partition("/")[0] for one in seen["requests"]} == {
        "bridge.realm.test:8443",
        "gitlab.realm.test",
    }
    assert set(seen["cookies"]) == {"gitlab.realm.test"}
