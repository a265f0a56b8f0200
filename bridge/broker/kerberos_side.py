"""The broker's side towards the KDC: which KDCs, who is never impersonated, and the test that the KDC refuses too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.active import ActivePolicy
from bridge.audit.ledger import Ledger
from bridge.broker.listed import targets_of
from bridge.broker.peer import Peer
from bridge.broker.selftest import Expectations, SelfTest
from bridge.broker.server import Answer, Handler
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.guard import AccountGuard
from bridge.kerberos.kdcs import KdcOrder
from bridge.kerberos.probe import probing
from bridge.policy.directory import NssDirectory
from bridge.settings import Broker, read_krb5_conf_first
from bridge.ticketing import Use


def exchange_of(broker: Broker) -> Exchange:
    """Make what asks the KDC; call it before there is another thread, as libkrb5 may be given a file of ours."""
    principal, order = f"{broker.principal}@{broker.realm}", None
    if broker.kdcs:
        file = broker.private_directory / "krb5.conf"
        order = KdcOrder(principal, broker.kdcs, file)
        read_krb5_conf_first(file)
    return Exchange(principal, str(broker.keytab), order=order)


def guard_of(broker: Broker) -> AccountGuard:
    """Make the second wall behind policy."""
    return AccountGuard(
        NssDirectory(), broker.uid_floor, frozenset(broker.denied_users), frozenset(broker.denied_groups)
    )


def self_test_of(broker: Broker, exchange: Exchange, policies: ActivePolicy, ledger: Ledger) -> SelfTest:
    """Make the test that the KDC gives the listed services and refuses everything else (T22)."""

    def expectations() -> Expectations:
        listed = frozenset(target for cluster in policies.clusters() for target in targets_of(cluster))
        unlisted = {f"krbtgt/{broker.realm}", broker.http_service} - listed
        return Expectations(
            listed=[f"{target}@{broker.realm}" for target in sorted(listed)],
            refused_services=[f"{target}@{broker.realm}" for target in sorted(unlisted)],
            refused_people=[f"root@{broker.realm}"],
            witness=broker.self_test_account and f"{broker.self_test_account}@{broker.realm}",
        )

    return SelfTest(
        lambda: probing(exchange.principal, str(broker.keytab)), exchange.kdc_ahead_seconds, expectations, ledger
    )


GIVES_TICKETS: Final = frozenset({"admit", "tickets", "node_tickets"})
"""What the broker is asked for tickets by."""


def bounded(handlers: Mapping[str, Handler], self_test: SelfTest) -> Mapping[str, Handler]:
    """Give no tickets while the KDC gives the bridge too much, except those that end a run (T22)."""

    def behind(handler: Handler) -> Handler:
        def asked(request: Mapping[str, Any], peer: Peer) -> Answer:
            if request.get("use") != Use.END:
                self_test.require_bounds()
            return handler(request, peer)

        return asked

    return {name: behind(one) if name in GIVES_TICKETS else one for name, one in handlers.items()}


def ping_of(self_test: SelfTest) -> Handler:
    """Answer web's readiness check with what the self-test found."""

    def ping(_request: Mapping[str, Any], _peer: Peer) -> Answer:
        self_test.ready()
        return {}, b""

    return ping
