"""The composition root of web: every part is made here, once, and handed down."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from anyio import CapacityLimiter
from fastapi import FastAPI

from bridge.api import consent, executor, health, kills, links, node, openapi, people, problems
from bridge.api.admin import access, activations, advice, audit, bundles, decisions, proposals, runs, site
from bridge.api.bounds import BodyLimit, KnownHost
from bridge.api.callers import PEOPLE_AT_ONCE, Counter
from bridge.api.guards import guarded
from bridge.api.headers import SafeHeaders
from bridge.api.threads import Threads
from bridge.audit.ledger import Ledger
from bridge.audit.log import Writer
from bridge.broker.client import BrokerClient
from bridge.cluster.opening import LoginOpener
from bridge.cluster.poller import Poller
from bridge.cluster.pool import LoginPool
from bridge.cluster.ssh import HostKeys
from bridge.cluster.sweeping import Sweeper
from bridge.db.engine import open_database
from bridge.db.ledger import SqlLedger
from bridge.kerberos.holding import hold
from bridge.oidc.gitlab import GitLabJobCheck
from bridge.runs.killing import KillWatch
from bridge.runs.live import Runs, Workshop
from bridge.runs.login_refresh import LoginRefresh
from bridge.runs.nodes import NodeDesk
from bridge.runs.reaping import Reaper
from bridge.runs.stopping import Stopper
from bridge.runs.watch import JobWatch
from bridge.settings import Settings
from bridge.standing import RegisterCache
from bridge.web import account, linking, style
from bridge.web.pages import Pages, origin

ROUTERS: Final = (
    executor.router,
    node.router,
    health.router,
    people.router,
    links.router,
    consent.router,
    kills.router,
    openapi.router,
    site.router,
    access.router,
    bundles.router,
    proposals.router,
    activations.router,
    runs.router,
    decisions.router,
    audit.router,
)
PAGES: Final = (account.router, linking.router, style.router)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes work with."""

    runs: Runs
    nodes: NodeDesk
    pool: LoginPool
    poller: Poller
    sweeper: Sweeper
    kills: KillWatch
    jobs: JobWatch
    reaper: Reaper
    refresh: LoginRefresh
    broker: BrokerClient
    ledger: Ledger


def make_parts(settings: Settings) -> Parts:
    """Make every part of web; nothing is connected or started yet."""
    ledger = SqlLedger(open_database(settings.database.url), Writer.new(f"web@{socket.gethostname()}"))
    broker = BrokerClient(settings.broker.socket)
    keys = HostKeys(settings.web.known_hosts)
    pool = LoginPool(LoginOpener(hold, keys))
    poller = Poller()
    register = RegisterCache()
    runs = Runs(Workshop(ledger, broker, pool, poller, register, settings.web.job_wrapper))
    stopper = Stopper(runs)
    kills = KillWatch(ledger, register, runs, stopper)
    checks = {issuer.url: GitLabJobCheck(issuer.url, issuer.ca_file) for issuer in settings.issuers}
    jobs = _job_watch(settings, runs, stopper, checks)
    reaper = Reaper(ledger, runs, stopper, checks, silence_seconds=settings.web.executor_silence_seconds)
    refresh = LoginRefresh(runs)
    return Parts(
        runs, NodeDesk(runs, broker), pool, poller, Sweeper(pool), kills, jobs, reaper, refresh, broker, ledger
    )


def _job_watch(settings: Settings, runs: Runs, stopper: Stopper, checks: dict[str, GitLabJobCheck]) -> JobWatch:
    return JobWatch(
        runs,
        stopper,
        checks,
        every_seconds=settings.web.job_watch_seconds,
        silence_seconds=settings.web.gitlab_silence_seconds,
    )


def make_app(settings: Settings, parts: Parts) -> FastAPI:
    """Return the ASGI application; its parts are started and stopped with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        parts.poller.start()
        parts.sweeper.start()
        parts.kills.start()
        parts.jobs.start()
        parts.reaper.start()
        parts.refresh.start()
        yield
        parts.refresh.stop()
        parts.reaper.stop()
        parts.jobs.stop()
        parts.kills.stop()
        parts.runs.close()
        parts.sweeper.stop()
        parts.poller.stop(5.0)
        parts.pool.close()

    app = FastAPI(
        title="CI bridge",
        version="1",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.runs = parts.runs
    app.state.nodes = parts.nodes
    app.state.threads = Threads()
    app.state.counter = Counter(parts.broker, parts.ledger, CapacityLimiter(PEOPLE_AT_ONCE))
    app.state.advice = CapacityLimiter(advice.AT_ONCE)
    app.state.origin = None
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(KnownHost, hosts=settings.web.public_hosts)
    app.add_middleware(SafeHeaders)
    for router in ROUTERS:
        app.include_router(guarded(router))
    app.state.openapi = openapi.document(ROUTERS)
    if settings.web.url is not None:
        _add_pages(app, settings, settings.web.url)
    return app


def _add_pages(app: FastAPI, settings: Settings, url: str) -> None:
    """Pages are for people who reach us by ``url``; without it, no form could show that it is ours."""
    app.state.origin = origin(url)
    app.state.pages = Pages(settings)
    for router in PAGES:
        app.include_router(guarded(router))
