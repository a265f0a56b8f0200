"""Who is at the browser, by GitLab's word: OAuth 2.0 authorization code with PKCE, then OpenID Connect's userinfo.

RFC 6749 section 4.1, RFC 7636, RFC 7009, OpenID Connect Core 1.0 section 5.3. The browser is sent to GitLab and comes
back with a code; the code is exchanged here, userinfo is asked once, and the access token is given back at once. Every
endpoint is the configured issuer's own: no document that GitLab or anybody else serves can name another.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from bridge.errors import Outage, TokenRefused
from bridge.oidc.https import Answer, Conversation, TooLarge, plain_https, trusting
from bridge.oidc.strict_json import AmbiguousJson, loads_object

SCOPE: Final = "openid"
"""Enough for userinfo, and for nothing else of GitLab's API."""

EXCHANGE_SECONDS: Final = 5.0
REVOKE_SECONDS: Final = 2.0
MAX_ANSWER_BYTES: Final = 64 * 1024

_CODE: Final = re.compile(r"[\x21-\x7e]{1,512}", re.ASCII)
_STATE: Final = re.compile(r"[A-Za-z0-9._~-]{16,1024}", re.ASCII)
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}", re.ASCII)
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_ACCESS_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,2048}=*", re.ASCII)
_USER_ID: Final = re.compile(r"[1-9][0-9]{0,15}", re.ASCII)
_MAX_TEXT: Final = 1024
_OF_THE_CODE: Final = frozenset({"invalid_grant", "invalid_request"})
"""Error codes of RFC 6749 section 5.2 that are about the code; the rest are about the bridge's registration."""


@dataclass(frozen=True, slots=True)
class GitLabPerson:
    """A person who has just signed in to GitLab and authorized the bridge; only ``user_id`` decides anything."""

    user_id: int
    login: str
    """The user name; may be renamed and given to somebody else."""
    name: str
    """The person's own words, printable, for people to read."""


