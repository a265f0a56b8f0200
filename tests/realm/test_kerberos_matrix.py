"""What each right at the KDC is worth, row by row, in the hands of our own code and without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, MDS1, REALM_NAME, bridge_network

from bridge.errors import BridgeError
from bridge.model import TicketBundle
from realm import Realm
from realm.principals import DELEGATION_TARGETS

UNLISTED = "host/node1.realm.test"
KRBTGT = f"krbtgt/{REALM_NAME}"

KINDS = {
    kind.name: kind
    for kind in (
        Kind("matrix-both", transition=True, targets=DELEGATION_TARGETS),
        Kind("matrix-self", transition=True),
        Kind("matrix-proxy", transition=False, targets=DELEGATION_TARGETS),
        Kind("matrix-none", transition=False),
    )
}
PEOPLE = {
    "matrix-ordinary": (),
    "matrix-locked": ("-allow_tix",),
    "matrix-expired": ("-expire", "2020-01-01"),
    "matrix-fixed": ("-allow_forwardable",),
    "matrix-password": ("+needchange",),
    "matrix/service.realm.test": (),
}
SERVICE = "matrix/service.realm.test"

REFUSED, LOCKED, EXPIRED = "kerberos.not_delegable", "kerberos.client_revoked", "kerberos.client_expired"
NO_ACCOUNT, DENIED, NO_TARGET = "kerberos.account_malformed", "kerberos.account_denied", "kerberos.target_malformed"

OURS: list[tuple[str, str, str, str | None]] = [
    ("matrix-both", "matrix-ordinary", LOGIN, None),
    ("matrix-both", "matrix-ordinary", MDS1, None),
    ("matrix-both", "matrix-ordinary", UNLISTED, REFUSED),
    ("matrix-both", "matrix-ordinary", KRBTGT, NO_TARGET),
    ("matrix-both", "matrix-password", LOGIN, None),
    ("matrix-both", "matrix-locked", LOGIN, LOCKED),
    ("matrix-both", "matrix-expired", LOGIN, EXPIRED),
    ("matrix-both", "matrix-fixed", LOGIN, REFUSED),
    ("matrix-both", SERVICE, LOGIN, NO_ACCOUNT),
    ("matrix-both", "root", LOGIN, DENIED),
    ("matrix-self", "matrix-ordinary", LOGIN, REFUSED),
    ("matrix-self", "matrix-ordinary", UNLISTED, REFUSED),
    ("matrix-self", "matrix-ordinary", KRBTGT, NO_TARGET),
    ("matrix-self", "matrix-locked", LOGIN, LOCKED),
    ("matrix-self", "matrix-expired", LOGIN, EXPIRED),
    ("matrix-self", "matrix-fixed", LOGIN, REFUSED),
    ("matrix-self", SERVICE, LOGIN, NO_ACCOUNT),
    ("matrix-self", "root", LOGIN, DENIED),
    ("matrix-proxy", "matrix-ordinary", LOGIN, REFUSED),
    ("matrix-proxy", "matrix-ordinary", UNLISTED, REFUSED),
    ("matrix-proxy", "matrix-ordinary", KRBTGT, NO_TARGET),
    ("matrix-proxy", "matrix-locked", LOGIN, LOCKED),
    ("matrix-proxy", "matrix-expired", LOGIN, EXPIRED),
    ("matrix-proxy", "matrix-fixed", LOGIN, REFUSED),
    ("matrix-proxy", SERVICE, LOGIN, NO_ACCOUNT),
    ("matrix-proxy", "root", LOGIN, DENIED),
    ("matrix-none", "matrix-ordinary", LOGIN, REFUSED),
    ("matrix-none", "matrix-ordinary", UNLISTED, REFUSED),
    ("matrix-none", "matrix-ordinary", KRBTGT, NO_TARGET),
    ("matrix-none", "matrix-locked", LOGIN, LOCKED),
    ("matrix-none", "matrix-expired", LOGIN, EXPIRED),
    ("matrix-none", "matrix-fixed", LOGIN, REFUSED),
    ("matrix-none", SERVICE, LOGIN, NO_ACCOUNT),
    ("matrix-none", "root", LOGIN, DENIED),
]

KDC_ALONE: list[tuple[str, str, str, str | None]] = [
    ("matrix-both", "matrix-ordinary", LOGIN, None),
    ("matrix-both", "matrix-ordinary", UNLISTED, REFUSED),
    ("matrix-both", "matrix-ordinary", KRBTGT, REFUSED),
    ("matrix-both", "matrix-ordinary", "kadmin/admin", REFUSED),
    ("matrix-both", "admin/admin", LOGIN, REFUSED),
    ("matrix-both", "lustre_root", MDS1, REFUSED),
    ("matrix-both", "host/login.realm.test", LOGIN, REFUSED),
    ("matrix-both", "kadmin/admin", LOGIN, REFUSED),
    # A service whose principal lacks -allow_forwardable: only our own walls stand before it.
    ("matrix-both", SERVICE, LOGIN, None),
    *(
        (kind, "matrix-ordinary", target, REFUSED)
        for kind in KINDS
        if kind != "matrix-both"
        for target in (LOGIN, KRBTGT)
    ),
    *((kind, "root", LOGIN, REFUSED) for kind in KINDS),
]


@pytest.fixture(scope="module")
def principals(realm: Realm) -> Iterator[Realm]:
    """A realm that has the kinds and the people of the matrix."""
    with made(realm, list(KINDS.values()), PEOPLE):
        yield realm


@pytest.fixture
def here(principals: Realm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """The same, seen from the bridge's host."""
    with bridge_network(principals, monkeypatch):
        yield principals


