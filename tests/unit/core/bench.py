"""A bridge on a bench: real ledger, admission, ticket desk, broker socket and runs; stand-ins only at its Protocols."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from bridge.active import ActivePolicy
from bridge.admission import Admission
from bridge.audit.log import Writer, verify
from bridge.broker.callers_desk import CallersDesk
from bridge.broker.client import BrokerClient
from bridge.broker.desk import Desk
from bridge.broker.people_desk import PeopleDesk
from bridge.broker.policy_desk import PolicyOps
from bridge.broker.runs_desk import RunOps
from bridge.broker.server import BrokerServer, listen
from bridge.buckets import TokenBuckets
from bridge.cluster.poller import Poller
from bridge.cluster.pool import LoginPool
from bridge.crew import Crew
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError
from bridge.folding import Folding
from bridge.model import Evidence, JobFacts, PosixAccount, UnverifiedToken
from bridge.nodeclaims import ClaimBook
from bridge.oidc.people import PeopleVerifier, Provider
from bridge.oidc.verifier import Audience, Verifier
from bridge.people.activating import ActivationDesk
from bridge.people.acts import Acts
from bridge.people.adopting import AdoptionDesk
from bridge.people.api_tokens import ApiTokens
from bridge.people.callers import Caller, Callers
from bridge.people.cancelling import CancelDesk
from bridge.people.consenting import ConsentDesk
from bridge.people.kill_switches import KillDesk
from bridge.people.linking import LinkDesk
from bridge.people.policies import PolicyDesk
from bridge.people.policy_acts import PolicyActs
from bridge.people.policy_reading import PolicyReading
from bridge.people.repeating import Repeats
from bridge.people.sessions import Sessions
from bridge.people.tokens import TokenSeal
from bridge.policy.bundle import parse_bundle
from bridge.policy.engine import Engine
from bridge.policy.files import read_files
from bridge.runs.live import Runs, Workshop
from bridge.runs.live_run import LiveRun
from bridge.runs.task import StageTask
from bridge.seal import GrantSeal, Seal
from bridge.sealed import RevisionMark, SealedRegister
from bridge.standing import RegisterCache
from bridge.ticketing import TicketDesk
from runner import wire
from tests.fakes import REALM, FakeAcceptor, FakeCluster, FakeDirectory, FakeImpersonator, FakeJobCheck, FakeSignIn
from tests.migrated import open_migrated

CHECKOUT = Path(__file__).parents[3]
POLICIES = CHECKOUT / "policies"
ISSUER = "https://gitlab.realm.test"
AUDIENCE = "https://bridge.realm.test"
KID = "key-1"
LONGEST_WAIT_SECONDS = 10.0
_CREWS = itertools.count(1)
PROVIDER = Provider("https://login.realm.test", "ci-bridge", "preferred_username", REALM, {}, 3600, owns_accounts=False)
"""Vouches for people, with the same key as the GitLab."""
PEOPLE = (
    PosixAccount("alice", 20001, 21001, ("chem",), "/home/alice", "/bin/bash"),
    PosixAccount("bob", 20002, 21002, ("bio",), "/home/bob", "/bin/bash"),
    PosixAccount("root", 0, 0, ("root",), "/root", "/bin/bash"),
)


def wait_until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for a condition, with a bound; returns what it gave."""
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.003)
    return found


class Clock:
    """The moment, which tests can move."""

    def __init__(self) -> None:
        self.shift = timedelta(0)

    def __call__(self) -> datetime:
        """Now, moved."""
        return datetime.now(UTC) + self.shift


@dataclass(frozen=True, slots=True)
class OneKey:
    """``oidc.verifier.KeySource`` with one key."""

    public: RSAPublicKey

    def key(self, issuer: str, kid: str) -> RSAPublicKey:
        """The key, whoever asks."""
        return self.public


