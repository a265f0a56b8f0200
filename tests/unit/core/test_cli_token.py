"""``ci-bridge token verify``: the broker's own verdict, step by step, and never the token."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from bench import AUDIENCE, CHECKOUT, ISSUER, KID, Broker
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from typer.testing import CliRunner, Result

from bridge.cli.main import app
from bridge.cli.token import STEPS

ALONE = f'url = "{ISSUER}"\naudience = "{AUDIENCE}"\n'


class Desk:
    """An administrator with a token of alice's, the issuer's settings and its keys."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.settings = directory / "issuer.toml"
        self.settings.write_text(ALONE)
        self.jwks = directory / "jwks.json"
        self.publish(broker.key.public_key(), KID)

    def publish(self, key: rsa.RSAPublicKey, kid: str) -> None:
        """Put a key set into the file."""
        jwk = RSAAlgorithm.to_jwk(key, as_dict=True)
        jwk.pop("key_ops", None)
        self.jwks.write_text(json.dumps({"keys": [jwk | {"kid": kid, "use": "sig", "alg": "RS256"}]}))

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of job 301 with changes; a claim that is None is left out."""
        found = self.broker.claims_of(301, 101) | {"user_email": "alice@realm.test"} | claims
        kept = {name: value for name, value in found.items() if value is not None}
        return jwt.encode(kept, self.broker.key, algorithm="RS256", headers={"kid": KID} | (header or {}))

    def verify(self, token: str | bytes, *more: str) -> tuple[Result, dict[str, Any]]:
        """The command's result, and what it printed."""
        words = ["token", "verify", "--issuer-file", str(self.settings), "--jwks", str(self.jwks), *more]
        result = CliRunner().invoke(app, words, input=token)
        return result, json.loads(result.stdout) if result.stdout.startswith("{") else {}


@pytest.fixture
def desk(broker: Broker, tmp_path: Path) -> Desk:
    """One of them."""
    return Desk(broker, tmp_path)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_good_token_passes_every_step_and_shows_ids_only(desk: Desk, end: str) -> None:
    token = desk.token(new_claim="canary")
    result, said = desk.verify(token + end)

    assert result.exit_code == 0
    assert (said["ok"], said["code"]) == (True, None)
    assert said["steps"] == [{"step": name, "ok": True} for name in STEPS]
    assert {name: said["claims"][name] for name in ("iss", "user_id", "job_id", "runner_id", "unknown")} == {
        "iss": ISSUER, "user_id": "101", "job_id": "301", "runner_id": 1, "unknown": ["new_claim"],
    }  # fmt: skip
    for secret in (token, token.split(".")[2], "alice", "somebody", "chem", "canary"):
        assert secret not in result.output


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "header": ({"header": {"jku": "https://evil.test"}}, "header", "token.header"),
    "kid": ({"header": {"kid": "../k"}}, "header", "token.kid"),
    "issuer": ({"iss": "https://evil.test"}, "issuer", "token.issuer"),
    "key": ({"header": {"kid": "other"}}, "key", "token.unknown_key"),
    "missing": ({"job_project_id": None}, "required", "token.claim_missing"),
    "audience": ({"aud": "https://vault.test"}, "audience", "token.audience"),
    "claim": ({"ref_protected": True}, "claims", "token.claim_malformed"),
    "life": ({"exp": 2**40}, "times", "token.life"),
}


@pytest.mark.threat("T1")
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_token_is_told_by_its_step(desk: Desk, kind: str) -> None:
    changes, step, code = BAD[kind]
    token = desk.token(**changes)
    result, said = desk.verify(token)

    assert result.exit_code == 1
    assert (said["ok"], said["code"], said["claims"]) == (False, code, None)
    *before, last = said["steps"]
    names = list(STEPS)
    assert before == [{"step": name, "ok": True} for name in names[: names.index(step)]]
    assert (last["step"], last["ok"], last["code"]) == (step, False, code)
    assert last["detail"]
    assert token not in result.output
    assert "Traceback" not in result.output


@pytest.mark.threat("T38")
@pytest.mark.parametrize("token", [b"", b"\xff\xfe", b"a.b", b"x" * 10_000_000, b"..", b"\x00" * 100])
def test_anything_else_on_standard_input_is_refused_in_bounds(desk: Desk, token: bytes) -> None:
    result, said = desk.verify(token)
    assert result.exit_code == 1
    assert said["code"] in ("token.size", "token.form")
    assert len(result.output) < 1000


def test_a_forged_signature_is_told(desk: Desk) -> None:
    desk.publish(rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key(), KID)
    _, said = desk.verify(desk.token())
    assert (said["code"], said["steps"][-1]["step"]) == ("token.signature", "signature")


def test_the_moment_can_be_chosen(desk: Desk) -> None:
    token = desk.token()
    now = desk.broker.clock()
    late, early = now + timedelta(minutes=11), now - timedelta(minutes=11)
    for moment, code in ((now, None), (late, "token.too_old"), (early, "token.not_yet")):
        assert desk.verify(token, "--at", moment.isoformat())[1]["code"] == code
        assert desk.verify(token, "--at", str(int(moment.timestamp())))[1]["code"] == code


@pytest.mark.parametrize("text", ["yesterday", "2026-11-20T12:00:00", "9" * 30, "-1", ""])
def test_a_moment_that_is_none_is_wrong_usage(desk: Desk, text: str) -> None:
    result, _ = desk.verify(desk.token(), "--at", text)
    assert result.exit_code == 2
    assert "--at" in result.stderr


@pytest.mark.parametrize("content", ["{", '{"keys": []}', None], ids=["no JSON", "empty", "no file"])
def test_a_bad_key_file_is_told_with_its_reason(desk: Desk, content: str | None) -> None:
    desk.jwks.unlink()
    if content is not None:
        desk.jwks.write_text(content)
    result, said = desk.verify(desk.token())
    assert (result.exit_code, said["code"], said["steps"][-1]["step"]) == (1, "issuer.keys_too_old", "key")
    assert said["steps"][-1]["detail"]


def test_a_whole_settings_file_does_too_and_so_does_its_key_file(desk: Desk) -> None:
    text = (CHECKOUT / "deploy" / "examples" / "bridge.toml").read_text()
    text = text.replace("https://gitlab.example.org", ISSUER).replace("https://bridge.example.org:8443", AUDIENCE)
    desk.settings.write_text(text.replace("[database]", f'jwks_file = "{desk.jwks}"\n[database]'))
    words = ["token", "verify", "--issuer-file", str(desk.settings)]
    result = CliRunner().invoke(app, words, input=desk.token())
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("url = 7", "settings.invalid"),
        (ALONE + 'colour = "blue"', "settings.invalid"),
        ("issuers = []", "settings.invalid"),
        ("issuers = 7", "settings.invalid"),
        ("", "settings.invalid"),
        ("[", "settings.unreadable"),
    ],
)
def test_a_bad_issuer_file_is_told_as_commands_do(desk: Desk, text: str, code: str) -> None:
    desk.settings.write_text(text)
    result, _ = desk.verify(desk.token())
    assert result.exit_code == 1
    assert f"[{code}]" in result.stderr
    assert "What to do: " in result.stderr


def test_every_refusal_of_the_verifier_has_its_step() -> None:
    source = "".join(
        (CHECKOUT / "bridge" / "oidc" / f"{name}.py").read_text() for name in ("token", "verifier", "claims")
    )
    known = {code for codes in STEPS.values() for code in codes}
    raised = {part.partition('"')[0] for part in source.split('token_refused("')[1:]}
    assert raised
    assert {f"token.{reason}" for reason in raised} <= known