@pytest.mark.threat("T22")
@pytest.mark.parametrize(("kind", "account", "target", "code"), OURS, ids=str)
def test_our_code_gives_no_bundle_but_with_both_rights(
    here: Realm, kind: str, account: str, target: str, code: str | None
) -> None:
    able = KINDS[kind].impersonation(here, (*DELEGATION_TARGETS, UNLISTED, KRBTGT))
    before = len(here.log("krb5kdc"))
    given: list[TicketBundle] = []
    assert _code(lambda: given.append(able.tickets(account, 20001, (target,), 600))) == code
    wanted = (f"{account}@{REALM_NAME}", f"{target}@{REALM_NAME}")
    assert [(one.client, one.server) for made in given for one in made.tickets] == ([] if code else [wanted])
    assert bool(_issued(here, before, target)) == (code is None)


@pytest.mark.threat("T22")
@pytest.mark.parametrize("kind", ["matrix-self", "matrix-proxy", "matrix-none"])
def test_one_refused_target_takes_the_whole_bundle_with_it(here: Realm, kind: str) -> None:
    with pytest.raises(BridgeError, match=r"kerberos\.not_delegable"):
        KINDS[kind].impersonation(here).tickets("matrix-ordinary", 20001, DELEGATION_TARGETS, 600)


@pytest.mark.threat("T18")
@pytest.mark.threat("T22")
@pytest.mark.parametrize(("kind", "account", "target", "code"), KDC_ALONE, ids=str)
def test_the_kdc_refuses_by_itself_what_must_not_be(
    here: Realm, kind: str, account: str, target: str, code: str | None
) -> None:
    """All walls of the bridge taken away: this is what somebody with its keytab could do."""
    before = len(here.log("krb5kdc"))
    exchange, user, server = KINDS[kind].exchange(here), f"{account}@{REALM_NAME}", f"{target}@{REALM_NAME}"
    assert _code(lambda: exchange.obtain(account, user, (server,), 600)) == code
    assert bool(_issued(here, before, target)) == (code is None)


def test_a_service_that_requires_preauthentication_is_named_as_the_reason(here: Realm) -> None:
    kind = KINDS["matrix-both"]
    here.kdc.modprinc(LOGIN, "+requires_preauth")
    try:
        with pytest.raises(BridgeError, match=r"kerberos\.target_preauth"):
            kind.impersonation(here).tickets("matrix-ordinary", 20001, (LOGIN,), 600)
    finally:
        here.kdc.modprinc(LOGIN, "-requires_preauth")
    kind.impersonation(here).tickets("matrix-ordinary", 20001, (LOGIN,), 600)


def test_a_right_that_is_taken_away_is_gone_at_once_and_comes_back(here: Realm) -> None:
    kind = KINDS["matrix-both"]
    able = kind.impersonation(here)
    able.tickets("matrix-ordinary", 20001, (LOGIN,), 600)
    here.kdc.set_delegation_targets(kind.service, [MDS1])
    try:
        with pytest.raises(BridgeError, match=r"kerberos\.not_delegable"):
            able.tickets("matrix-ordinary", 20001, (LOGIN,), 600)
        able.tickets("matrix-ordinary", 20001, (MDS1,), 600)
    finally:
        here.kdc.set_delegation_targets(kind.service, DELEGATION_TARGETS)
    able.tickets("matrix-ordinary", 20001, (LOGIN,), 600)


def _code(call: Callable[[], object]) -> str | None:
    try:
        call()
    except BridgeError as error:
        return error.code
    return None


def _issued(realm: Realm, before: int, target: str) -> list[str]:
    """The KDC's own word on tickets for a target since then, S4U2Self and TGTs of the bridge left out."""
    lines = realm.log("krb5kdc")[before:].splitlines()
    made = [line for line, after in pairwise(lines) if ": ISSUE: " in line and "CONSTRAINED-DELEGATION" in after]
    return [line for line in made if line.endswith(f"for {target}@{REALM_NAME}")]