class OAuthClient:
    """The bridge as an OAuth application of one GitLab; safe to use from many threads."""

    def __init__(
        self, issuer_url: str, client_id: str, client_secret: str | None, redirect_uri: str, ca_file: Path
    ) -> None:
        """The application as it is registered at ``issuer_url`` (https); ``ca_file`` holds its only CAs (PEM).

        ``client_secret`` is None for a public application. ``redirect_uri`` is letter by letter the registered one.
        Raises ValueError for URLs that are not plain https.
        """
        for url in (issuer_url, redirect_uri):
            if not plain_https(url):
                raise ValueError(f"not a plain https URL: {url!r}")
        self._issuer = issuer_url.rstrip("/")
        self._credentials = {"client_id": client_id}
        if client_secret is not None:
            self._credentials["client_secret"] = client_secret
        self._redirect_uri = redirect_uri
        self._context = trusting(ca_file)

    def authorization_url(self, state: str, code_challenge: str) -> str:
        """Where to send the browser (RFC 6749 section 4.1.1).

        ``state`` is unguessable, bound to this browser and used once; ``code_challenge`` is made by ``challenge``.
        Raises ValueError if one of them has not such a form.
        """
        if _STATE.fullmatch(state) is None or _CHALLENGE.fullmatch(code_challenge) is None:
            raise ValueError("state or code_challenge is malformed")
        query = {
            "client_id": self._credentials["client_id"],
            "redirect_uri": self._redirect_uri,
            "response_type": "code",
            "scope": SCOPE,
            "state": state,
            "code_challenge": code_challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._issuer}/oauth/authorize?{urlencode(query)}"

    @staticmethod
    def challenge(verifier: str) -> str:
        """The S256 challenge of a verifier (RFC 7636 section 4.2), which has 43 to 128 unreserved characters.

        Raises ValueError for any other verifier.
        """
        if _VERIFIER.fullmatch(verifier) is None:
            raise ValueError("the code verifier is malformed")
        digest = hashlib.sha256(verifier.encode("ascii")).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")

    def person(self, code: str, verifier: str) -> GitLabPerson:
        """Who authorized the bridge, for a code that came with the right ``state``, and the challenge's verifier.

        The access token is revoked before this returns or raises. If GitLab does not answer to that, it dies of age
        within two hours; nobody has it.

        Raises TokenRefused ``oauth.refused``: the code is not good, or its person is blocked; Outage
        ``oauth.unreachable``, ``oauth.malformed``, or ``oauth.client_refused`` when GitLab does not know the bridge.
        """
        if _CODE.fullmatch(code) is None or _VERIFIER.fullmatch(verifier) is None:
            raise _refused("the code or its verifier is malformed")
        try:
            with Conversation(self._context, seconds=EXCHANGE_SECONDS, most_bytes=MAX_ANSWER_BYTES) as talk:
                granted = self._exchange(talk, code, verifier)
                token = _access_token(granted)
                try:
                    _check_grant(granted)
                    return self._userinfo(talk, token)
                finally:
                    self._revoke(token)
        except TooLarge as error:
            raise _malformed(str(error)) from error
        except AmbiguousJson as error:
            raise _malformed(f"an answer is {error}") from error
        except OSError as error:
            raise _unreachable(type(error).__name__) from error

    def _exchange(self, talk: Conversation, code: str, verifier: str) -> dict[str, Any]:
        """The token endpoint's good answer (RFC 6749 sections 4.1.3 and 5)."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
            **self._credentials,
        }
        answer = talk.post(f"{self._issuer}/oauth/token", form)
        if answer.status in (400, 401, 403):
            raise _not_granted(answer)
        return _document(answer)

    def _userinfo(self, talk: Conversation, token: str) -> GitLabPerson:
        answer = talk.get(f"{self._issuer}/oauth/userinfo", {"Authorization": f"Bearer {token}"})
        if answer.status in (401, 403):
            raise _refused(f"userinfo answers {answer.status}: the person may be blocked")
        return _person(_document(answer))

    def _revoke(self, token: str) -> None:
        form = {"token": token, "token_type_hint": "access_token", **self._credentials}
        with (
            contextlib.suppress(OSError, TooLarge),
            Conversation(self._context, seconds=REVOKE_SECONDS, most_bytes=MAX_ANSWER_BYTES) as talk,
        ):
            talk.post(f"{self._issuer}/oauth/revoke", form)


def _document(answer: Answer) -> dict[str, Any]:
    if answer.status != 200:
        raise _unreachable(f"answer {answer.status}")
    return loads_object(answer.body)


def _access_token(granted: Mapping[str, Any]) -> str:
    token = granted.get("access_token")
    if type(token) is not str or _ACCESS_TOKEN.fullmatch(token) is None:
        raise _malformed("access_token is missing or not a bearer token")
    return token


def _check_grant(granted: Mapping[str, Any]) -> None:
    """Hold the answer against RFC 6749 section 5.1: a bearer token, for what was asked for and no more."""
    kind = granted.get("token_type")
    if type(kind) is not str or kind.lower() != "bearer":
        raise _malformed("token_type is not Bearer")
    if granted.get("scope", SCOPE) != SCOPE:
        raise _malformed("scope is not what was asked for")


def _person(claims: Mapping[str, Any]) -> GitLabPerson:
    """Userinfo's person; ``sub`` is the user's number (GitLab: config/initializers/doorkeeper_openid_connect.rb)."""
    subject = claims.get("sub")
    if type(subject) is not str or _USER_ID.fullmatch(subject) is None:
        raise _malformed("sub is not a user's number in its one spelling")
    return GitLabPerson(int(subject), _text(claims, "nickname"), _text(claims, "name"))


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if type(value) is not str or not 0 < len(value) <= _MAX_TEXT or not value.isprintable():
        raise _malformed(f"{name} is not a printable text")
    return value


def _not_granted(answer: Answer) -> Exception:
    """What an error answer of the token endpoint (RFC 6749 section 5.2) means here."""
    reason = loads_object(answer.body).get("error")
    if type(reason) is not str:
        return _malformed("an error answer has no error")
    if reason in _OF_THE_CODE:
        return _refused(f"the token endpoint answers {reason}")
    return Outage(
        "oauth.client_refused",
        "GitLab does not accept the bridge as the OAuth application that it is set up to be.",
        "Tell the administrators of the bridge: its client id, secret, redirect URI and scope must be those in GitLab.",
        status=answer.status,
    )


def _refused(detail: str) -> TokenRefused:
    return TokenRefused(
        "oauth.refused",
        "GitLab does not confirm this sign-in.",
        "Begin the linking again from its first page, and sign in to GitLab with an active account.",
        detail=detail,
    )


def _unreachable(reason: str) -> Outage:
    return Outage(
        "oauth.unreachable",
        "GitLab could not be asked who has signed in.",
        "Try again in a few minutes; administrators: check that the bridge reaches GitLab over HTTPS.",
        reason=reason,
    )


def _malformed(reason: str) -> Outage:
    return Outage(
        "oauth.malformed",
        "GitLab's answer about this sign-in can't be understood.",
        "Tell the administrators of the bridge, with the reference.",
        reason=reason,
    )
