"""``ci-bridge token``: look at an id_token as the broker would, step by step, without ever printing it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.cli.output import FAILED, explained, print_json
from bridge.errors import BridgeError
from bridge.model import SignedClaims, UnverifiedToken
from bridge.oidc.claims import unknown_claims
from bridge.oidc.fetch import DiscoveryFetcher, KeySetFetcher
from bridge.oidc.issuers import IssuerKeys, Issuers
from bridge.oidc.keyfile import KeyFile
from bridge.oidc.token import MAX_TOKEN_BYTES
from bridge.oidc.verifier import Audience, Verifier
from bridge.settings import Issuer, load_issuers

app = typer.Typer(help="An id_token, as the broker sees it.", no_args_is_help=True)

STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "form": ("token.size", "token.form"),
    "header": ("token.header", "token.algorithm", "token.kid"),
    "payload": ("token.payload",),
    "issuer": ("token.issuer",),
    "key": ("token.unknown_key", "issuer.keys_too_old"),
    "signature": ("token.signature", "token.invalid"),
    "required": ("token.claim_missing",),
    "audience": ("token.audience",),
    "claims": ("token.claim_malformed",),
    "times": ("token.life", "token.expired", "token.not_yet", "token.too_old"),
}
"""Steps of ``oidc.verifier`` in its order, and the codes with which each says no."""

IDS: Final = ("user_id", "project_id", "job_project_id", "namespace_id", "pipeline_id", "job_id", "runner_id", "jti")
"""What is shown of an accepted token, besides its issuer and times: nothing that names a person."""


class _Heard:
    """``oidc.issuers.KeyEvents`` that keeps why no key set came."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def changed(self, issuer: str, thumbprints: Mapping[str, str]) -> None:
        """A set came: nothing to keep."""

    def failed(self, issuer: str, reason: str) -> None:
        """Keep the reason."""
        self.reason = reason


@app.command()
@explained
def verify(
    issuer_file: Annotated[Path, typer.Option(help="An [[issuers]] table alone, or a whole bridge.toml.")],
    jwks: Annotated[Path | None, typer.Option(help="Take the keys from this file.")] = None,
    at: Annotated[str | None, typer.Option(help="The moment, ISO 8601 with a zone or seconds since 1970.")] = None,
) -> None:
    """Check the token on standard input as the broker does, less whether its job is alive; exit code 1 is no."""
    moment = datetime.now(UTC) if at is None else _moment(at)
    issuers = load_issuers(issuer_file)
    # One byte more than allowed shows that it is too long; a line's end is not part of a token.
    text = sys.stdin.buffer.read(MAX_TOKEN_BYTES + 2).removesuffix(b"\n").decode("ascii", errors="replace")
    result = judge(UnverifiedToken(text), issuers, jwks, moment)
    print_json(result)
    if not result["ok"]:
        raise typer.Exit(FAILED)


def judge(token: UnverifiedToken, issuers: tuple[Issuer, ...], jwks: Path | None, moment: datetime) -> dict[str, Any]:
    """The verdict: ``ok``, ``code``, ``steps`` in order up to the one that said no, and ``claims`` of a good token."""
    heard = _Heard()
    keys = Issuers({one.url: IssuerKeys(one.url, _fetcher(one, jwks), heard) for one in issuers})
    audiences = [Audience(one.url, one.audience, one.max_life_seconds) for one in issuers]
    try:
        claims = Verifier(audiences, keys).verify(token, moment)
    except BridgeError as error:
        return {"ok": False, "code": error.code, "steps": _steps(error, heard.reason), "claims": None}
    return {"ok": True, "code": None, "steps": _passed(*STEPS), "claims": _summary(claims)}


def _fetcher(issuer: Issuer, jwks: Path | None) -> KeySetFetcher:
    file = jwks or issuer.jwks_file
    return DiscoveryFetcher(issuer.url, issuer.ca_file) if file is None else KeyFile(file)


def _steps(error: BridgeError, reason: str | None) -> list[dict[str, Any]]:
    names = list(STEPS)
    last = next((name for name in names if error.code in STEPS[name]), names[0])
    detail = reason if reason is not None and last == "key" else error.context.get("detail")
    return [
        *_passed(*names[: names.index(last)]),
        {"step": last, "ok": False, "code": error.code, "detail": detail},
    ]


def _passed(*names: str) -> list[dict[str, Any]]:
    return [{"step": name, "ok": True} for name in names]


def _summary(claims: SignedClaims) -> dict[str, Any]:
    times = {name: datetime.fromtimestamp(claims[name], UTC).isoformat() for name in ("iat", "exp")}
    ids = {name: claims[name] for name in IDS}
    return {"iss": claims["iss"], **ids, **times, "unknown": list(unknown_claims(claims))}


def _moment(text: str) -> datetime:
    """Read ``--at``; raises typer's own error for anything that is not one moment."""
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter("neither ISO 8601 nor seconds since 1970", param_hint="--at") from error
    if moment.tzinfo is None:
        raise typer.BadParameter("the time has no zone; write 2026-11-20T12:00:00Z", param_hint="--at")
    return moment
