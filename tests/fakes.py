"""Stand-ins at the bridge's own Protocols, one for each: what they are asked is kept, and they fail when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from bridge.cluster.node import Exit, Hello, JobRow, Submitted, Workspace, nobody
from bridge.errors import BridgeError, Outage, PolicyRefused, RequestRefused, TokenRefused
from bridge.kerberos import ccache
from bridge.kerberos.bundle import verify_bundle
from bridge.kerberos.ccache import Credential, Principal
from bridge.kerberos.negotiate import Negotiated
from bridge.model import JobFacts, PosixAccount, SignedClaims, TicketBundle
from bridge.oidc.gitlab import LiveJob

REALM = "REALM.TEST"
LONGEST_WAIT_SECONDS = 10.0


def make_bundle(account: str, targets: Sequence[str], life: timedelta) -> TicketBundle:
    """A bundle with well-formed tickets whose cipher text no KDC has made."""
    client, now = Principal.of(f"{account}@{REALM}"), datetime.now(UTC)
    servers = [f"{target}@{REALM}" for target in targets]
    entries = tuple(_entry(client, Principal.of(server), now, now + life) for server in servers)
    data = ccache.write(client, entries)
    return verify_bundle(data, str(client), servers, now + life + timedelta(seconds=1))


def _entry(client: Principal, server: Principal, start: datetime, end: datetime) -> Credential:
    moments = (int(start.timestamp()), int(start.timestamp()), int(end.timestamp()), 0)
    return Credential(client, server, 18, b"k" * 32, *moments, False, 0x40000000, (), (), _ticket(server), b"")


def _ticket(server: Principal) -> bytes:
    """RFC 4120 section 5.3, DER."""
    names = _der(0x30, b"".join(_der(0x1B, part) for part in server.components))
    name = _der(0x30, _der(0xA0, _der(0x02, b"\x01")) + _der(0xA1, names))
    sealed = _der(0x30, _der(0xA0, _der(0x02, b"\x12")) + _der(0xA2, _der(0x04, b"cipher of " + str(server).encode())))
    parts = (_der(0x02, b"\x05"), _der(0x1B, server.realm), name, sealed)
    return _der(0x61, _der(0x30, b"".join(_der(0xA0 | number, part) for number, part in enumerate(parts))))


def _der(tag: int, content: bytes) -> bytes:
    size = bytes((len(content),)) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    if 0x80 <= len(content) < 0x100:
        size = bytes((0x81, len(content)))
    return bytes((tag,)) + size + content


class FakeImpersonator:
    """``kerberos.impersonation.Impersonator``: makes bundles without a KDC."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...], int]] = []
        self.uids: list[int] = []
        self.error: BridgeError | None = None
        self.before: Callable[[], None] = lambda: None
        """Called at each request, before anything is made."""
        self.life: timedelta | None = None

    def tickets(self, account: str, uid: int, targets: Sequence[str], lifetime_seconds: int) -> TicketBundle:
        """See Impersonator."""
        self.asked.append((account, tuple(targets), lifetime_seconds))
        self.uids.append(uid)
        self.before()
        if self.error is not None:
            raise self.error
        return make_bundle(account, targets, self.life or timedelta(seconds=lifetime_seconds))


