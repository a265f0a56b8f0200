"""Host `gitlab`: the stand-in as a service, and the people who have an account there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from realm import tls
from realm.gitlab.client import GitLabControl
from realm.plan import Step
from realm.service import Runtime, Service, all_of, answers, connects
from realm.topology import spec
from realm.workspace import CHECKOUT

if TYPE_CHECKING:
    from realm.cluster import Realm

URL = f"https://{spec('gitlab').fqdn}"
CONTROL = "/run/gitlab/control.sock"

PEOPLE = {"alice": 101, "bob": 102, "mallory": 103, "carol": 104, "eve": 105}
"""GitLab users and their ids; what each may be on the cluster stands in policies/accounts.toml."""

ACCOUNTS = frozenset(PEOPLE) - {"eve"}
"""Those who have an account at the desk, with a personal access token of GitLab's there."""

SERVICE = Service(
    name="gitlab",
    host="gitlab",
    argv=(
        *(sys.executable, "-m", "realm.gitlab", "--host", spec("gitlab").address, "--port", "443"),
        *("--cert", tls.CERTIFICATE_PATH, "--key", tls.KEY_PATH, "--external-url", URL),
        *("--repos", "/var/lib/gitlab", "--control", CONTROL, "--trace-update-seconds", "1"),
    ),
    cwd=str(CHECKOUT),
    ready=all_of(connects(443), answers("test", "-S", CONTROL)),
    tcp=(443,),
    runtime=(Runtime("/run/gitlab", mode=0o700),),
)


def control(realm: Realm) -> GitLabControl:
    """The stand-in's control client, for the process that holds the realm."""
    return GitLabControl(realm.host("gitlab").path(CONTROL))


def token_header(name: str) -> str:
    """Path on host `desk` of a file that only `name` can read: the HTTP header with their personal access token."""
    return f"/etc/realm/gitlab-{name}.header"


def _start(realm: Realm) -> None:
    realm.host("gitlab").mkdir("/var/lib/gitlab", mode=0o700)
    realm.start_service(SERVICE)
    with control(realm) as client:
        for name, number in PEOPLE.items():
            user = client.create_user(name, id=number)
            if name in ACCOUNTS and "desk" in realm.hosts:
                realm.host("desk").write(token_header(name), f"PRIVATE-TOKEN: {user.token}\n", mode=0o600, owner=name)


STEPS: tuple[Step, ...] = (Step("gitlab.start", _start, ("dress", "tls")),)
