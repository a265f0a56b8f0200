"""The broker's self-test against a live KDC: whatever is changed there, it is not ready until that is put right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bridge_kinds import Kind, made
from bridge_side import LOGIN, MDS1, REALM_NAME, bridge_network

from bridge.audit.log import Writer
from bridge.broker.selftest import BAD_SECONDS, GOOD_SECONDS, Expectations, SelfTest
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError, Defect, Outage
from bridge.kerberos.clock import kdc_ahead_seconds
from bridge.kerberos.probe import probing
from realm import Realm
from realm.principals import BRIDGE_HTTP, DELEGATION_TARGETS
from tests.migrated import open_migrated

KIND = Kind("self-test", transition=True, targets=DELEGATION_TARGETS)
UNLISTED = (f"krbtgt/{REALM_NAME}", BRIDGE_HTTP)

Change = Callable[[Realm], None]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def here(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Realm]:
    """The bridge's host, with a principal whose rights these tests change."""
    with made(realm, [KIND], {"witness": ()}), bridge_network(realm, monkeypatch):
        yield realm


@pytest.fixture
def ledger(tmp_path: Path) -> SqlLedger:
    """A ledger of its own."""
    engine = open_migrated(f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    return SqlLedger(engine, Writer.new("broker@test"))


def self_test(here: Realm, ledger: SqlLedger, clock: Clock, witness: str | None = None) -> SelfTest:
    """As the broker puts it together."""
    keytab = KIND.keytab(here)
    expected = Expectations(
        listed=[f"{target}@{REALM_NAME}" for target in DELEGATION_TARGETS],
        refused_services=[f"{target}@{REALM_NAME}" for target in UNLISTED],
        refused_people=[f"root@{REALM_NAME}"],
        witness=witness and f"{witness}@{REALM_NAME}",
    )
    return SelfTest(
        lambda: probing(KIND.principal, keytab),
        lambda: kdc_ahead_seconds(KIND.principal, keytab),
        lambda: expected,
        ledger,
        clock,
    )


def records(ledger: SqlLedger) -> int:
    """How many records there are."""
    with ledger.read() as view:
        return view.head().tree.size


@pytest.mark.threat("T22")
@pytest.mark.parametrize("witness", [None, "witness"])
def test_a_kdc_that_is_set_up_as_it_should_be_makes_the_broker_ready(
    here: Realm, ledger: SqlLedger, witness: str | None
) -> None:
    before = records(ledger)
    self_test(here, ledger, Clock(), witness).ready()
    assert records(ledger) == before + 2
    log = here.log("krb5kdc")
    assert f"for {LOGIN}@{REALM_NAME}" in log


def _targets(*targets: str) -> Change:
    return lambda realm: realm.kdc.set_delegation_targets(KIND.service, targets)


def _flags(principal: str, *flags: str) -> Change:
    return lambda realm: realm.kdc.modprinc(principal, *flags)


ALL_TARGETS = _targets(*DELEGATION_TARGETS)
CHANGES: list[tuple[str, Change, Change, str | None, type[BridgeError], str]] = [
    (
        "one service too many",
        _targets(*DELEGATION_TARGETS, BRIDGE_HTTP),
        ALL_TARGETS,
        None,
        Defect,
        "selftest.too_much",
    ),
    (
        "root may be impersonated",
        _flags("root", "+allow_forwardable"),
        _flags("root", "-allow_forwardable"),
        None,
        Defect,
        "selftest.too_much",
    ),
    ("one service too few", _targets(LOGIN, MDS1), ALL_TARGETS, None, Outage, "selftest.too_little"),
    ("no service at all", _targets(), ALL_TARGETS, None, Outage, "selftest.too_little"),
    (
        "no protocol transition",
        _flags(KIND.service, "-ok_to_auth_as_delegate"),
        _flags(KIND.service, "+ok_to_auth_as_delegate"),
        "witness",
        Outage,
        "selftest.too_little",
    ),
    (
        "the witness is locked",
        _flags("witness", "-allow_tix"),
        _flags("witness", "+allow_tix"),
        "witness",
        Outage,
        "selftest.too_little",
    ),
]


@pytest.mark.threat("T22")
@pytest.mark.parametrize(
    ("change", "undo", "witness", "kind", "code"), [pytest.param(*row[1:], id=row[0]) for row in CHANGES]
)
def test_a_wrong_right_at_the_kdc_keeps_the_broker_from_being_ready(
    here: Realm,
    ledger: SqlLedger,
    change: Change,
    undo: Change,
    witness: str | None,
    kind: type[BridgeError],
    code: str,
) -> None:
    clock = Clock()
    test = self_test(here, ledger, clock, witness)
    test.ready()
    with _changed(here, change, undo):
        clock.now += GOOD_SECONDS
        with pytest.raises(kind, match=code.replace(".", r"\.")) as caught:
            test.ready()
        assert caught.value.reference
    clock.now += BAD_SECONDS
    test.ready()


@pytest.mark.threat("T24")
def test_a_kdc_that_is_away_makes_it_wait_and_leaves_no_record(here: Realm, ledger: SqlLedger) -> None:
    clock, before = Clock(), records(ledger)
    test = self_test(here, ledger, clock)
    here.stop_service("krb5kdc")
    try:
        with pytest.raises(Outage, match=r"kerberos\.kdc_unreachable"):
            test.ready()
        assert records(ledger) == before
    finally:
        here.restart_service("krb5kdc")
    clock.now += 1
    test.ready()


@contextmanager
def _changed(realm: Realm, change: Change, undo: Change) -> Iterator[None]:
    change(realm)
    try:
        yield
    finally:
        undo(realm)
