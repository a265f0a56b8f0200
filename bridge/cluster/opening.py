"""Opens a login session: tickets become a credential, the credential a connection, and the connection an agent's.

How tickets become a credential is Kerberos's affair and is passed in, so that this room does not know that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from bridge.cluster.agent import AgentConnection
from bridge.cluster.login import LoginSession
from bridge.cluster.ssh import Credential, Endpoint, HostKeys, connect
from bridge.errors import Defect
from bridge.model import Cluster, TicketBundle

COMMAND: Final = "ci-bridge-login"
"""What is asked for; the login node's ForceCommand runs the agent whatever is asked."""

Hold = Callable[[TicketBundle], AbstractContextManager[Credential]]
"""Makes a ticket bundle usable for the length of a block: ``bridge.kerberos.holding.hold``."""


class LoginOpener:
    """Connects to login nodes; a ``pool.Connect``."""

    def __init__(self, hold: Hold, keys: HostKeys, *, addresses: Mapping[str, str] | None = None) -> None:
        """Take ``addresses`` for login nodes that are not to be looked up by name."""
        self._hold = hold
        self._keys = keys
        self._addresses = dict(addresses or {})

    def __call__(self, cluster: Cluster, account: str, bundle: TicketBundle) -> LoginSession:
        """Give a session whose agent runs as ``account``; raises what ``ssh.connect`` and ``hello`` raise."""
        endpoint = Endpoint(
            cluster.login_host, cluster.login_port, cluster.realm, self._addresses.get(cluster.login_host)
        )
        with self._hold(bundle) as credential:
            connection = connect(endpoint, account, bundle.principal, credential, self._keys)
        try:
            session = LoginSession(AgentConnection(connection.run(COMMAND)))
            _require_account(session, account)
        except BaseException:
            connection.close()
            raise
        return session


def _require_account(session: LoginSession, account: str) -> None:
    hello = session.hello()
    if hello.user != account or hello.uid == 0:
        raise Defect(
            "login.wrong_person",
            "The login agent runs as somebody else.",
            "Give the reference to the operators of the bridge; the connection was closed.",
            expected=account,
            got=hello.user,
            uid=hello.uid,
        )
