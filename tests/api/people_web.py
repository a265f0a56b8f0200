"""Web with people in front of it, and a real broker behind its socket; stand-ins only at the broker's Protocols."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from starlette.testclient import TestClient

from bridge.api.app import Parts, make_app
from bridge.broker.client import BrokerClient
from bridge.cluster.poller import Poller
from bridge.cluster.pool import LoginPool
from bridge.cluster.sweeping import Sweeper
from bridge.model import PosixAccount
from bridge.runs.killing import KillWatch
from bridge.runs.live import Runs, Workshop
from bridge.runs.login_refresh import LoginRefresh
from bridge.runs.nodes import NodeDesk
from bridge.runs.reaping import Reaper
from bridge.runs.stopping import Stopper
from bridge.runs.watch import JobWatch
from bridge.settings import Settings, parse
from bridge.standing import RegisterCache
from tests.fakes import REALM, FakeCluster
from tests.unit.core.bench import AUDIENCE, ISSUER, Broker

URL = "https://bridge.realm.test:8443"
CLIENT = {"X-CI-Bridge-Client": "ci-bridge/test", "Content-Type": "application/json"}
FORM = "application/x-www-form-urlencoded"
MALLORY = PosixAccount("mallory", 20003, 21001, ("chem",), "/home/mallory", "/bin/bash")
LINKS = "\n[links]\nself_service = true\nadmin = true\n"
ROLES = "".join(
    f'\n[[member]]\nprincipal = "{who}@{REALM}"\nroles = {roles}\n'
    for who, roles in {
        "ann": '["author", "approver"]',
        "abe": '["author", "approver"]',
        "vic": '["viewer"]',
        "oli": '["operator"]',
    }.items()
)


def settings(**web: Any) -> Settings:
    """A whole settings file, checked."""
    document = {
        "policies": "/etc/ci-bridge/policies",
        "issuers": [{"url": ISSUER, "audience": AUDIENCE, "oauth_client_id": "ci-bridge"}],
        "broker": {
            "principal": "ci-bridge/bridge.realm.test",
            "realm": REALM,
            "http_service": "HTTP/bridge.realm.test",
        },
        "web": {"public_hosts": ["bridge.realm.test"], "url": URL} | web,
    }
    return parse(document, Path("bridge.toml"))


class Watched(BrokerClient):
    """A client that remembers what it asked."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, timeout_seconds=30)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def ask(self, op: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """See BrokerClient."""
        with self._lock:
            self.asked.append((op, fields))
        return super().ask(op, **fields)


def make_parts(broker: Broker, client: BrokerClient) -> Parts:
    """As ``api.app.make_parts``, with a pretended cluster."""
    ledger, cluster, register = broker.ledger, FakeCluster(), RegisterCache()
    pool, poller = LoginPool(cluster.connect), Poller(fast_seconds=0.005, slow_seconds=0.01)
    runs = Runs(Workshop(ledger, client, pool, poller, register, "/usr/lib/ci-bridge/ci-bridge-job"))
    stopper = Stopper(runs)
    kills = KillWatch(ledger, register, runs, stopper, every_seconds=60)
    jobs = JobWatch(runs, stopper, {}, every_seconds=60)
    reaper = Reaper(ledger, runs, stopper, {}, silence_seconds=0)
    refresh = LoginRefresh(runs, every_seconds=60)
    return Parts(
        runs, NodeDesk(runs, client), pool, poller, Sweeper(pool), kills, jobs, reaper, refresh, client, ledger
    )


class Site:
    """The application, and everybody who uses it."""

    def __init__(self, broker: Broker, client: Watched, http: TestClient) -> None:
        self.broker = broker
        self.client = client
        self.http = http

    def api(self, who: str | None, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        """Call the API as ``ci-bridge`` does; ``headers`` with underscores for hyphens are added."""
        given = ticket(who) | (CLIENT if body is not None else {}) | named(headers)
        return self.http.request(method, path, json=body, headers=given)

    def page(self, who: str | None, path: str) -> httpx2.Response:
        """Open a page, from wherever."""
        return self.http.get(path, headers=ticket(who))

    def post(self, who: str | None, path: str, fields: dict[str, str] | bytes, **headers: str) -> httpx2.Response:
        """Send a form of ours, as a browser does."""
        given = ticket(who) | {"Origin": URL, "Sec-Fetch-Site": "same-origin", "Content-Type": FORM} | named(headers)
        content = {"content": fields} if isinstance(fields, bytes) else {"data": fields}
        return self.http.post(path, headers=given, **content)  # type: ignore[arg-type]

    def state(self, who: str) -> str:
        """Begin to link at GitLab; returns the state that comes back from there."""
        answer = self.post(who, "/link/start", {"issuer": ISSUER})
        assert answer.status_code == 303, answer.text
        return parse_qs(urlsplit(answer.headers["location"]).query)["state"][0]

    def back(self, who: str, state: str, code: str) -> httpx2.Response:
        """Come back from GitLab."""
        return self.http.get("/link/callback", params={"state": state, "code": code}, headers=ticket(who))

    def linked(self, who: str, code: str) -> str:
        """Link oneself; returns the link's id."""
        fields = only_form(self.back(who, self.state(who), code).text)
        assert self.post(who, "/link/confirm", fields).status_code == 303
        found = self.api(who, "GET", "/v1/links").json()["links"]
        return str(found[-1]["link_id"])


def ticket(who: str | None) -> dict[str, str]:
    """What the stand-in acceptor takes for a person's token."""
    return {} if who is None else {"Authorization": f"Negotiate {who}@{REALM}"}


def named(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments as names of headers."""
    return {name.replace("_", "-").title(): value for name, value in headers.items()}


@contextmanager
def site(broker: Broker, directory: Path, **web: Any) -> Iterator[Site]:
    """Serve people until the end of the block."""
    broker.directory.accounts["mallory"] = MALLORY
    broker.use(accounts=LINKS, roles=ROLES)
    with broker.serving(directory / "b.sock"):
        client = Watched(directory / "b.sock")
        app = make_app(settings(**web), make_parts(broker, client))
        with TestClient(app, base_url=URL, raise_server_exceptions=False, follow_redirects=False) as http:
            yield Site(broker, client, http)


class Forms(HTMLParser):
    """The forms of a page by their action, and the tags that it has."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes.update(values)
        if tag == "form":
            self.forms.append((values["action"], {}))
        elif tag == "input" and self.forms:
            self.forms[-1][1][values["name"]] = values.get("value", "")


def only_form(html: str) -> dict[str, str]:
    """The fields of a page that has one form."""
    ((_, fields),) = Forms(html).forms
    return fields


def anonymous(text: str) -> str:
    """An answer without its reference."""
    return re.sub(r"[0-9A-Z]{4}-[0-9A-Z]{4}-[0-9A-Z]{4}", "REF", text)


def refused(answer: httpx2.Response, status: int, code: str) -> None:
    """Check that an answer of the API or a page says no, by this code."""
    assert answer.status_code == status, (answer.status_code, answer.text)
    if answer.headers["content-type"] == "application/problem+json":
        assert answer.json()["code"] == code
    else:
        assert f"Code {code}," in answer.text
