"""Settings: whole, frozen, and refused by name where something is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import CHECKOUT, refused
from pydantic import ValidationError
from web_example import document

from bridge.settings import inherited_sockets, load, parse

SOURCE = Path("bridge.toml")


def _with(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set one member, given as section.name, or issuers.0.name."""
    *sections, name = path.split(".")

    def change(found: dict[str, Any]) -> None:
        target: Any = found
        for section in sections:
            target = target[int(section)] if section.isdigit() else target.setdefault(section, {})
        if value is None:
            del target[name]
        else:
            target[name] = value

    return change


BAD = [
    ("colour", "blue", "colour"),
    ("web.prot", 8443, "web.prot"),
    ("broker.password", "secret", "broker.password"),
    ("issuers", [], "issuers"),
    ("issuers", None, "issuers"),
    ("broker", None, "broker"),
    ("broker.realm", None, "broker.realm"),
    ("issuers.0.url", "http://gitlab.realm.test", "issuers.0.url"),
    ("issuers.0.url", "https://gitlab.realm.test?x=1", "issuers.0.url"),
    ("issuers.0.url", "https://user@gitlab.realm.test", "issuers.0.url"),
    ("issuers.0.url", "https://gitlab.realm.test\n", "issuers.0.url"),
    ("issuers.0.url", "file:///etc/passwd", "issuers.0.url"),
    ("issuers.0.audience", "", "issuers.0.audience"),
    ("issuers.0.max_life_seconds", 0, "issuers.0.max_life_seconds"),
    ("broker.realm", "realm.test", "broker.realm"),
    ("broker.principal", "ci-bridge", "broker.principal"),
    ("broker.http_service", "HTTP/bridge@REALM.TEST", "broker.http_service"),
    ("web.public_hosts", [], "web.public_hosts"),
    ("web.public_hosts", ["*"], "web.public_hosts.0"),
    ("web.public_hosts", ["*.realm.test"], "web.public_hosts.0"),
    ("web.public_hosts", ["bridge.realm.test:8443"], "web.public_hosts.0"),
    ("web.port", 0, "web.port"),
    ("web.port", 65536, "web.port"),
    ("web.port", "http", "web.port"),
    ("web.tls_key", "/etc/key.pem", "web"),
    ("web.tls_certificate", "/etc/cert.pem", "web"),
    ("database.url", "sqlite://", "database.url"),
    ("database.url", "sqlite:///relative.db", "database.url"),
    ("database.url", "sqlite:////var/x.db?mode=memory", "database.url"),
    ("database.url", "mysql://root@localhost/x", "database.url"),
]


@pytest.mark.parametrize(("path", "value", "named"), BAD, ids=[f"{path}={value!r}"[:60] for path, value, _ in BAD])
def test_a_bad_setting_is_refused_by_name(path: str, value: Any, named: str) -> None:
    found = document()
    _with(path, value)(found)
    error = refused(lambda: parse(found, SOURCE))
    assert error.code == "settings.invalid"
    assert f"In bridge.toml, {named}: " in error.title
    assert "docs/settings.md" in error.remedy


def test_a_good_file_loads_with_defaults(tmp_path: Path) -> None:
    settings = load(_written(tmp_path))
    assert settings.web.host == "127.0.0.1"
    assert settings.broker.web_user == "ci-bridge"
    assert settings.database.url.startswith("sqlite:////")


def _written(directory: Path) -> Path:
    path = directory / "bridge.toml"
    path.write_text(
        """
policies = "/etc/ci-bridge/policies"
[[issuers]]
url = "https://gitlab.realm.test"
audience = "https://bridge.realm.test"
[broker]
principal = "ci-bridge/bridge.realm.test"
realm = "REALM.TEST"
http_service = "HTTP/bridge.realm.test"
[web]
public_hosts = ["bridge.realm.test"]
"""
    )
    return path


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI_BRIDGE_CONFIG", str(_written(tmp_path)))
    assert load().broker.realm == "REALM.TEST"


@pytest.mark.parametrize("content", [None, b"not = [toml", b"\xff\xfe", b'a = "\xff"'])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "missing.toml"
    if content is not None:
        path.write_bytes(content)
    error = refused(lambda: load(path))
    assert error.code == "settings.unreadable"
    assert str(path) in error.title


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load(_written(tmp_path))
    for section, name in [(settings, "policies"), (settings.web, "port"), (settings.issuers[0], "url")]:
        with pytest.raises(ValidationError):
            setattr(section, name, None)


def test_the_shipped_example_loads() -> None:
    assert load(CHECKOUT / "deploy" / "examples" / "bridge.toml").web.public_hosts


@pytest.mark.parametrize(
    ("pid", "count", "expected"), [("own", "1", 1), ("own", "2", 2), ("1", "1", 0), (None, "1", 1), (None, None, 0)]
)
def test_inherited_sockets_are_those_that_are_meant_for_us(
    monkeypatch: pytest.MonkeyPatch, pid: str | None, count: str | None, expected: int
) -> None:
    for name, value in (("LISTEN_PID", str(os.getpid()) if pid == "own" else pid), ("LISTEN_FDS", count)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert inherited_sockets() == expected
