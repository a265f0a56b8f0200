"""A person with a ticket makes a token for a program; it works with its scopes only, until it is revoked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from realm import Realm, tls
from realm.bridgehost import SERVICE, URL
from realm.gitlab.client import GitLabControl
from tests.e2e.at_desk import AtDesk
from tests.e2e.test_linking import linking_policies


def program(realm: Realm, secret: str, path: str, *options: str) -> tuple[int, Any]:
    """What web answers a program on another host, which has a secret and no ticket."""
    argv = ["curl", "--silent", "--show-error", "--cacert", tls.CA_PATH, "--write-out", "\n%{http_code}"]
    argv += ["--header", f"Authorization: Bearer {secret}", *options, f"{URL}{path}"]
    body, _, status = realm.host("desk").run(argv, user="bob").stdout.decode().rpartition("\n")
    return int(status), json.loads(body)


@pytest.mark.threat("T40")
def test_a_token_made_with_a_ticket_is_a_program_of_its_owner_and_never_more(
    realm: Realm, gitlab: GitLabControl
) -> None:
    with linking_policies(realm):
        alice, bob = AtDesk(realm, gitlab, "alice"), AtDesk(realm, gitlab, "bob")
        assert alice.call("/v1/admin/api-tokens", scopes=["operator"], days=1, note="no").code == "caller.role"
        made = alice.call("/v1/admin/api-tokens", scopes=["author", "approver"], days=1, note="nightly")
        assert made.status == 201, made.text
        secret, token_id = made.json["secret"], made.json["token"]["token_id"]
        status, me = program(realm, secret, "/v1/me")
        assert (status, me["principal"], me["method"], me["person"], me["account"]) == (
            200,
            "alice@REALM.TEST",
            "api_token",
            False,
            None,
        )
        more = ["--header", "X-CI-Bridge-Client: test", "--json", '{"scopes": ["author"], "days": 366, "note": "more"}']
        assert program(realm, secret, "/v1/admin/api-tokens", *more)[1]["code"] == "caller.not_a_person"
        stop = ["--header", "X-CI-Bridge-Client: test", "--json", '{"scope": "all", "reason": "r"}']
        assert program(realm, secret, "/v1/kills", *stop)[1]["code"] == "caller.role"
        assert program(realm, f"cib_{'x' * 43}", "/v1/me")[1]["code"] == "caller.unknown"
        # Bob is an operator.
        argv = ["--request", "DELETE", "--header", "X-CI-Bridge-Client: test", "--json", "{}"]
        ended = bob._curl(f"{URL}/v1/admin/api-tokens/{token_id}", *argv)
        assert (ended.status, ended.json["token"]["revoked_by"]) == (200, "bob@REALM.TEST")
        status, gone = program(realm, secret, "/v1/me")
        assert (status, gone["code"]) == (401, "caller.unknown")
    assert secret not in realm.log(SERVICE.name)
