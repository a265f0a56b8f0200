"""Opens a login session: tickets become a credential, the credential a connection, and the connection an agent's.

Where a cluster has several login nodes, the next one is tried when one can't be used. How tickets become a credential
is Kerberos's affair and is passed in, so that this room does not know that one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from bridge.cluster.agent import AgentConnection
from bridge.cluster.login import LoginSession
from bridge.cluster.rota import Rota
from bridge.cluster.ssh import Credential, Endpoint, HostKeys, connect
from bridge.errors import BridgeError, Defect, Outage, PolicyRefused
from bridge.model import Cluster, TicketBundle

COMMAND: Final = "ci-bridge-login"
"""What is asked for; the login node's ForceCommand runs the agent whatever is asked."""

Hold = Callable[[TicketBundle], AbstractContextManager[Credential]]
"""Makes a ticket bundle usable for the length of a block: ``bridge.kerberos.holding.hold``."""


class LoginOpener:
    """Connects to login nodes; a ``pool.Connect``. Safe in threads."""

    def __init__(
        self, hold: Hold, keys: HostKeys, *, addresses: Mapping[str, str] | None = None, rota: Rota | None = None
    ) -> None:
        """Take ``addresses`` for login nodes that are not to be looked up by name."""
        self._hold = hold
        self._keys = keys
        self._addresses = dict(addresses or {})
        self._rota = rota or Rota()

    def __call__(self, cluster: Cluster, account: str, bundle: TicketBundle) -> LoginSession:
        """Give a session whose agent runs as ``account``; raises what ``ssh.connect`` and ``hello`` raise.

        Another node is tried after an outage or a refusal of one. After a Defect none is: a node that shows a foreign
        key or lets in somebody else is to be looked at, and not to be gone around.
        """
        failures: list[BridgeError] = []
        for host in self._rota.order(cluster.name, account, cluster.login_names):
            try:
                session = self._open(cluster, host, account, bundle)
            except PolicyRefused as error:
                failures.append(error)
                self._rota.refused(host, account)
            except Outage as error:
                failures.append(error)
                self._rota.failed(host)
            else:
                self._rota.worked(cluster.name, account, host)
                return session
        # A node that was away might have let the account in, so an outage goes before a refusal.
        raise min(failures, key=lambda failure: not isinstance(failure, Outage))

    def _open(self, cluster: Cluster, host: str, account: str, bundle: TicketBundle) -> LoginSession:
        endpoint = Endpoint(host, cluster.login_port, cluster.realm, self._addresses.get(host))
        with self._hold(bundle) as credential:
            connection = connect(endpoint, account, bundle.principal, credential, self._keys)
        try:
            session = LoginSession(AgentConnection(connection.run(COMMAND), ends=bundle.end))
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
