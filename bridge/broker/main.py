"""Puts the broker together and runs it: the only process that reads the keytabs."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType

import structlog

from bridge.active import ActivePolicy
from bridge.admission import Admission
from bridge.audit.log import Writer
from bridge.broker.callers_desk import CallersDesk
from bridge.broker.desk import Desk
from bridge.broker.kerberos_side import bounded, exchange_of, guard_of, ping_of, self_test_of
from bridge.broker.keyevents import RecordedKeyEvents
from bridge.broker.listed import ListedTargets
from bridge.broker.people_desk import PeopleDesk
from bridge.broker.people_issuers import people_verifier
from bridge.broker.policy_desk import PolicyOps
from bridge.broker.runs_desk import RunOps
from bridge.broker.server import BrokerServer, Handler
from bridge.buckets import TokenBuckets
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError
from bridge.kerberos.exchange import Exchange
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.negotiate import Acceptor
from bridge.nodeclaims import ClaimBook
from bridge.oidc.fetch import DiscoveryFetcher
from bridge.oidc.gitlab import GitLabJobCheck, JobChecks
from bridge.oidc.issuers import IssuerKeys, Issuers, KeysOfIssuer
from bridge.oidc.keyfile import FileKeys
from bridge.oidc.oauth import OAuthClient
from bridge.oidc.verifier import Audience, Verifier
from bridge.people.activating import ActivationDesk
from bridge.people.acts import Acts
from bridge.people.adopting import AdoptionDesk
from bridge.people.api_tokens import ApiTokens
from bridge.people.callers import Callers
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
from bridge.policy.directory import NssDirectory
from bridge.seal import GrantSeal, Seal, load_or_make_key
from bridge.sealed import RevisionMark, SealedRegister
from bridge.settings import Issuer, Settings
from bridge.ticketing import TicketDesk

log = structlog.get_logger()


def serve(settings: Settings, listener: socket.socket) -> None:
    """Answer web until SIGTERM. SIGHUP reads the policies again, where a bad set changes nothing, and asks the KDC."""
    os.umask(0o007)
    book = _book(settings)
    policies = ActivePolicy(settings.policies, book.register, book.ledger, _now)
    exchange = exchange_of(settings.broker)
    self_test = self_test_of(settings.broker, exchange, policies, book.ledger)
    handlers = {**bounded(_handlers(settings, book, policies, exchange), self_test), "ping": ping_of(self_test)}
    server = BrokerServer(listener, _allowed_uids(settings.broker.web_user), handlers)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            policies.reload()
            self_test.look_again()
        else:
            server.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    threading.Thread(target=self_test.keep, name="self-test", daemon=True).start()
    log.info("broker.ready", bundle=_bundle_at_start(policies))
    server.serve_forever()


@dataclass(frozen=True, slots=True)
class _Book:
    """The book, and the key under which the broker believes what is in it."""

    ledger: SqlLedger
    seal: Seal
    register: SealedRegister


def _book(settings: Settings) -> _Book:
    ledger = SqlLedger(open_database(settings.database.url), Writer.new(f"broker@{socket.gethostname()}"))
    seal = Seal(load_or_make_key(settings.broker.seal_key))
    mark = RevisionMark(settings.broker.seal_key.with_name("register-head"))
    return _Book(ledger, seal, SealedRegister(ledger, seal, mark))


def _bundle_at_start(policies: ActivePolicy) -> str:
    """For the log; a database that does not answer yet is no reason not to start."""
    try:
        return policies.now().content_hash
    except BridgeError as error:
        log.warning("policy.unknown_yet", code=error.code, title=error.title)
        return "unknown"


def _handlers(settings: Settings, book: _Book, policies: ActivePolicy, exchange: Exchange) -> Mapping[str, Handler]:
    """Put every part together, once."""
    broker = settings.broker
    acceptor = Acceptor(
        f"{broker.http_service}@{broker.realm}",
        str(broker.http_keytab),
        str(broker.private_directory / "http.rcache"),
    )
    sessions = Sessions(book.register, Acts(book.ledger), TokenSeal(book.seal), _now)
    tokens = ApiTokens(book.register, Acts(book.ledger), book.ledger, _now)
    verifier = people_verifier(settings.people_issuers, RecordedKeyEvents(book.ledger))
    callers = Callers(acceptor, broker.realm, policies.roles, _now, tokens, sessions, verifier)
    people = _people(settings, policies, book, callers)
    return {
        **_desk(settings, policies, book, acceptor, exchange).handlers(),
        **people.handlers(),
        **_policy_desk(policies, book, people).handlers(),
        **CallersDesk(people.caller, sessions, tokens).handlers(),
        **RunOps(people.caller, CancelDesk(Acts(book.ledger), _now)).handlers(),
    }


def _desk(settings: Settings, policies: ActivePolicy, book: _Book, acceptor: Acceptor, exchange: Exchange) -> Desk:
    broker, seal = settings.broker, GrantSeal(book.seal)
    listed = ListedTargets(policies.clusters, book.ledger, seal, _now)
    impersonator = Impersonation(exchange, broker.realm, listed, guard_of(broker))
    admission = Admission(
        verifier=_verifier(settings, book.ledger),
        jobs=JobChecks({issuer.url: GitLabJobCheck(issuer.url, issuer.ca_file) for issuer in settings.issuers}),
        policy=policies,
        directory=NssDirectory(),
        ledger=book.ledger,
        impersonator=impersonator,
        seal=seal,
        register=book.register,
        clock=_now,
        job_token_issuers={
            issuer.url: issuer.max_life_seconds for issuer in settings.issuers if issuer.job_token_evidence
        },
    )
    tickets = TicketDesk(
        ledger=book.ledger,
        impersonator=impersonator,
        acceptor=acceptor,
        clusters=policies.clusters,
        seal=seal,
        register=book.register,
        clock=_now,
        claims=ClaimBook(broker.node_claims_at_once),
        requests=TokenBuckets(broker.node_requests_burst, broker.node_requests_per_minute / 60),
    )
    return Desk(admission, tickets)


def _people(settings: Settings, policies: ActivePolicy, book: _Book, callers: Callers) -> PeopleDesk:
    acts, directory = Acts(book.ledger), NssDirectory()
    issuers = frozenset(issuer.url for issuer in settings.issuers)
    return PeopleDesk(
        callers=callers,
        linking=LinkDesk(
            book.register,
            acts,
            policies.account_rules,
            directory,
            _sign_in(settings),
            issuers,
            TokenSeal(book.seal),
            _now,
        ),
        consenting=ConsentDesk(book.register, acts, policies.account_rules, directory, issuers, _now),
        killing=KillDesk(book.register, acts, issuers, _now),
        adopting=AdoptionDesk(book.register, acts),
        acts=acts,
        repeats=Repeats(book.ledger),
    )


def _policy_desk(policies: ActivePolicy, book: _Book, people: PeopleDesk) -> PolicyOps:
    acts = PolicyActs(book.register, Acts(book.ledger), policies, _now)
    reading = PolicyReading(policies, book.register, book.ledger, NssDirectory(), _now)
    return PolicyOps(people.caller, PolicyDesk(acts), ActivationDesk(acts), reading, Repeats(book.ledger))


def _sign_in(settings: Settings) -> Mapping[str, OAuthClient]:
    return {
        issuer.url: OAuthClient(
            issuer.url,
            issuer.oauth_client_id,
            issuer.oauth_client_secret_file.read_text("ascii").strip() if issuer.oauth_client_secret_file else None,
            f"{settings.web.url}/link/callback",
            issuer.ca_file,
        )
        for issuer in settings.issuers
        if issuer.oauth_client_id is not None
    }


def _verifier(settings: Settings, ledger: SqlLedger) -> Verifier:
    events = RecordedKeyEvents(ledger)
    keys = {issuer.url: _keys(issuer, events) for issuer in settings.issuers}
    audiences = [Audience(issuer.url, issuer.audience, issuer.max_life_seconds) for issuer in settings.issuers]
    return Verifier(audiences, Issuers(keys))


def _keys(issuer: Issuer, events: RecordedKeyEvents) -> KeysOfIssuer:
    if issuer.jwks_file is not None:
        return FileKeys(issuer.url, issuer.jwks_file, events)
    return IssuerKeys(issuer.url, DiscoveryFetcher(issuer.url, issuer.ca_file), events)


def _allowed_uids(web_user: str) -> frozenset[int]:
    return frozenset({0, pwd.getpwnam(web_user).pw_uid})


def _now() -> datetime:
    return datetime.now(UTC)
