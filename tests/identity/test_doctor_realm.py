"""``ci-bridge doctor`` on the realm's bridge host: what is well is called well, what is broken is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from realm import Realm, bridgehost, forge

BROKEN = "/etc/ci-bridge/broken.toml"


def doctor(realm: Realm, user: str, config: str = bridgehost.CONFIG) -> dict[str, Any]:
    argv = [*bridgehost.COMMAND, "doctor", "--json", "--config", config]
    done = realm.host("bridge").run(argv, user=user, check=False)
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if document["ok"] else 1)
    findings = [one for section in document["sections"].values() for one in section]
    assert all(one["remedy"] for one in findings if one["state"] != "ok")
    return {f"{one['check']} {one['subject']}": one for one in findings}


@pytest.fixture
def broken(realm: Realm) -> Iterator[str]:
    """Settings whose issuer is a host that serves something else, with a keytab of somebody else."""
    host = realm.host("bridge")
    text = host.read(bridgehost.CONFIG).decode()
    wrong = f'url = "{bridgehost.URL}"'
    host.write(BROKEN, text.replace(f'url = "{forge.URL}"', wrong).replace("ci-bridge/bridge", "ci-bridge/nobody"))
    yield BROKEN
    host.path(BROKEN).unlink()


def test_the_brokers_user_sees_clocks_and_keys_and_the_one_row_that_is_wrong(realm: Realm) -> None:
    found = doctor(realm, "ci-bridge-broker")
    states = {name: one["state"] for name, one in found.items()}
    assert {name: state for name, state in states.items() if state != "ok"} == {
        f"account-row user 105 of {forge.URL} -> root (0)": "failed",
        "user-tickets REALM.TEST": "not checked",
    }
    assert set(states) > {f"issuer-{part} {forge.URL}" for part in ("tls", "discovery", "clock", "keys")}
    assert found["kdc-clock REALM.TEST"]["detail"] == "in agreement"
    assert found["account-rows accounts.toml"]["detail"] == "3 of 4 rows resolve"


def test_webs_user_is_told_as_whom_to_look_at_the_kdc(realm: Realm) -> None:
    found = doctor(realm, "ci-bridge")["keytab REALM.TEST"]
    assert found["state"] == "not checked"
    assert "ci-bridge-broker" in found["remedy"] or "broker's user" in found["remedy"]


def test_a_broken_issuer_and_a_wrong_principal_are_named(realm: Realm, broken: str) -> None:
    found = doctor(realm, "ci-bridge-broker", broken)
    assert found[f"issuer-discovery {bridgehost.URL}"]["state"] == "failed"
    assert found[f"issuer-keys {bridgehost.URL}"]["state"] == "failed"
    assert found["kdc-clock REALM.TEST"]["state"] == "failed"
    assert "[kerberos." in found["kdc-clock REALM.TEST"]["detail"]


def test_people_get_a_table_with_what_to_do(realm: Realm) -> None:
    argv = [*bridgehost.COMMAND, "doctor", "identity", "--config", bridgehost.CONFIG]
    done = realm.host("bridge").run(argv, user="ci-bridge-broker", check=False)
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "issuer-keys" in text
    assert text.count("What to do: ") == 1