class FakeGuard:
    """``kerberos.guard.Guard``: every account is ordinary, until ``error`` says otherwise."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: BridgeError | None = None

    def require_ordinary(self, account: str, uid: int) -> None:
        """See Guard."""
        self.asked.append(account)
        if self.error is not None:
            raise self.error


class FakeJobCheck:
    """``oidc.gitlab.JobCheck``: every job runs, until ``error`` says otherwise."""

    def __init__(self) -> None:
        self.error: BridgeError | None = None
        self.asked: list[str] = []
        self.says: dict[str, Any] = {}

    def alive(self, claims: SignedClaims, job_token: str, facts: JobFacts) -> LiveJob:
        """See JobCheck."""
        live = self.introspect(claims["iss"], job_token, facts)
        return replace(live, user_id=int(claims["user_id"]), project_id=int(claims["job_project_id"]))

    def introspect(self, issuer: str, job_token: str, facts: JobFacts) -> LiveJob:
        """See JobCheck; a runner's word is GitLab's, plus ``says``."""
        self.asked.append(job_token)
        if self.error is not None:
            raise self.error
        live = LiveJob(
            job_id=facts.job_id,
            user_id=facts.user_id or 101,
            project_id=facts.project_id,
            pipeline_id=facts.pipeline_id,
            ref=facts.ref,
            sha=facts.sha,
            name=facts.job_name,
            stage=facts.stage,
            runner_id=1,
            source="push",
            tag=False,
            user_login="somebody",
            web_url=f"{issuer}/{facts.project_path}/-/jobs/{facts.job_id}",
        )
        return replace(live, **self.says)


class FakeDirectory:
    """``policy.directory.Directory`` over a dictionary."""

    def __init__(self, *accounts: PosixAccount) -> None:
        self.accounts = {account.name: account for account in accounts}
        self.error: BridgeError | None = None

    def lookup(self, name: str) -> PosixAccount:
        """See Directory."""
        if self.error is not None:
            raise self.error
        if name not in self.accounts:
            raise PolicyRefused("account.unknown", "There is no such account.", "Ask.", account=name)
        return self.accounts[name]


class FakeAcceptor:
    """``ticketing.NegotiateAcceptor``: the token is the principal's name in clear, made for whatever is asked of it.

    With ``#`` behind the name it is made for the binding whose hex follows, or for none where nothing does.
    """

    def __init__(self) -> None:
        self.bindings: list[bytes | None] = []

    def accept_header(self, value: str, binding: bytes | None = None, *, demanded: bool = True) -> Negotiated:
        """See NegotiateAcceptor."""
        self.bindings.append(binding)
        scheme, _, principal = value.partition(" ")
        if scheme != "Negotiate" or "@" not in principal:
            raise TokenRefused("negotiate.refused", "The request does not prove who sent it.", "Send a token.")
        name, given, made_for = principal.partition("#")
        bound = binding is not None and (not given or made_for == binding.hex())
        if binding is not None and not bound and (made_for or demanded):
            raise PolicyRefused("negotiate.unbound", "The token was made for something else.", "Make another.")
        return Negotiated(name, b"reply to " + name.encode(), bound)


class FakeSignIn:
    """``people.linking.SignIn``: a code is the number and the login of who signed in, for one verifier."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.challenges: list[str] = []
        self.used: set[str] = set()

    def authorization_url(self, state: str, code_challenge: str) -> str:
        """See SignIn."""
        self.challenges.append(code_challenge)
        return f"{self.issuer}/oauth/authorize?state={state}&code_challenge={code_challenge}"

    def challenge(self, verifier: str) -> str:
        """See SignIn."""
        return f"challenge-of-{verifier}"

    def person(self, code: str, verifier: str) -> FakePerson:
        """See SignIn; a code is used once, with the verifier of a challenge that was sent."""
        number, _, login = code.partition(":")
        if code in self.used or self.challenge(verifier) not in self.challenges:
            raise TokenRefused("oauth.refused", "GitLab does not take this sign-in.", "Begin again.")
        self.used.add(code)
        return FakePerson(int(number), login)


@dataclass(frozen=True, slots=True)
class FakePerson:
    """``people.linking.Person``."""

    user_id: int
    login: str


def connection_lost() -> Outage:
    """What every verb raises once the connection is gone."""
    return Outage("login.connection_lost", "The connection to the login node was lost.", "Retry the job.")


@dataclass(slots=True)
class FakeJob:
    """A job in the pretended queue."""

    job_id: int
    name: str
    argv: tuple[str, ...]
    state: str = "PENDING"
    held: bool = True
    exit_code: int | None = None
    signal: int | None = None
    nodes: str = ""
    reason: str = "JobHeldUser"

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("PENDING", "RUNNING", "COMPLETING")


@dataclass(slots=True)
class FakeScript:
    """What a script on the login node does: its output, then it waits for ``gate``, then its end."""

    output: tuple[bytes, ...] = (b"hello\n",)
    exit: Exit = field(default_factory=lambda: Exit(0, None))
    gate: threading.Event | None = None


@dataclass(slots=True)
class Fault:
    """The next call of a verb fails: before it did anything, or after it did it all (a lost reply)."""

    verb: str
    error: BridgeError
    after: bool


