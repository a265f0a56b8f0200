"""Puts changes of an issuer's keys on record: who could sign tokens, and since when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from bridge.audit.ledger import Ledger
from bridge.audit.record import Phase, Record, RecordType
from bridge.errors import BridgeError
from bridge.references import new_reference

log = structlog.get_logger()


class RecordedKeyEvents:
    """``oidc.issuers.KeyEvents`` that writes to the audit log, and to the service's log as well."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """Record the new set, one record for each key, all under one reference."""
        log.info("issuer.keys_changed", issuer=issuer, kids=sorted(thumbprints))
        details = [{"issuer": issuer, "kid": kid, "thumbprint": value} for kid, value in sorted(thumbprints.items())]
        self._append(Phase.EVENT, details or [{"issuer": issuer, "kid": "none"}])

    def failed(self, issuer: str, reason: str) -> None:
        """Record that a set could not be fetched or trusted."""
        log.error("issuer.keys_failed", issuer=issuer, reason=reason)
        self._append(Phase.FAILED, [{"issuer": issuer, "reason": reason}])

    def _append(self, phase: Phase, details: Sequence[Mapping[str, str]]) -> None:
        reference = new_reference()
        try:
            with self._ledger.begin() as tx:
                for detail in details:
                    tx.append(Record(RecordType.KEYS, phase, reference, detail=detail))
        except BridgeError as error:
            # No admission passes without its own record, so an unrecorded key can't admit anybody.
            log.warning("issuer.keys_unrecorded", reference=reference, code=error.code, context=dict(error.context))
