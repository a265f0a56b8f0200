"""Slurm's memory: MariaDB and slurmdbd on host `ctl`, with the accounts, users and QOS of the realm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from realm.host import Host
from realm.service import Runtime, Service, answers
from realm.topology import spec

if TYPE_CHECKING:
    from realm.cluster import Realm

CLUSTER = "realm"
DBD_PORT = 6819
ACCOUNTS: dict[str, tuple[str, ...]] = {"chem": ("alice",), "bio": ("bob",)}
"""Slurm account to its users; who is in none of them may not submit."""

_MY_CNF = "/etc/mysql/realm.cnf"
_SOCKET = "/run/mysqld/mysqld.sock"
_DATA = "/var/lib/mysql"

# Sized for a database in memory that lives for minutes; only the socket is open.
_MARIADB = f"""\
[mysqld]
user = mysql
datadir = {_DATA}
socket = {_SOCKET}
pid-file = /run/mysqld/mysqld.pid
skip-networking
skip-name-resolve
skip-log-bin
performance-schema = OFF
innodb_buffer_pool_size = 64M
innodb_log_file_size = 16M
innodb_lock_wait_timeout = 900
innodb_flush_log_at_trx_commit = 0

[client]
socket = {_SOCKET}
"""
_DBD_CONF = f"""\
AuthType=auth/munge
DbdHost=ctl
DbdAddr={spec("ctl").address}
DbdPort={DBD_PORT}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct
PidFile=/run/slurm/slurmdbd.pid
DebugLevel=info
CommitDelay=0
"""
# The socket's peer is the proof (MariaDB's unix_socket plugin): no password exists.
_GRANT = """\
CREATE DATABASE slurm_acct;
CREATE USER slurm@localhost IDENTIFIED VIA unix_socket;
GRANT ALL ON slurm_acct.* TO slurm@localhost;
"""

MARIADB = Service(
    name="mariadb",
    host="ctl",
    argv=("/usr/sbin/mariadbd", f"--defaults-file={_MY_CNF}"),
    ready=answers("/usr/bin/mariadb", f"--defaults-file={_MY_CNF}", "-N", "-e", "SELECT 41+1", expect="42"),
    runtime=(Runtime("/run/mysqld", "mysql"),),
)
SLURMDBD = Service(
    name="slurmdbd",
    host="ctl",
    argv=("/usr/sbin/slurmdbd", "-D"),
    user="slurm",
    ready=answers("/usr/bin/sacctmgr", "-n", "-P", "list", "qos", "format=name", expect="normal"),
    tcp=(DBD_PORT,),
    depends=("mariadb", "munged-ctl"),
    runtime=(Runtime("/run/slurm", "slurm"),),
)


def start_database(realm: Realm) -> None:
    """Make an empty MariaDB, start it, and give slurmdbd its database."""
    host = realm.host("ctl")
    host.write(_MY_CNF, _MARIADB)
    host.mkdir(_DATA, mode=0o700, owner="mysql")
    install = ["/usr/bin/mariadb-install-db", f"--defaults-file={_MY_CNF}", "--user=mysql"]
    host.run([*install, "--auth-root-authentication-method=socket", "--skip-test-db"])
    realm.start_service(MARIADB)
    host.run(["/usr/bin/mariadb", f"--defaults-file={_MY_CNF}"], input=_GRANT.encode())


def start_slurmdbd(realm: Realm) -> None:
    """Start slurmdbd, which makes its tables on the first start."""
    realm.host("ctl").write("/etc/slurm/slurmdbd.conf", _DBD_CONF, mode=0o600, owner="slurm")
    realm.start_service(SLURMDBD)


def populate(realm: Realm) -> None:
    """Make the cluster, the QOS and the accounts with their users."""
    host = realm.host("ctl")
    _sacctmgr(host, "add", "cluster", CLUSTER)
    _sacctmgr(host, "add", "qos", "ci")
    _sacctmgr(host, "add", "account", ",".join(ACCOUNTS), f"Cluster={CLUSTER}")
    for account, users in ACCOUNTS.items():
        _sacctmgr(host, "add", "user", ",".join(users), f"Account={account}", "QOS=normal,ci", "DefaultQOS=normal")


def _sacctmgr(host: Host, *words: str) -> None:
    host.run(["/usr/bin/sacctmgr", "-i", "-Q", *words], user="slurm", cwd="/")
