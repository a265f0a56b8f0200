"""The values that flow through the bridge, one type for each level of trust.

UnverifiedToken -> SignedClaims -> Identity -> Grant -> TicketBundle -> Run. A function that needs something verified
takes the verified type; nothing goes back down.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NewType

UnverifiedToken = NewType("UnverifiedToken", str)
"""An id_token as the executor sent it: text from a stranger."""

SignedClaims = NewType("SignedClaims", Mapping[str, Any])
"""Claims whose signature, issuer, audience and times were checked; only ``oidc.verifier`` makes them."""

RunId = NewType("RunId", str)
"""One GitLab job's passage through the bridge: 26 lower-case letters and digits, safe in names and paths."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What GitLab Runner's JOB_RESPONSE_FILE says of the job, less every secret in it.

    Sent by the executor; trusted only where it agrees with the token and with GitLab (facts of T31).
    """

    job_id: int
    project_id: int
    pipeline_id: int
    user_id: int | None
    """``job_info.user_id``; absent from the payload of some GitLab versions."""
    ref: str
    sha: str
    job_name: str
    stage: str
    project_path: str
    timeout_seconds: int
    server_url: str | None = None
    """GitLab as the runner clones from it; None where the payload does not say. Chooses whom to ask, proves nothing."""


class EvidenceLevel(enum.StrEnum):
    """How a job was shown to be what it says."""

    SIGNED = "id_token"
    """GitLab signed who and what the job is, and its API confirms that the job runs."""
    INTROSPECTED = "job_token"
    """Only GitLab's API says so, to whoever has the job token; what it does not say is unknown."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a runner presents to have a job admitted."""

    id_token: UnverifiedToken | None = field(repr=False)
    """None where the project has no ``id_tokens:`` block."""
    job_token: str = field(repr=False)
    """CI_JOB_TOKEN: shows that the job is alive; who the person is only where policy takes that for enough."""
    facts: JobFacts
    scheduler_parameters: str
    """SCHEDULER_PARAMETERS as the project wrote it: data from a stranger."""
    cluster: str | None
    """The cluster that the runner's configuration names; None takes the bundle's default."""

    @property
    def level(self) -> EvidenceLevel:
        """What is presented, before anything of it is checked."""
        return EvidenceLevel.INTROSPECTED if self.id_token is None else EvidenceLevel.SIGNED


@dataclass(frozen=True, slots=True)
class ExternalIdentity:
    """A person's login at an LDAP, SAML or other provider, as GitLab knows it."""

    provider: str
    """GitLab's name of it, e.g. ``ldapmain``."""
    extern_uid: str


@dataclass(frozen=True, slots=True)
class Identity:
    """A verified GitLab person in a verified, live job. Ids decide; names are for people to read.

    What is None was not proven, which is never the same as "no".
    """

    evidence: EvidenceLevel
    issuer: str
    user_id: int
    user_login: str
    project_id: int
    """Whose code it is; the fork, in a merge request from a fork."""
    project_path: str | None
    job_project_id: int
    """The project that really runs the job."""
    namespace_id: int | None
    pipeline_id: int
    pipeline_source: str
    job_id: int
    job_name: str
    ref: str
    ref_type: str
    ref_protected: bool
    """False also where nobody has proven it."""
    sha: str
    runner_id: int
    runner_environment: str | None
    environment: str | None
    jti: str
    """Of the id_token; ``job:<id>`` where there is none."""
    token_expires_at: datetime
    job_timeout_seconds: int
    ref_path: str | None = None
    user_access_level: str | None = None
    ci_config_ref_uri: str | None = None
    """``gitlab.example/group/project//.gitlab-ci.yml@refs/heads/main``: the file that defined the pipeline."""
    ci_config_sha: str | None = None
    environment_protected: bool | None = None
    deployment_tier: str | None = None
    user_identities: tuple[ExternalIdentity, ...] | None = None
    groups: tuple[str, ...] | None = None
    """Full paths of the groups that the person is directly a member of."""


@dataclass(frozen=True, slots=True)
class PosixAccount:
    """An account on the cluster as the directory describes it at this moment."""

    name: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    """Names of all groups, primary first."""
    home: str
    shell: str


