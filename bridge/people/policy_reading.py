"""What people read about policy: proposals, bundles, what was in force when, and what a bundle would do to live runs.

The broker answers, since it hashes a bundle again before anybody reads and approves it; for everybody with a role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime

from bridge.active import ActivePolicy, InForce
from bridge.audit.ledger import Ledger
from bridge.deciding import answered, asked
from bridge.errors import Defect, NotFound, Refused
from bridge.model import Run, SlurmRequest
from bridge.people.caller import Caller
from bridge.policy.directory import Directory
from bridge.policy.roles import Role
from bridge.proposals import NUMBER_OF_NONE, Activation, Proposal
from bridge.register import Register
from bridge.sealed import SealedRegister

Files = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """The bundle in force."""

    content_hash: str
    number: int
    """Of its activation; 0 where the directory of the settings is in force still."""
    emergency_until: datetime | None
    base_hash: str
    """Of the bundle that was approved last: what a proposal is put on top of, and whose roles count."""
    base_number: int


@dataclass(frozen=True, slots=True)
class Affected:
    """A live run that a bundle would not let in any more."""

    run_id: str
    issuer: str
    job_id: int
    user_id: int
    project_id: int
    account: str
    cluster: str
    created_at: datetime
    code: str
    title: str
    """What its person would be told."""


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """Every part is passed in."""

    active: ActivePolicy
    register: SealedRegister
    ledger: Ledger
    directory: Directory
    clock: Callable[[], datetime]

    def proposals(self, caller: Caller) -> tuple[Proposal, ...]:
        """All of them, newest first; raises PolicyRefused ``caller.role``."""
        _require_any(caller)
        return tuple(reversed(self.register.read().proposals))

    def proposal(self, caller: Caller, proposal_id: str) -> tuple[Proposal, Files]:
        """One, with its files; raises NotFound ``policy.unknown``."""
        _require_any(caller)
        found = self.register.read().proposal(proposal_id)
        if found is None:
            raise NotFound(
                "policy.unknown",
                "There is no such proposal.",
                "See 'ci-bridge policy proposals' for those there are.",
                proposal=proposal_id[:64],
            )
        return found, self._files(found.content_hash)

    def bundle(self, caller: Caller, content_hash: str) -> Files:
        """The files of a bundle; raises NotFound ``policy.no_bundle``."""
        _require_any(caller)
        return self._files(content_hash)

    def in_force(self, caller: Caller) -> tuple[Standing, Files]:
        """The bundle in force, with its files."""
        _require_any(caller)
        with self.ledger.read() as view:
            now, base = self.active.current(view), self.active.base(view)
            files = now.engine.bundle.files
        return Standing(now.content_hash, now.number, now.emergency_until, base.content_hash, base.number), files

    def history(self, caller: Caller) -> tuple[tuple[Activation, ...], int]:
        """Every activation, newest first, also those that nobody confirmed; and the number of the one in force."""
        _require_any(caller)
        with self.ledger.read() as view:
            return tuple(reversed(self.register.current(view).activations)), self.active.current(view).number

    def impact(self, caller: Caller, content_hash: str | None) -> tuple[str, tuple[Affected, ...]]:
        """The live runs that a bundle, or the one in force, would refuse now, and the hash of the bundle.

        What the register says of links counts as it is now; kill switches and consent are not asked, as they stop runs
        by themselves. Raises Outage ``directory.unreachable``.
        """
        _require_any(caller)
        with self.ledger.read() as view:
            policy = self.active.current(view)
            if content_hash is not None:
                policy = InForce(self.active.engine(view, content_hash), NUMBER_OF_NONE)
            runs, register = view.live_runs(), self.register.current(view)
        found = [one for run in runs if (one := self._refused(policy, register, run)) is not None]
        return policy.content_hash, tuple(found)

    def _refused(self, policy: InForce, register: Register, run: Run) -> Affected | None:
        grant = run.grant
        request = SlurmRequest(**asdict(grant.plan))
        try:
            cluster, at = grant.cluster.name, self.clock()
            now = answered(asked(policy, self.directory, register, grant.identity, cluster, request, at)).grant
        except (Refused, Defect) as error:
            return _affected(run, error.code, error.title)
        if now.account.name != grant.account.name:
            return _affected(run, "account.conflict", f"The person's account would be {now.account.name}.")
        return None

    def _files(self, content_hash: str) -> Files:
        with self.ledger.read() as view:
            return self.active.files(view, content_hash)


def _affected(run: Run, code: str, title: str) -> Affected:
    who = run.grant.identity
    return Affected(
        run_id=run.run_id,
        issuer=who.issuer,
        job_id=who.job_id,
        user_id=who.user_id,
        project_id=who.project_id,
        account=run.grant.account.name,
        cluster=run.grant.cluster.name,
        created_at=run.created_at,
        code=code,
        title=title,
    )


def _require_any(caller: Caller) -> None:
    caller.require(*Role)
