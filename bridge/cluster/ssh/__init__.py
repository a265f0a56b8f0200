"""SSH to a login node as one person: pinned host keys, Kerberos with a credential that is passed in, nothing delegated.

``connect`` is the way in. Only this package knows paramiko, and it alone outside the room of Kerberos knows GSSAPI.
"""

from bridge.cluster.ssh.connection import Credential, SshConnection, SshPipe, connect
from bridge.cluster.ssh.endpoint import Endpoint
from bridge.cluster.ssh.hostkeys import HostKeys

__all__ = ["Credential", "Endpoint", "HostKeys", "SshConnection", "SshPipe", "connect"]
