"""What goes wrong with SSH, as errors of the bridge."""

from __future__ import annotations

from bridge.errors import BridgeError, Outage, PolicyRefused


def unreachable(error: BaseException) -> BridgeError:
    """No connection, or it broke."""
    return Outage(
        "ssh.unreachable",
        "The login node can't be reached.",
        "Retry the job; if it lasts, tell the operators of the cluster.",
        why=f"{type(error).__name__}: {error}",
    )


def timeout() -> BridgeError:
    """The node was silent for too long."""
    return Outage(
        "ssh.timeout",
        "The login node took too long to let the bridge in.",
        "Retry the job; if it lasts, tell the operators of the cluster.",
    )


def kerberos_failed(why: str) -> BridgeError:
    """No context: ticket, keytab or mechanism."""
    return Outage(
        "ssh.kerberos",
        "The login node and the bridge could not agree by Kerberos.",
        "Retry the job; if it lasts, an operator checks the login node's keytab and the ticket targets.",
        why=why,
    )


def clock_skew(why: str) -> BridgeError:
    """The node says that our fresh ticket is of another time than its own."""
    return Outage(
        "ssh.clock_skew",
        "The clocks of the login node and the KDC differ too much.",
        "An operator checks time synchronisation on the login node; then retry the job.",
        why=why,
    )


def refused(account: str) -> BridgeError:
    """The node knows who it is, and says no."""
    return PolicyRefused(
        "ssh.refused",
        f"The login node does not let '{account}' in.",
        "Ask the operators of the cluster whether the account may log in there.",
        account=account,
    )
