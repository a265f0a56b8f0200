"""Bundles, proposals and activations in their tables; a bundle is written once, and none is ever deleted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from bridge.db import refusals
from bridge.db.schema import activations, bundles, proposals
from bridge.proposals import Activation, ActivationKind, Proposal, ProposalState


class PolicyViews:
    """Reads policies on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def proposals(self) -> Sequence[Proposal]:
        """All of them; raises ValueError for a state that there is not."""
        return [_proposal_of(row) for row in self._connection.execute(select(proposals)).mappings()]

    def activations(self) -> Sequence[Activation]:
        """All of them; raises ValueError for a kind that there is not."""
        return [_activation_of(row) for row in self._connection.execute(select(activations)).mappings()]

    def bundle_files(self, content_hash: str) -> Mapping[str, str]:
        """See ``View.bundle_files``."""
        query = select(bundles.c.files).where(bundles.c.content_hash == content_hash)
        text = self._connection.execute(query).scalar_one_or_none()
        if text is None:
            raise refusals.no_bundle(content_hash)
        try:
            files = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise refusals.bundle_unreadable(error) from error
        if type(files) is not dict or not all(type(one) is str for one in files.values()):
            raise refusals.bundle_unreadable(TypeError())
        return files


class PolicyChanges:
    """Changes policies on one connection, inside a writing transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keep_bundle(self, content_hash: str, files: Mapping[str, str], by: str, now: datetime) -> None:
        """See ``Tx.keep_bundle``."""
        known = select(bundles.c.content_hash).where(bundles.c.content_hash == content_hash)
        if self._connection.execute(known).one_or_none() is not None:
            return
        row = {
            "content_hash": content_hash,
            "files": json.dumps(dict(files), sort_keys=True, separators=(",", ":"), ensure_ascii=True),
            "size": sum(len(text.encode()) for text in files.values()),
            "created_at": now,
            "created_by": by,
        }
        self._connection.execute(insert(bundles), row)

    def put_proposal(self, proposal: Proposal) -> Proposal:
        """See ``Tx.put_proposal``; returns what a reader will find."""
        row = dataclasses.asdict(proposal)
        known = self._connection.execute(
            update(proposals).where(proposals.c.proposal_id == proposal.proposal_id).values(row)
        )
        if known.rowcount == 0:
            self._connection.execute(insert(proposals), row)
        return proposal

    def put_activation(self, activation: Activation) -> Activation:
        """See ``Tx.put_activation``; returns what a reader will find."""
        row = dataclasses.asdict(activation)
        known = self._connection.execute(
            update(activations).where(activations.c.number == activation.number).values(row)
        )
        if known.rowcount == 0:
            self._connection.execute(insert(activations), row)
        return activation


def _proposal_of(row: Mapping[Any, Any]) -> Proposal:
    return Proposal(**{**row, "state": ProposalState(row["state"])})


def _activation_of(row: Mapping[Any, Any]) -> Activation:
    return Activation(**{**row, "kind": ActivationKind(row["kind"])})
