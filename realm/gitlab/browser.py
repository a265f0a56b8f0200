"""A person at the stand-in's web pages without a browser: reads the forms, fills them in and sends them, over TLS."""

import ssl
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httpx2


class BrowserError(RuntimeError):
    """The page is not the one that was expected; the text is what it shows."""


@dataclass
class _Form:
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    button: str = ""


class _Page(HTMLParser):
    """The forms of a page, what it refreshes to, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[_Form] = []
        self.refresh = ""
        self.text: list[str] = []
        self._in_button = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(_Form(values["action"]))
        elif tag == "input" and self.forms:
            self.forms[-1].fields[values["name"]] = values.get("value", "")
        elif tag == "button":
            self._in_button = True
        elif tag == "meta" and values.get("http-equiv") == "refresh":
            self.refresh = values["content"].partition("url=")[2]

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())
        if self._in_button:
            self.forms[-1].button += data

    def handle_endtag(self, tag: str) -> None:
        self._in_button = self._in_button and tag != "button"


class Browser:
    """One browser with its own cookies; nobody is signed in at first."""

    def __init__(self, url: str, ca_file: Path) -> None:
        """`url` is the stand-in's address, `ca_file` the CA (PEM) that its certificate is checked by."""
        context = ssl.create_default_context(cafile=str(ca_file))
        self.http = httpx2.Client(base_url=url, verify=context, trust_env=False, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def sign_in(self, username: str, password: str) -> str:
        """Fill in the sign-in page; returns where it leads.

        Raises:
            BrowserError: the name or password is not accepted.
        """
        page = _read(self.http.get("/users/sign_in"))
        answer = self._send(page, "Sign in", {"user[login]": username, "user[password]": password})
        if answer.status_code != 302:
            raise BrowserError(_shown(answer))
        return answer.headers["location"]

    def authorize(self, authorization_url: str, username: str, password: str, *, button: str = "Authorize") -> str:
        """Follow an authorization URL as this person; returns the Location that leads to the client.

        Args:
            password: the person's password or personal access token.
            button: what to press when asked: `Authorize` or `Cancel`.

        Raises:
            BrowserError: sign-in failed, or there is no such question; the text is what the page shows.
        """
        answer = self.http.get(authorization_url)
        if answer.status_code == 302 and urlsplit(answer.headers["location"]).path == "/users/sign_in":
            answer = self.http.get(self.sign_in(username, password))
        page = _read(answer)
        if page.refresh:
            return page.refresh
        answer = self._send(page, button, {})
        if answer.status_code != 302:
            raise BrowserError(_shown(answer))
        return answer.headers["location"]

    def _send(self, page: _Page, button: str, fields: dict[str, str]) -> httpx2.Response:
        for form in page.forms:
            if form.button.startswith(button):
                return self.http.post(form.action, data={**form.fields, **fields})
        raise BrowserError(" ".join(filter(None, page.text)))


def _read(answer: httpx2.Response) -> _Page:
    page = _Page()
    page.feed(answer.text)
    return page


def _shown(answer: httpx2.Response) -> str:
    return f"{answer.status_code}: {' '.join(filter(None, _read(answer).text))}"