@dataclass(frozen=True, slots=True)
class SlurmRequest:
    """What a job asks of Slurm, parsed from SCHEDULER_PARAMETERS; None means not asked for."""

    partition: str | None = None
    qos: str | None = None
    slurm_account: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    memory_mib: int | None = None
    """Memory per node."""
    time_minutes: int | None = None
    constraint: str | None = None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class SlurmPlan:
    """What the job gets from Slurm after limits: every field that matters is settled."""

    partition: str
    nodes: int
    time_minutes: int
    qos: str | None = None
    slurm_account: str | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    memory_mib: int | None = None
    constraint: str | None = None
    exclusive: bool = False


class Flavor(enum.StrEnum):
    """How Lustre protects what it sends, weakest first (Lustre manual, "Secure RPC Flavors")."""

    NULL = "null"
    """Nothing is proven."""
    KRB5N = "krb5n"
    """Who the user is; nothing else."""
    KRB5A = "krb5a"
    """And that headers were not changed."""
    KRB5I = "krb5i"
    """And that data was not changed."""
    KRB5P = "krb5p"
    """And nobody reads it on the way."""

    @property
    def strength(self) -> int:
        """Greater is stronger."""
        return tuple(Flavor).index(self)


@dataclass(frozen=True, slots=True)
class Mount:
    """A Lustre file system as nodes of a cluster have it mounted, and the flavors that it must have there."""

    name: str
    """By which ``limits.toml`` names it."""
    fsname: str
    nids: tuple[str, ...]
    """Of the MGS, e.g. ``10.0.0.1@tcp``; failover partners after another."""
    subdirectory: str
    """What of the file system is mounted; ``/`` is all of it."""
    mountpoint: str
    mdt_flavor: Flavor
    """From client to metadata targets (direction ``cli2mdt``)."""
    ost_flavor: Flavor
    """From client to object targets (direction ``cli2ost``)."""
    project_id: int | None = None
    """Lustre's number of the project whose quota and directory it is."""


class OnExcess(enum.StrEnum):
    """What happens to a job that asks for more than a limit."""

    REFUSE = "refuse"
    CLAMP = "clamp"
    """It gets the limit, and its log says so."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as ``clusters.toml`` describes it."""

    name: str
    realm: str
    """Kerberos realm of the accounts, e.g. REALM.TEST."""
    login_host: str
    """Fully qualified; also the host part of ``host/<login>@REALM``."""
    login_port: int
    login_targets: tuple[str, ...]
    """Service principals without realm that a run may reach from the login node, e.g. ``lustre_mds/mds1.example``."""
    node_targets: tuple[str, ...]
    """Service principals without realm that a Slurm job may reach from a compute node."""
    builds_root: str
    """Directory shared between login and compute nodes; the run's builds_dir is below it."""
    cache_root: str
    node_ccache: str
    """Where the mount helper looks for tickets on a node: ``FILE:/tmp/krb5cc_%{uid}``."""
    login_ccache: str
    nodes: tuple[str, ...]
    """Fully qualified names of the hosts that may ask for tickets of jobs that run on them."""
    mounts: tuple[Mount, ...] = ()
    """What nodes have mounted; in a grant only what the run may rely on."""
    login_hosts: tuple[str, ...] = ()
    """Further login nodes, to be tried in this order where ``login_host`` can't be used."""

    @property
    def login_names(self) -> tuple[str, ...]:
        """Every login node, in the order in which they are tried."""
        return tuple(dict.fromkeys((self.login_host, *self.login_hosts)))

    @property
    def ssh_targets(self) -> tuple[str, ...]:
        """Service principals without realm of every login node's SSH server."""
        return tuple(f"host/{name}" for name in self.login_names)