class Broker:
    """The broker's parts, put together as ``broker.main`` does."""

    def __init__(self, database: str, key: RSAPrivateKey, state: Path) -> None:
        self.engine = open_migrated(database)
        self.ledger = SqlLedger(self.engine, Writer.new("broker@bench"))
        self.key = key
        self.clock = Clock()
        self.jobs, self.directory = FakeJobCheck(), FakeDirectory(*PEOPLE)
        self.impersonator, self.claims = FakeImpersonator(), ClaimBook()
        self.moment = 0.0
        """What counts how often somebody asks has a clock of its own, which stands still."""
        self.requests = TokenBuckets(2000, 20, clock=lambda: self.moment)
        seal, acceptor = Seal(b"s" * 32), FakeAcceptor()
        grant_seal = GrantSeal(seal)
        self.register = SealedRegister(self.ledger, seal, RevisionMark(state / "register-head"))
        self.policies = state / "policies"
        self._write(read_files(POLICIES))
        self.active = ActivePolicy(self.policies, self.register, self.ledger, self.clock)
        self.admission = Admission(
            verifier=Verifier([Audience(ISSUER, AUDIENCE, 6 * 3600)], OneKey(key.public_key())),
            jobs=self.jobs,
            policy=self.active,
            directory=self.directory,
            ledger=self.ledger,
            impersonator=self.impersonator,
            seal=grant_seal,
            register=self.register,
            clock=self.clock,
        )
        self.tickets = TicketDesk(
            self.ledger,
            self.impersonator,
            acceptor,
            self.active.clusters,
            grant_seal,
            self.register,
            self.clock,
            self.claims,
            self.requests,
            Folding(clock=lambda: self.moment),
        )
        acts, rules, issuers = Acts(self.ledger), self.active.account_rules, frozenset({ISSUER})
        self.sign_in = FakeSignIn(ISSUER)
        self.sessions = Sessions(self.register, acts, TokenSeal(seal), self.clock)
        self.tokens = ApiTokens(self.register, acts, self.ledger, self.clock)
        self.providers = PeopleVerifier([PROVIDER], OneKey(key.public_key()))
        self.people = PeopleDesk(
            callers=Callers(acceptor, REALM, self.active.roles, self.clock, self.tokens, self.sessions, self.providers),
            linking=LinkDesk(
                self.register, acts, rules, self.directory, {ISSUER: self.sign_in}, issuers, TokenSeal(seal), self.clock
            ),
            consenting=ConsentDesk(self.register, acts, rules, self.directory, issuers, self.clock),
            killing=KillDesk(self.register, acts, issuers, self.clock),
            adopting=AdoptionDesk(self.register, acts),
            acts=acts,
            repeats=Repeats(self.ledger),
        )
        policy_acts = PolicyActs(self.register, acts, self.active, self.clock)
        self.proposing, self.activating = PolicyDesk(policy_acts), ActivationDesk(policy_acts)
        self.reading = PolicyReading(self.active, self.register, self.ledger, self.directory, self.clock)
        self.policy_ops = PolicyOps(
            self.people.caller, self.proposing, self.activating, self.reading, Repeats(self.ledger)
        )
        self.run_ops = RunOps(self.people.caller, CancelDesk(acts, self.clock))

    @property
    def policy(self) -> Engine:
        """What decides now."""
        return self.active.now().engine

    def caller(self, principal: str) -> Caller:
        """Somebody who shows a ticket for what they are about to do."""
        return self.people.callers.by_negotiate(f"Negotiate {principal}", b"this")

    def use(self, **files: str) -> None:
        """Work with the shipped policies, in which the files named ``accounts`` and so on have these words added."""
        texts = dict(read_files(POLICIES))
        for name, text in files.items():
            texts[f"{name}.toml"] = texts.get(f"{name}.toml", "") + text
        self.use_texts(texts)

    def use_texts(self, texts: dict[str, str]) -> None:
        """Work with these policies, as the directory of the settings has them from now on."""
        parse_bundle(texts)
        self._write(texts)
        self.active.reload()

    def _write(self, texts: Mapping[str, str]) -> None:
        shutil.rmtree(self.policies, ignore_errors=True)
        for name, text in texts.items():
            path = self.policies / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def evidence(self, job_id: int = 301, user_id: int = 101, **changes: Any) -> Evidence:
        """What a runner presents for a job; ``claims`` changes those of its token."""
        claims = {**self.claims_of(job_id, user_id), **changes.pop("claims", {})}
        token = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": KID})
        members: dict[str, Any] = {
            "id_token": UnverifiedToken(token),
            "job_token": f"glcbt-{job_id}",
            "facts": JobFacts(job_id, 7, 31, user_id, "main", "0" * 40, "build", "test", "chem/water", 3600),
            "scheduler_parameters": "",
            "cluster": None,
        }
        return Evidence(**(members | changes))

    def claims_of(self, job_id: int, user_id: int) -> dict[str, Any]:
        """What GitLab writes for a push to main."""
        issued = int(self.clock().timestamp())
        return {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "s",
            "iat": issued,
            "nbf": issued - 5,
            "exp": issued + 3600,
            "jti": f"jti-{job_id:06}",
            "namespace_id": "5",
            "project_id": "7",
            "project_path": "chem/water",
            "job_project_id": "7",
            "user_id": str(user_id),
            "user_login": "somebody",
            "pipeline_id": "31",
            "pipeline_source": "push",
            "job_id": str(job_id),
            "ref": "main",
            "ref_type": "branch",
            "ref_protected": "true",
            "runner_id": 1,
            "runner_environment": "self-hosted",
            "sha": "0" * 40,
        }

    def records(self, **selection: Any) -> list[dict[str, Any]]:
        """The members of the audit log's records whose members are these; the log must be whole."""
        with self.ledger.read() as view:
            assert verify(view.entries, view.head()).ok
            found = [json.loads(entry.leaf) for entry in view.entries()]
        return [one for one in found if all(one.get(name) == value for name, value in selection.items())]

    @contextmanager
    def serving(self, socket_path: Path) -> Iterator[BrokerClient]:
        """Answer on a socket, as the broker's process does."""
        server = BrokerServer(
            listen(socket_path),
            frozenset({0}),
            {
                **Desk(self.admission, self.tickets).handlers(),
                **self.people.handlers(),
                **self.policy_ops.handlers(),
                **self.run_ops.handlers(),
                **CallersDesk(self.people.caller, self.sessions, self.tokens).handlers(),
            },
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield BrokerClient(socket_path, timeout_seconds=30)
        finally:
            server.stop()
            thread.join()


class Web:
    """One web process: its runs, its pool of connections to a pretended cluster, its poller."""

    def __init__(self, ledger: SqlLedger, client: BrokerClient, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.pool = LoginPool(cluster.connect)
        self.poller = Poller(fast_seconds=0.005, slow_seconds=0.01)
        self.poller.start()
        self.register = RegisterCache()
        # A stage rests at every chance, so that each test here is one of waking it too.
        self.crew = Crew(f"stage-{next(_CREWS)}", spare_seconds=0.05, rest_seconds=0.002)
        self.runs = Runs(
            Workshop(
                ledger,
                client,
                self.pool,
                self.poller,
                self.register,
                "/usr/lib/ci-bridge/ci-bridge-job",
                self.crew,
            )
        )

    def stop(self) -> None:
        """End as the application does."""
        self.runs.close()
        self.poller.stop(5.0)
        self.pool.close()

    def open(self, evidence: Evidence) -> LiveRun:
        """Admit a job, and show its session."""
        answer = self.runs.open(evidence)
        return self.runs.authenticate(answer["run_id"], answer["session"])


class Reader:
    """An executor that follows a stage: reads, acknowledges, and keeps what it got."""

    def __init__(self, task: StageTask | None = None, after: int = 0) -> None:
        self.task = task
        self.after = after
        self.log = bytearray()
        self.notes: list[str] = []
        self.last: dict[str, Any] | None = None

    def read(self) -> None:
        """Take what is there, once."""
        assert self.task is not None
        body, _ = self.task.feed.take(self.after)
        for header, data in wire.Decoder().feed(body):
            assert header["n"] > self.after
            self.after = header["n"]
            self.log += data
            if header["kind"] == "note":
                self.notes.append(header["text"])
            if header["kind"] == "end":
                self.last = header

    def has(self, size: int) -> bool:
        """Whether so many bytes of the log are here."""
        return len(self.log) >= size

    def until(self, condition: Callable[[], Any], what: str = "it") -> None:
        """Read until something is there."""
        wait_until(lambda: (self.read(), condition())[1], f"{what}; notes {self.notes}, log {bytes(self.log[-200:])!r}")

    def end(self) -> dict[str, Any]:
        """Read to the end frame, and return it."""
        self.until(lambda: self.last is not None, "the end")
        assert self.last is not None
        return self.last


def refused(action: Callable[[], Any]) -> BridgeError:
    """The error of ours that ``action`` raises."""
    try:
        action()
    except BridgeError as error:
        return error
    raise AssertionError("it was not refused")