class FakeCluster:
    """A login node and its Slurm, shared by all connections to it; tests play the part of slurmctld."""

    def __init__(self, user: str = "alice", uid: int = 20001) -> None:
        self.user, self.uid = user, uid
        self.changed = threading.Condition()
        self.ready: list[Callable[[], None]] = []
        """Of all files that are followed."""
        self.jobs: dict[int, FakeJob] = {}
        self.files: dict[str, bytearray] = {}
        self.calls: list[tuple[str, object]] = []
        self.scripts: list[FakeScript] = []
        self.nodes: list[FakeLoginNode] = []
        self.environments: list[dict[str, str]] = []
        """Of the scripts that were run."""
        self.login_until: datetime | None = None
        """How long the person's own login in the cache's place is good."""
        self.away: BridgeError | None = None
        """Raised by every new connection."""
        self.stalled = False
        """Whether what is written to a log is seen only when its reading is to finish."""
        self.on_release: Callable[[int], None] = lambda job_id: None
        self.on_submit: Callable[[FakeJob], None] = lambda job: None
        self._faults: list[Fault] = []
        self._next_id = 4711

    def connect(self, *_: object) -> FakeLoginNode:
        """Make a connection; ``pool.Connect``."""
        if self.away is not None:
            raise self.away
        node = FakeLoginNode(self)
        self.nodes.append(node)
        return node

    def cut(self) -> None:
        """Lose every connection."""
        with self.changed:
            for node in self.nodes:
                node.alive = False
            self.tell()

    def tell(self) -> None:
        """Have everybody look who waits for something; called with ``changed`` held."""
        self.changed.notify_all()
        for ready in self.ready:
            ready()

    def fail(self, verb: str, error: BridgeError, *, after: bool = False) -> None:
        """Have the next call of ``verb`` fail."""
        self._faults.append(Fault(verb, error, after))

    def fault(self, verb: str, *, after: bool) -> None:
        """Raise what was planned for this moment."""
        for planned in self._faults:
            if planned.verb == verb and planned.after == after:
                self._faults.remove(planned)
                raise planned.error

    def called(self, verb: str) -> list[object]:
        """The arguments of all calls of a verb."""
        return [argument for name, argument in self.calls if name == verb]

    def add(self, name: str, argv: Sequence[str] = (), **changes: object) -> FakeJob:
        """Put a job into the queue."""
        with self.changed:
            job = replace(FakeJob(self._next_id, name, tuple(argv)), **changes)  # type: ignore[arg-type]
            self._next_id += 1
            self.jobs[job.job_id] = job
            self.tell()
            return job

    def wait_job(self, state: str = "PENDING", *, held: bool = False) -> FakeJob:
        """Wait for a job that is in this state."""
        with self.changed:
            found = self.changed.wait_for(
                lambda: next((job for job in self.jobs.values() if job.state == state and job.held == held), None),
                LONGEST_WAIT_SECONDS,
            )
        assert found is not None, f"no job is {state}: {self.jobs}"
        return found

    def update(self, job_id: int, **changes: object) -> None:
        """Change a job as slurmctld would."""
        with self.changed:
            for name, value in changes.items():
                setattr(self.jobs[job_id], name, value)
            self.tell()

    def run(self, job_id: int, nodes: str = "node1") -> None:
        """Start a job."""
        self.update(job_id, state="RUNNING", nodes=nodes, reason="None")

    def end(self, job_id: int, state: str = "COMPLETED", exit_code: int | None = 0, signal: int | None = None) -> None:
        """End a job."""
        self.update(job_id, state=state, exit_code=exit_code, signal=signal, held=False, reason="None")

    def write(self, job_id: int, data: bytes) -> None:
        """Have the job write to its log."""
        path = next(word.partition("=")[2] for word in self.jobs[job_id].argv if word.startswith("--output="))
        with self.changed:
            self.files.setdefault(path, bytearray()).extend(data)
            self.tell()


