"""Asks the bridge's own API over HTTPS, as the person whose Kerberos ticket is there, or by an API token from a file.

Each request carries a fresh Negotiate token (RFC 4559), and an answer that says yes is believed only with the server's
own proof; an API token proves nothing of the server, so that TLS alone says who that is. What says no comes as a
problem document (RFC 9457) and is raised again as the error that it is.
"""

from __future__ import annotations

import json
import re
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import typer
from pydantic import TypeAdapter, ValidationError

from bridge import errors
from bridge.kerberos.initiating import Initiator, Proof
from bridge.oidc.https import Answer, Conversation, TooLarge, trusting
from bridge.oidc.strict_json import AmbiguousJson, loads_object
from bridge.settings import ClientSettings
from runner.binding import request_binding

T = TypeVar("T")

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024

MAX_DEPTH: Final = 12
"""An explanation is a list of rules of conditions of values, within a decision."""

WAIT_SECONDS: Final = 35.0
"""Over what web waits for the broker."""
TOTAL_SECONDS: Final = 60.0

CLIENT: Final = {"X-CI-Bridge-Client": "ci-bridge"}
"""A page of another site can't send it (T41)."""

_TOKEN: Final = re.compile(rb"cib_[A-Za-z0-9_-]{43}", re.ASCII)
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[a-z][a-z0-9_]{0,63}){1,4}", re.ASCII)
_REFERENCE: Final = re.compile(r"[0-9A-HJKMNP-TV-Z]{4}(-[0-9A-HJKMNP-TV-Z]{4}){2}", re.ASCII)
_MAX_SENTENCE: Final = 2000

_KINDS: Final[Mapping[int, type[errors.BridgeError]]] = {
    401: errors.TokenRefused,
    403: errors.PolicyRefused,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    500: errors.Defect,
    502: errors.Outage,
    503: errors.Outage,
    504: errors.Outage,
}

Server = Annotated[
    str | None,
    typer.Option(
        "--server", help="The bridge's address; else $CI_BRIDGE_SERVER, else the client file.", show_default=False
    ),
]


