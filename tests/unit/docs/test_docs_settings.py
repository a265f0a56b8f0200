"""Every setting stands in docs/settings.md with its default, and nothing that is none."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import error_codes
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridge import settings as bridge_settings
from runner.executor import settings as executor_settings
from runner.login import tools as login_tools
from runner.node import settings as node_settings

PAGE = error_codes.CHECKOUT / "docs" / "settings.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+?) \| (\S.*) \|$")


def rows(section: str) -> dict[str, str]:
    """Setting to default, for the tables below a heading of the second level."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return {match[1]: match[2] for line in text.splitlines() if (match := ROW.match(line))}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every setting of a model and of the models in it, with its default as the page writes it."""
    for name, field in model.model_fields.items():
        inner = next((kind for kind in (field.annotation, *get_args(field.annotation)) if _is_model(kind)), None)
        if inner is None:
            yield prefix + name, _default(field)
        else:
            yield prefix + name, "required" if field.is_required() else "see below"
            yield from fields(inner, f"{prefix}{name}.")


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return _toml(str(field.default) if isinstance(field.default, Path) else field.default)


def _toml(value: Any) -> str:
    return "none" if value is None else f"`{json.dumps(value)}`"


def test_every_setting_of_the_client_file_is_explained_with_its_default() -> None:
    assert rows("client.toml") == dict(fields(bridge_settings.ClientSettings))


def test_bridge_toml_is_explained_with_its_defaults() -> None:
    assert rows("bridge.toml") == dict(fields(bridge_settings.Settings))


def test_executor_toml_is_explained_with_its_defaults() -> None:
    made = executor_settings.Settings({"bridge_url": "https://bridge.example"})
    expected = {name: _toml(getattr(made, name)) for name in executor_settings._SCHEMA} | {"bridge_url": "required"}
    assert rows("executor.toml") == expected


def test_node_toml_is_explained_with_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda _name: "node.example")
    file = tmp_path / "node.toml"
    file.write_text('bridge_url = "https://bridge.example"\nca_file = "/ca.pem"\n')
    made = node_settings.Settings(str(file))
    assert (made.bridge_principal, made.node) == ("HTTP/bridge.example", "node.example")
    expected = {name: _toml(getattr(made, name)) for name in node_settings._SCHEMA} | {
        "bridge_url": "required",
        "ca_file": "required",
        "bridge_principal": '`"HTTP/"` and the host of `bridge_url`',
        "node": "the fully qualified host name",
    }
    assert rows("node.toml") == expected


def test_login_toml_is_explained_with_its_default() -> None:
    assert rows("login.toml") == {"tool_directories": _toml(list(login_tools.DEFAULT_DIRECTORIES))}


def test_a_setting_of_the_environment_is_explained() -> None:
    source = Path(bridge_settings.__file__).read_text(encoding="utf-8")
    read = set(re.findall(r'os\.environ\.get\("([A-Z_]+)"', source))
    assert read
    assert [name for name in sorted(read) if f"`{name}`" not in PAGE.read_text(encoding="utf-8")] == []
