"""The admin API for tests: one person for each role, and two where two are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from bridge.policy.files import read_files
from tests.api.people_web import LINKS, Site, site
from tests.fakes import REALM
from tests.unit.core.bench import Broker

ADMIN = "/v1/admin"
PEOPLE = {
    "vic": ("viewer",),
    "ann": ("author",),
    "abe": ("approver",),
    "amy": ("author", "approver"),
    "oli": ("operator",),
    "ola": ("operator",),
    "aud": ("auditor",),
}
ROLES = "".join(
    f'\n[[member]]\nprincipal = "{who}@{REALM}"\nroles = {list(roles)}\n'.replace("'", '"')
    for who, roles in PEOPLE.items()
)
NOBODY = "alice"
"""Somebody of the realm who has no role."""


@contextmanager
def admin_site(broker: Broker, directory: Path, **web: Any) -> Iterator[Site]:
    """Serve people, of whom each role has its own."""
    with site(broker, directory, **web) as it:
        broker.use(accounts=LINKS, roles=ROLES)
        yield it


class Admin:
    """Calls below /v1/admin, as ``ci-bridge`` makes them."""

    def __init__(self, web: Site) -> None:
        self.web = web

    def get(self, who: str | None, path: str) -> httpx2.Response:
        """Read."""
        return self.web.api(who, "GET", ADMIN + path)

    def post(self, who: str | None, path: str, body: Any, **headers: str) -> httpx2.Response:
        """Change; ``headers`` with underscores for hyphens are added."""
        return self.web.api(who, "POST", ADMIN + path, body, **headers)

    def put(self, who: str | None, path: str, body: Any, **headers: str) -> httpx2.Response:
        """Replace."""
        return self.web.api(who, "PUT", ADMIN + path, body, **headers)

    def files(self, note: str = "", **more: str) -> dict[str, str]:
        """The bundle in force, with a comment that makes it another, and files replaced (dots as two underscores)."""
        files = dict(read_files(self.web.broker.policies))
        files["limits.toml"] += f"\n# {note}\n" if note else ""
        return files | {name.replace("__", "."): text for name, text in more.items()}

    def proposed(self, who: str = "ann", note: str = "other") -> dict[str, Any]:
        """Keep a draft; returns the proposal."""
        answer = self.post(who, "/proposals", {"title": f"a {note} bundle", "files": self.files(note)})
        assert answer.status_code == 201, answer.text
        return dict(answer.json()["proposal"])

    def step(self, who: str, proposal: dict[str, Any], verb: str, **body: Any) -> httpx2.Response:
        """Take a step with a proposal as it was read."""
        path = f"/proposals/{proposal['proposal_id']}/{verb}"
        return self.post(who, path, body, if_match=f'"{proposal["version"]}"')

    def stepped(self, who: str, proposal: dict[str, Any], verb: str, **body: Any) -> dict[str, Any]:
        """Take a step that works; returns what comes of it."""
        answer = self.step(who, proposal, verb, **body)
        assert answer.status_code == 200, answer.text
        return dict(next(iter(answer.json().values())))

    def approved(self, note: str = "other") -> dict[str, Any]:
        """A proposal by ann that abe approved."""
        proposal = self.stepped("ann", self.proposed(note=note), "submit")
        return self.stepped("abe", proposal, "approve", content_hash=proposal["content_hash"], reason="read it")

    def activated(self, note: str = "other") -> dict[str, Any]:
        """Another bundle in force; returns the activation."""
        return self.stepped("abe", self.approved(note), "activate", reason="as agreed")
