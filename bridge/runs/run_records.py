"""How the preparation and the end of a run look in the audit log."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from bridge.audit.record import Actor, Phase, Record, RecordType
from bridge.errors import BridgeError
from bridge.model import Run
from bridge.records import target_of
from bridge.references import new_reference


def run_record(run: Run, phase: Phase, detail: dict[str, str | int | bool]) -> Record:
    """Return the record of a step of the run, with a reference of its own."""
    return Record(
        type=RecordType.RUN,
        phase=phase,
        reference=new_reference(),
        run_id=run.run_id,
        actor=Actor.of(run.grant.identity),
        target=target_of(run.grant),
        detail=detail,
    )


def login_left_record(run: Run, host: str, until: datetime) -> Record:
    """Return the record of a person's own login that was found where the run's tickets go on a login node, and left."""
    return run_record(run, Phase.EVENT, {"login_node": host, "own_login_until": f"{until:%Y-%m-%dT%H:%M:%SZ}"})


def stop_record(run: Run, phase: Phase, why: BridgeError, detail: dict[str, str | int | bool]) -> Record:
    """Return the record of an end that the executor did not ask for, with the id of the kill switch if there is one."""
    switch: dict[str, str | int | bool] = {"switch": str(why.context["switch"])} if "switch" in why.context else {}
    reference = why.reference or new_reference()
    return replace(run_record(run, phase, detail | switch), reference=reference, code=why.code)
