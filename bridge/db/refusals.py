"""The errors that the database's repositories raise, each with its sentence."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from bridge.errors import BridgeError, Conflict, Defect, NotFound, Outage
from bridge.model import RunId
from bridge.register import Link

_AGAIN = "Run the job again in a few minutes; administrators: check the bridge's database."
_TELL = "Give the reference to the administrators of the bridge."
_LOCKED = ("database is locked", "lock timeout", "QueuePool limit")


def run_unknown(run_id: RunId) -> NotFound:
    """``run.unknown``"""
    return NotFound("run.unknown", "There is no such run.", "Start the job again from GitLab.", run_id=run_id)


def run_state(run_id: RunId, state: str, wanted: Iterable[str]) -> Conflict:
    """``run.state``"""
    return Conflict(
        "run.state",
        f"The run is {state} already.",
        "Start the job again from GitLab.",
        run_id=run_id,
        wanted=tuple(wanted),
    )


def stage_unknown(run_id: RunId, invocation: str) -> NotFound:
    """``stage.unknown``"""
    return NotFound(
        "stage.unknown",
        "There is no such stage in this run.",
        "Start the job again from GitLab.",
        run_id=run_id,
        invocation=invocation,
    )


def stage_state(run_id: RunId, invocation: str, state: str, wanted: Iterable[str]) -> Conflict:
    """``stage.state``"""
    return Conflict(
        "stage.state",
        f"The stage is {state} already.",
        "Start the job again from GitLab.",
        run_id=run_id,
        invocation=invocation,
        wanted=tuple(wanted),
    )


def invocation_taken(run_id: RunId, invocation: str) -> Conflict:
    """``stage.invocation``"""
    return Conflict(
        "stage.invocation",
        "This invocation belongs to another stage of the run.",
        "Use a new invocation id for each stage.",
        run_id=run_id,
        invocation=invocation,
    )


def not_ours(cluster: str, slurm_job_id: int) -> NotFound:
    """``node.not_ours``"""
    return NotFound(
        "node.not_ours",
        "The bridge did not submit this Slurm job.",
        "Nothing is to be done: jobs of others get no tickets from the bridge.",
        cluster=cluster,
        slurm_job_id=slurm_job_id,
    )


def switch_unknown(switch_id: str) -> NotFound:
    """``kill.unknown``"""
    return NotFound(
        "kill.unknown",
        "There is no such kill switch.",
        "See 'ci-bridge kill list' for the ids of those in force.",
        switch=switch_id,
    )


def switch_lifted(switch_id: str) -> Conflict:
    """``kill.lifted``"""
    return Conflict(
        "kill.lifted",
        "This kill switch has been lifted already.",
        "See 'ci-bridge kill list' for those in force.",
        switch=switch_id,
    )


def link_taken(link: Link) -> Conflict:
    """``link.taken``"""
    return Conflict(
        "link.taken",
        "This GitLab user is linked to an account already.",
        "End the other link first, or ask the administrators to.",
        issuer=link.issuer,
        user_id=link.user_id,
    )


def no_bundle(content_hash: str) -> NotFound:
    """``policy.no_bundle``"""
    return NotFound(
        "policy.no_bundle",
        "The bridge has no policy bundle of this hash.",
        "See 'ci-bridge policy proposals' and 'ci-bridge policy history' for those that it has.",
        content_hash=content_hash[:64],
    )


def bundle_unreadable(error: Exception) -> Defect:
    """``policy.content``, for a text that is no bundle's"""
    return Defect(
        "policy.content",
        "The files that the database has of a policy bundle are not those of its hash.",
        "Stop the bridge and look for who changed the database; then report the reference.",
        kind=type(error).__name__,
    )


def not_next(revision: int) -> Defect:
    """``db.integrity``, for a head of the register that does not follow the one that is there"""
    return Defect("db.integrity", "The bridge's database refused a change.", _TELL, kind="revision", revision=revision)


def register_unsealed() -> Defect:
    """``register.unsealed``"""
    return Defect(
        "register.unsealed", "A change of the register was about to be stored without the broker's seal.", _TELL
    )


def register_unreadable(error: Exception) -> Defect:
    """``register.broken``, for rows that are none"""
    return Defect(
        "register.broken",
        "What the database says of links, consents, kill switches and policy is not what the broker has sealed.",
        "Stop the bridge and look for who changed the database; then report the reference.",
        kind=type(error).__name__,
    )


def busy() -> Outage:
    """``db.busy``"""
    return Outage("db.busy", "The bridge's database is busy.", _AGAIN)


def of_database(error: SQLAlchemyError) -> BridgeError:
    """What an error of the database is for the caller: an outage, or a rule of ours that was broken.

    The driver's text goes to neither: it may hold values.
    """
    kind = type(getattr(error, "orig", None) or error).__name__
    if isinstance(error, IntegrityError):
        return Defect("db.integrity", "The bridge's database refused a change.", _TELL, kind=kind)
    if isinstance(error, OperationalError) and any(text in str(error.orig) for text in _LOCKED):
        return busy()
    return Outage("db.unavailable", "The bridge's database can not be used at the moment.", _AGAIN, kind=kind)
