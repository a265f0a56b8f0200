"""A person at host `desk`: with their own Kerberos tickets, and curl for a browser or a program."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from realm import Realm, tls
from realm.bridgehost import COMMAND, URL
from realm.gitlab.client import GitLabControl

_WRITTEN = "\n%{http_code} %{redirect_url}"


@dataclass(frozen=True)
class Answer:
    """What came back: the status, where it sends the browser, and the body."""

    status: int
    location: str
    text: str

    @property
    def json(self) -> Any:
        """The body of an API's answer."""
        return json.loads(self.text)

    @property
    def code(self) -> str:
        """The code of an answer that says no, as a problem document or a page has it."""
        found = re.search(r"Code ([a-z_.]+),", self.text) or re.search(r'"code":\s*"([a-z_.]+)"', self.text)
        return found[1] if found else ""


class AtDesk:
    """Somebody who has run kinit."""

    def __init__(self, realm: Realm, gitlab: GitLabControl, name: str) -> None:
        self.name = name
        self._realm = realm
        self._gitlab = gitlab
        realm.host("desk").run(["kinit", "-k", "-t", realm.user_keytab(name), name], user=name)

    def get(self, path: str) -> Answer:
        """Open a page, or ask the API."""
        return self._curl(path if path.startswith("https:") else f"{URL}{path}")

    def form(self, path: str, **fields: str) -> Answer:
        """Send a form of the bridge's pages, as a browser does."""
        body = [word for name, value in fields.items() for word in ("--data-urlencode", f"{name}={value}")]
        return self._curl(
            f"{URL}{path}", "--header", f"Origin: {URL}", "--header", "Sec-Fetch-Site: same-origin", *body
        )

    def call(self, path: str, **body: Any) -> Answer:
        """Change something by the API."""
        return self._curl(f"{URL}{path}", "--header", "X-CI-Bridge-Client: test", "--json", json.dumps(body))

    def command(self, *words: str) -> str:
        """Run `ci-bridge`; its standard output."""
        host = self._realm.host("desk")
        host.write("/etc/ci-bridge/client.toml", f'server = "{URL}"\nca_file = "{tls.CA_PATH}"\n')
        return host.run([*COMMAND, *words], user=self.name).stdout.decode()

    def start(self) -> str:
        """Begin to link; GitLab's address, to which the bridge sends the browser."""
        answer = self.form("/link/start", issuer="https://gitlab.realm.test")
        assert answer.status == 303, answer.text
        return answer.location

    def callback(self, user: str) -> str:
        """Begin to link, and sign in to GitLab as `user`; where GitLab sends the browser."""
        return self._gitlab.authorize(self.start(), user)

    def link(self, user: str) -> Answer:
        """Link `user` of GitLab by both proofs; the answer to the confirmation."""
        return self.form("/link/confirm", confirmation=confirmation(self.get(self.callback(user))))

    def links(self) -> list[dict[str, Any]]:
        """The links in force that this person may see."""
        found: list[dict[str, Any]] = self.get("/v1/links").json["links"]
        return [one for one in found if one["state"] == "active"]

    def _curl(self, url: str, *options: str) -> Answer:
        argv = ["curl", "--silent", "--show-error", "--cacert", tls.CA_PATH, "--negotiate", "--user", ":"]
        argv += ["--write-out", _WRITTEN, *options, url]
        text = self._realm.host("desk").run(argv, user=self.name).stdout.decode()
        body, _, last = text.rpartition("\n")
        status, _, location = last.partition(" ")
        return Answer(int(status), location, body)


class _Hidden(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "input" and values.get("name") == "confirmation":
            self.found = values.get("value") or ""


def confirmation(page: Answer) -> str:
    """What the confirmation page would send."""
    assert page.status == 200, page.text
    parser = _Hidden()
    parser.feed(page.text)
    assert parser.found
    return parser.found
