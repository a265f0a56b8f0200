"""Puts the broker together and runs it: the only process that reads the keytabs."""

from __future__ import annotations

import os
import pwd
import signal
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import structlog

from bridge.admission import Admission
from bridge.audit.log import Writer
from bridge.broker.desk import Desk
from bridge.broker.keyevents import RecordedKeyEvents
from bridge.broker.people_desk import PeopleDesk
from bridge.broker.server import BrokerServer, Handler
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.errors import BridgeError
from bridge.kerberos.impersonation import Impersonation
from bridge.kerberos.negotiate import Acceptor
from bridge.model import Cluster
from bridge.oidc.fetch import DiscoveryFetcher
from bridge.oidc.gitlab import GitLabJobCheck, JobChecks
from bridge.oidc.issuers import IssuerKeys, Issuers, KeysOfIssuer
from bridge.oidc.keyfile import FileKeys
from bridge.oidc.oauth import OAuthClient
from bridge.oidc.verifier import Audience, Verifier
from bridge.people.acts import Acts
from bridge.people.adopting import AdoptionDesk
from bridge.people.callers import Callers
from bridge.people.consenting import ConsentDesk
from bridge.people.kill_switches import KillDesk
from bridge.people.linking import LinkDesk
from bridge.people.tokens import TokenSeal
from bridge.policy.accounts import AccountRules
from bridge.policy.bundle import load_bundle
from bridge.policy.directory import NssDirectory
from bridge.policy.engine import Engine
from bridge.policy.roles import Roles
from bridge.seal import GrantSeal, Seal, load_or_make_key
from bridge.sealed import RevisionMark, SealedRegister
from bridge.settings import Issuer, Settings
from bridge.ticketing import ClaimBook, TicketDesk

log = structlog.get_logger()


def serve(settings: Settings, listener: socket.socket) -> None:
    """Answer web until SIGTERM. SIGHUP reads the policies again; a bad set changes nothing."""
    os.umask(0o007)
    policies = PolicyHolder(settings.policies)
    server = BrokerServer(listener, _allowed_uids(settings.broker.web_user), _handlers(settings, policies))

    def on_signal(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            policies.reload()
        else:
            server.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    log.info("broker.ready", bundle=policies.engine().bundle.content_hash)
    server.serve_forever()


class PolicyHolder:
    """The bundle that is active: the last one that could be loaded."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._engine = Engine(load_bundle(directory))

    def engine(self) -> Engine:
        """Return the engine of the active bundle."""
        return self._engine

    def clusters(self) -> tuple[Cluster, ...]:
        """Return the clusters of the active bundle."""
        return tuple(self._engine.bundle.clusters.by_name.values())

    def account_rules(self) -> AccountRules:
        """Return the rules about accounts of the active bundle."""
        return self._engine.bundle.accounts

    def roles(self) -> Roles:
        """Return who may do what, by the active bundle."""
        return self._engine.bundle.roles

    def reload(self) -> None:
        """Load the directory again; keeps the old bundle where that fails."""
        try:
            self._engine = Engine(load_bundle(self._directory))
            log.info("policy.reloaded", bundle=self._engine.bundle.content_hash)
        except BridgeError as error:
            log.warning("policy.kept", code=error.code, title=error.title)


def _handlers(settings: Settings, policies: PolicyHolder) -> Mapping[str, Handler]:
    """Put every part together, once."""
    broker = settings.broker
    ledger = SqlLedger(open_database(settings.database.url), Writer.new(f"broker@{socket.gethostname()}"))
    seal = Seal(load_or_make_key(broker.seal_key))
    register = SealedRegister(ledger, seal, RevisionMark(broker.seal_key.with_name("register-head")))
    acceptor = Acceptor(
        f"{broker.http_service}@{broker.realm}",
        str(broker.http_keytab),
        str(broker.private_directory / "http.rcache"),
    )
    desk = _desk(settings, policies, ledger, GrantSeal(seal), register, acceptor)
    people = _people(settings, policies, ledger, seal, register, acceptor)
    return {**desk.handlers(), **people.handlers()}


def _desk(
    settings: Settings,
    policies: PolicyHolder,
    ledger: SqlLedger,
    seal: GrantSeal,
    register: SealedRegister,
    acceptor: Acceptor,
) -> Desk:
    broker = settings.broker
    impersonator = Impersonation(
        f"{broker.principal}@{broker.realm}", str(broker.keytab), broker.realm, _targets(policies.clusters())
    )
    admission = Admission(
        verifier=_verifier(settings, ledger),
        jobs=JobChecks({issuer.url: GitLabJobCheck(issuer.url, issuer.ca_file) for issuer in settings.issuers}),
        engine=policies.engine,
        directory=NssDirectory(),
        ledger=ledger,
        impersonator=impersonator,
        seal=seal,
        register=register,
        clock=_now,
        job_token_issuers={
            issuer.url: issuer.max_life_seconds for issuer in settings.issuers if issuer.job_token_evidence
        },
    )
    tickets = TicketDesk(ledger, impersonator, acceptor, policies.clusters, seal, register, _now, ClaimBook())
    return Desk(admission, tickets)


def _people(
    settings: Settings,
    policies: PolicyHolder,
    ledger: SqlLedger,
    seal: Seal,
    register: SealedRegister,
    acceptor: Acceptor,
) -> PeopleDesk:
    acts, directory = Acts(ledger), NssDirectory()
    issuers = frozenset(issuer.url for issuer in settings.issuers)
    return PeopleDesk(
        callers=Callers(acceptor, settings.broker.realm, policies.roles),
        linking=LinkDesk(
            register, acts, policies.account_rules, directory, _sign_in(settings), issuers, TokenSeal(seal), _now
        ),
        consenting=ConsentDesk(register, acts, policies.account_rules, directory, issuers, _now),
        killing=KillDesk(register, acts, issuers, _now),
        adopting=AdoptionDesk(register, acts),
    )


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


def _targets(clusters: tuple[Cluster, ...]) -> frozenset[str]:
    """Every target of every cluster: the broker asks the KDC for no other, whatever policy says later."""
    return frozenset(
        target
        for cluster in clusters
        for target in (f"host/{cluster.login_host}", *cluster.login_targets, *cluster.node_targets)
    )


def _allowed_uids(web_user: str) -> frozenset[int]:
    return frozenset({0, pwd.getpwnam(web_user).pw_uid})


def _now() -> datetime:
    return datetime.now(UTC)