class FakeLoginNode:
    """``cluster.pool.Session``: one connection to a FakeCluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.alive = True
        self.pending = 0

    def close(self) -> None:
        """See Session."""
        with self._cluster.changed:
            self.alive = False
            self._cluster.tell()

    def hello(self) -> Hello:
        """See LoginNode."""
        self._do("hello", None)
        return Hello(self._cluster.user, self._cluster.uid, 21001, "login.realm.test", f"/home/{self._cluster.user}")

    def workspace(self, run: str, builds_root: str, cache_root: str) -> Workspace:
        """See LoginNode."""
        self._do("workspace", run)
        home = f"{builds_root}/{self._cluster.user}/{run}"
        return Workspace(f"{home}/builds", f"{cache_root}/{self._cluster.user}", f"{home}/private")

    def put_tickets(self, ccache: str, data: bytes) -> datetime | None:
        """See LoginNode."""
        self._do("put_tickets", ccache)
        if self._cluster.login_until is None:
            self._cluster.files[ccache] = bytearray(data)
        return self._cluster.login_until

    def drop_tickets(self, ccache: str) -> bool:
        """See LoginNode."""
        self._do("drop_tickets", ccache)
        return self._cluster.files.pop(ccache, None) is not None

    def run(self, script: bytes, *, env: Mapping[str, str], cwd: str | None = None) -> FakeRunning:
        """See LoginNode."""
        self._do("run", script)
        self._cluster.environments.append(dict(env))
        return FakeRunning(self._cluster, self, self._cluster.scripts.pop(0))

    def put(self, path: str, data: bytes, mode: int) -> None:
        """See LoginNode."""
        self._do("put", path)
        self._cluster.files[path] = bytearray(data)

    def submit(self, argv: Sequence[str]) -> Submitted:
        """See LoginNode."""
        self._do("submit", tuple(argv))
        name = next(word.partition("=")[2] for word in argv if word.startswith("--job-name="))
        assert "--hold" in argv
        assert "--dependency=singleton" in argv
        job = self._cluster.add(name, argv)
        self._cluster.on_submit(job)
        self._cluster.fault("submit", after=True)
        return Submitted(job.job_id, None)

    def release(self, job_id: int) -> None:
        """See LoginNode."""
        self._do("release", job_id)
        self._cluster.on_release(job_id)
        job = self._cluster.jobs[job_id]
        if job.over:
            raise RequestRefused("slurm.refused", "Slurm refused.", "Correct it.", detail="Job already completed")
        self._cluster.update(job_id, held=False, reason="Priority")
        self._cluster.fault("release", after=True)

    def cancel(self, job_id: int, signal: str | None = None) -> None:
        """See LoginNode."""
        self._do("cancel", job_id)
        if not self._cluster.jobs[job_id].over:
            self._cluster.end(job_id, "CANCELLED by 20001", None, 15)

    def find(self, name: str) -> tuple[JobRow, ...]:
        """See LoginNode."""
        self._do("find", name)
        return tuple(_row(job) for job in list(self._cluster.jobs.values()) if job.name == name)

    def state(self, job_ids: Sequence[int]) -> tuple[JobRow, ...]:
        """See LoginNode."""
        self._do("state", tuple(job_ids))
        return tuple(_row(self._cluster.jobs[job_id]) for job_id in job_ids if job_id in self._cluster.jobs)

    def follow(self, path: str, offset: int, ready: Callable[[], None] = nobody) -> FakeFollowing:
        """See LoginNode."""
        self._do("follow", (path, offset))
        return FakeFollowing(self._cluster, self, path, offset, ready)

    def destroy(self, run: str, builds_root: str, ccache: str | None) -> bool:
        """See LoginNode."""
        self._do("destroy", (run, ccache))
        for path in [path for path in self._cluster.files if f"/{run}/" in path or path == ccache]:
            del self._cluster.files[path]
        return ccache is not None and self._cluster.login_until is not None

    def _do(self, verb: str, argument: object) -> None:
        if not self.alive:
            raise connection_lost()
        self._cluster.calls.append((verb, argument))
        self._cluster.fault(verb, after=False)


def _row(job: FakeJob) -> JobRow:
    return JobRow(job.job_id, job.state, job.exit_code, job.signal, job.nodes, job.reason, "2026-11-20T12:00:00")


@dataclass(slots=True)
class FakeRunning:
    """``cluster.node.Running``."""

    cluster: FakeCluster
    node: FakeLoginNode
    script: FakeScript
    stopped: threading.Event = field(default_factory=threading.Event)

    def __iter__(self) -> Iterator[bytes]:
        yield from self.script.output
        gate = self.script.gate
        while gate is not None and not (gate.is_set() or self.stopped.is_set()):
            if not self.node.alive:
                raise connection_lost()
            gate.wait(0.005)

    @property
    def exit(self) -> Exit:
        """See Running."""
        return Exit(None, 15) if self.stopped.is_set() else self.script.exit

    def stop(self, grace_seconds: float) -> None:
        """See Running."""
        if not self.node.alive:
            raise connection_lost()
        self.stopped.set()


class FakeFollowing:
    """``cluster.node.Following``, in small pieces."""

    def __init__(
        self, cluster: FakeCluster, node: FakeLoginNode, path: str, offset: int, ready: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._path = path
        self._offset = offset
        self._finishing = False
        self._abandoned = False
        with cluster.changed:
            cluster.ready.append(ready)
        ready()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self._pieces(None)

    def waiting(self, seconds: float) -> Iterator[tuple[int, bytes]]:
        """See Following."""
        return self._pieces(seconds)

    def _pieces(self, seconds: float | None) -> Iterator[tuple[int, bytes]]:
        while True:
            with self._cluster.changed:
                if not self._cluster.changed.wait_for(self._something, seconds) or self._abandoned:
                    return
                self._cluster.fault("follow.read", after=False)
                if self._finishing:
                    self._cluster.fault("follow.drain", after=False)
                if not self._node.alive:
                    raise connection_lost()
                piece = bytes(self._cluster.files.get(self._path, b"")[self._offset : self._offset + 64 * 1024])
            if not piece:
                return
            yield self._offset, piece
            self._offset += len(piece)

    def _something(self) -> bool:
        unread = len(self._cluster.files.get(self._path, b"")) > self._offset and not self._cluster.stalled
        return unread or self._finishing or self._abandoned or not self._node.alive

    def finish(self) -> None:
        """See Following."""
        self._set("_finishing")

    def abandon(self) -> None:
        """See Following."""
        self._set("_abandoned")

    def _set(self, name: str) -> None:
        with self._cluster.changed:
            setattr(self, name, True)
            self._cluster.tell()