class Remote:
    """The bridge at one address; each call is one request on a connection of its own."""

    def __init__(self, server: str, ca_file: Path, begin: Callable[[bytes], Proof]) -> None:
        """``server`` is ``https://host[:port]``; ``ca_file`` (PEM) has the only CAs trusted for it.

        ``begin`` gives a fresh proof of who calls, bound to the request (``runner.binding``) where it can be. Raises
        RequestRefused ``remote.ca_file``.
        """
        self.server = server
        self._begin = begin
        try:
            self._trust = trusting(ca_file)
        except OSError as error:
            raise errors.RequestRefused(
                "remote.ca_file",
                f"The file of trusted certificates {ca_file} can't be used.",
                "Name the right one as ca_file in the client file; see docs/settings.md.",
                why=str(error),
            ) from error

    def get(self, path: str) -> dict[str, Any]:
        """Return what is at ``path``, such as ``/v1/me``; raises what the bridge answers, and as ``post`` does."""
        return self._document(self._get(path))

    def get_bytes(self, path: str) -> bytes:
        """Return the bytes at ``path``; raises as ``get`` does."""
        return self._get(path).body

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to ``body``, sent as JSON.

        Raises what the bridge answers, Outage ``remote.unreachable``, ``remote.unreadable``, Defect
        ``remote.untrusted``, ``kerberos.server_unproven``, and what beginning the proof raises.
        """
        return self.change("POST", path, body)

    def change(self, method: str, path: str, body: Mapping[str, Any], *, version: int | None = None) -> dict[str, Any]:
        """As ``post``; with ``version``, only what is still as it was read is changed (If-Match, RFC 9110 13.1.1)."""
        match = {} if version is None else {"If-Match": f'"{version}"'}
        content, binding = json.dumps(body).encode("ascii"), request_binding(method, path, version, body)
        return self._ask(
            lambda talk, headers: talk.send_json(method, self.server + path, content, headers | match), binding
        )

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As ``post``; asked once more where no answer came, with a key by which it is done once all the same."""
        key = {"Idempotency-Key": str(uuid.uuid4())}
        content, binding = json.dumps(body).encode("ascii"), request_binding("POST", path, None, body)

        def ask() -> dict[str, Any]:
            return self._ask(lambda talk, headers: talk.post_json(self.server + path, content, headers | key), binding)

        try:
            return ask()
        except errors.Outage as error:
            if error.code != "remote.unreachable":
                raise
            return ask()

    def _get(self, path: str) -> Answer:
        binding = request_binding("GET", path, None, {})
        return self._answer(lambda talk, headers: talk.get(self.server + path, headers), binding)

    def _ask(self, request: Callable[[Conversation, dict[str, str]], Answer], binding: bytes) -> dict[str, Any]:
        return self._document(self._answer(request, binding))

    def _answer(self, request: Callable[[Conversation, dict[str, str]], Answer], binding: bytes) -> Answer:
        proof = self._begin(binding)
        try:
            with Conversation(
                self._trust, seconds=TOTAL_SECONDS, most_bytes=MAX_ANSWER_BYTES, wait_seconds=WAIT_SECONDS
            ) as talk:
                answer = request(talk, {"Authorization": proof.header, **CLIENT})
        except TooLarge as error:
            raise self.unreadable("too long") from error
        except OSError as error:
            raise self._no_answer(error) from error
        if answer.status not in (200, 201, 202):
            raise self._refusal(answer)
        proof.check(answer.headers.get("www-authenticate"))
        return answer

    def read(self, kind: type[T], value: object) -> T:
        """Return a part of an answer as a value of ours; raises Outage ``remote.unreadable``."""
        try:
            return TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            raise self.unreadable(f"no {kind}") from error

    def unreadable(self, why: str) -> errors.Outage:
        """The error for an answer that the bridge of this version would not give."""
        return errors.Outage(
            "remote.unreadable",
            f"What answers at {self.server} does not speak as a bridge of this version.",
            "Check the address; ci-bridge here and on the bridge's host must be of the same release.",
            why=why,
        )

    def _document(self, answer: Answer) -> dict[str, Any]:
        try:
            return loads_object(answer.body, most_depth=MAX_DEPTH)
        except AmbiguousJson as error:
            raise self.unreadable(str(error)) from error

    def _refusal(self, answer: Answer) -> errors.BridgeError:
        """The error that a problem document tells of; its words go to a terminal, so they must be plain."""
        if answer.headers.get("content-type") != "application/problem+json":
            return self.unreadable(f"status {answer.status}")
        problem = self._document(answer)
        code, title, remedy, reference = (problem.get(name) for name in ("code", "title", "remedy", "reference"))
        if not (_is(_CODE, code) and _is(_REFERENCE, reference) and _is_plain(title) and _is_plain(remedy)):
            return self.unreadable("the problem document")
        kind = _KINDS.get(answer.status, errors.RequestRefused)
        return kind(str(code), str(title), str(remedy), reference=reference)

    def _no_answer(self, error: OSError) -> errors.BridgeError:
        if any(isinstance(one, ssl.SSLCertVerificationError) for one in _causes(error)):
            return errors.Defect(
                "remote.untrusted",
                f"The certificate of {self.server} is not one that is trusted here.",
                "Check the address and ca_file in the client file, and go on only once you know why.",
                why=str(error),
            )
        return errors.Outage(
            "remote.unreachable",
            f"The bridge at {self.server} does not answer.",
            "Check the address and your network; then see whether what you asked for was done, and try again.",
            why=str(error),
        )


@dataclass(frozen=True, slots=True)
class TokenProof:
    """``kerberos.initiating.Proof`` by an API token."""

    header: str = field(repr=False)

    def check(self, authenticate: str | None) -> None:
        """Pass: whoever has a certificate of the trusted authorities for this name is the server."""


def connect(settings: ClientSettings) -> Remote:
    """Return the bridge as the client settings say, asked with the API token of a file, else the person's ticket."""
    if settings.token_file is not None:
        proof = TokenProof(f"Bearer {_token(settings.token_file)}")
        return Remote(settings.server, settings.ca_file, lambda _binding: proof)
    host = urlsplit(settings.server).hostname or ""
    return Remote(settings.server, settings.ca_file, Initiator(host, settings.realm).begin)


def id_in_path(text: str) -> str:
    """Return an id for use in a path; raises NotFound ``remote.no_id`` for what can't be one."""
    if not _REFERENCE.fullmatch(text):
        raise errors.NotFound(
            "remote.no_id", "That is not an id of the bridge.", "Copy it as the list shows it: XXXX-XXXX-XXXX."
        )
    return text


def _token(file: Path) -> str:
    try:
        with file.open("rb") as source:
            text = source.read(128).strip(b"\r\n")
    except OSError as error:
        raise _no_token(file) from error
    if not _TOKEN.fullmatch(text):
        raise _no_token(file)
    return text.decode("ascii")


def _no_token(file: Path) -> errors.RequestRefused:
    return errors.RequestRefused(
        "remote.token_file",
        f"The file {file} has no API token that can be used.",
        "Name a file with the line that 'ci-bridge api-token create' printed; in GitLab, a variable of the type file.",
    )


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_plain(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_SENTENCE and value.isprintable()


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