@dataclass(frozen=True, slots=True)
class Limits:
    """One named envelope of ``limits.toml``, or the intersection of several."""

    names: tuple[str, ...]
    partitions: tuple[str, ...]
    """Allowed partitions; the first is the default."""
    qos: tuple[str, ...]
    slurm_accounts: tuple[str, ...]
    max_nodes: int
    max_tasks: int
    max_cpus_per_task: int
    max_gpus: int
    max_memory_mib: int
    max_time_minutes: int
    default_time_minutes: int
    ticket_minutes: int
    """Life of every ticket that the run gets."""
    job_token_on_nodes: bool
    """Whether CI_JOB_TOKEN stays in scripts that run on compute nodes."""
    targets: tuple[str, ...] | None = None
    """Of the cluster's ticket targets those that tickets may name; None: all of them."""
    mounts: tuple[str, ...] | None = None
    """Of the cluster's mounts those that the run relies on; None: all of them."""
    mdt_flavor: Flavor = Flavor.NULL
    """The weakest that a mount of the run may have to its metadata targets."""
    ost_flavor: Flavor = Flavor.NULL
    evidence: EvidenceLevel = EvidenceLevel.INTROSPECTED
    """The weakest that a job may show; ``id_token`` refuses a job token alone."""
    on_excess: OnExcess = OnExcess.REFUSE
    """What happens to a job that asks for more of a number."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A decision for: this identity may run as this account, within these limits."""

    identity: Identity
    account: PosixAccount
    cluster: Cluster
    plan: SlurmPlan
    limits: Limits
    policy_ids: tuple[str, ...]
    """``@id`` of each policy that determined the decision."""
    bundle_hash: str
    """Hex SHA-256 of the policy bundle that was asked."""
    reason: str
    """One line for the job log: why this person runs as this account."""
    link_id: str | None = None
    """The register's link by which the person has the account; None where a row of ``accounts.toml`` says so."""
    notes: tuple[str, ...] = ()
    """Lines for the job log: what the job gets less of than it asked for."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """One service ticket in a ticket bundle, without its secrets."""

    client: str
    """``alice@REALM``"""
    server: str
    """``host/login.example@REALM``"""
    start: datetime
    end: datetime
    ticket_id: str
    """Upper-case hex SHA-256 of the ticket's cipher text: the id in MIT's KDC audit (kdc_audit.c, kau_make_tkt_id)."""


@dataclass(frozen=True, slots=True)
class TicketBundle:
    """A stripped ccache (file format version 4): tickets of one account for listed services, and nothing else."""

    principal: str
    tickets: tuple[Ticket, ...]
    ccache: bytes = field(repr=False)

    @property
    def end(self) -> datetime:
        """The moment at which the first of its tickets ends."""
        return min(ticket.end for ticket in self.tickets)


class RunState(enum.StrEnum):
    """``ADMITTED -> PREPARED -> ENDED``; ENDED is final, and reached from anywhere."""

    ADMITTED = "admitted"
    PREPARED = "prepared"
    ENDED = "ended"


class StageKind(enum.StrEnum):
    """Where a stage runs."""

    LOGIN = "login"
    SLURM = "slurm"


class StageState(enum.StrEnum):
    """A Slurm stage: ``INTENDED -> HELD -> RELEASED -> PENDING <-> RUNNING -> ENDED | CANCELLED | LOST``.

    A login stage: ``INTENDED -> RUNNING -> ENDED | CANCELLED | LOST``. The transitions are in ``bridge.lifecycle``.
    """

    INTENDED = "intended"
    HELD = "held"
    RELEASED = "released"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Run:
    """One GitLab job's passage through the bridge, as recorded."""

    run_id: RunId
    grant: Grant
    state: RunState
    attempt: int
    created_at: datetime
    not_after: datetime
    """After this no ticket is given for the run any more: admission plus the job's timeout."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One ``run_exec`` of a run, as recorded."""

    run_id: RunId
    invocation: str
    """Made by the executor, one for each call; makes a repeated request harmless."""
    name: str
    kind: StageKind
    state: StageState
    slurm_job_id: int | None
    slurm_name: str
    """``ci-<run>-<stage>``: unique, so that a lost reply of sbatch can be made good."""
    exit_code: int | None
    node: str | None


class KillScope(enum.StrEnum):
    """What a kill switch stops."""

    USER = "user"
    """A GitLab person: issuer and number."""
    ACCOUNT = "account"
    """A posix account, on every cluster."""
    PROJECT = "project"
    """A GitLab project, as the one whose pipeline it is or whose runner runs the job: issuer and number."""
    RUNNER = "runner"
    """A GitLab Runner: issuer and number."""
    ISSUER = "issuer"
    """Everybody from one GitLab."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class KillSwitch:
    """Nothing that it matches is admitted, starts a stage or gets a ticket, and what runs is ended, until it is lifted.

    ``audit.kills`` throws and lifts them.
    """

    switch_id: str
    """Also the reference of its audit records: ``7F3K-9QXM-2DTB``."""
    scope: KillScope
    issuer: str | None
    number: int | None
    """GitLab's id of the user, project or runner."""
    account: str | None
    reason: str
    """For administrators; the people it stops never see it."""
    actor: str
    created_at: datetime
    lifted_at: datetime | None = None
    lifted_by: str | None = None
