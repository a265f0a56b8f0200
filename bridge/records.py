"""How grants and ticket bundles look in the audit log: ids, names of services and hashes; never anything secret."""

from __future__ import annotations

import hashlib

from bridge.audit.record import Basis, Target, Tickets
from bridge.model import Grant, TicketBundle


def target_of(grant: Grant, node: str | None = None) -> Target:
    """Say whom the grant lets the job run as, and where."""
    account = grant.account
    return Target(
        cluster=grant.cluster.name,
        account=account.name,
        uid=account.uid,
        principal=f"{account.name}@{grant.cluster.realm}",
        node=node,
    )


def basis_of(grant: Grant) -> Basis:
    """Say which policy and limits it rests upon."""
    return Basis(grant.bundle_hash, grant.policy_ids, grant.limits.names)


def tickets_of(bundle: TicketBundle) -> Tickets:
    """Say which tickets were made; their ids are those in the KDC's own audit."""
    return Tickets(
        services=tuple(ticket.server for ticket in bundle.tickets),
        end=bundle.end,
        ccache_sha256=hashlib.sha256(bundle.ccache).hexdigest(),
        ticket_ids=tuple(ticket.ticket_id for ticket in bundle.tickets),
    )
