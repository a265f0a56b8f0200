"""Slurm: munge everywhere, slurmctld on `ctl`, slurmd on the nodes, and the configuration that they share."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from realm import accounting, deployed
from realm.plan import Step
from realm.service import Runtime, Service, answers
from realm.topology import spec

if TYPE_CHECKING:
    from realm.cluster import Realm
    from realm.host import Host

BINARIES = (
    "/usr/sbin/munged",
    "/usr/sbin/mariadbd",
    "/usr/bin/mariadb-install-db",
    "/usr/sbin/slurmdbd",
    "/usr/sbin/slurmctld",
    "/usr/sbin/slurmd",
    "/usr/bin/sbatch",
)
MEMBERS = ("login", "ctl", "node1", "node2")
NODES = ("node1", "node2")
_CONTROLLER_PORT = 6817
_NODE_PORT = 6818


def munged(host: str) -> Service:
    """The munge daemon of one host."""
    return Service(
        name=f"munged-{host}",
        host=host,
        argv=("/usr/sbin/munged", "--foreground", "--num-threads=4"),
        user="munge",
        ready=answers("/usr/bin/munge", "-n", expect="MUNGE:"),
        runtime=(Runtime("/run/munge", "munge"),),
    )


def slurmd(node: str) -> Service:
    """The node daemon; ready when it answers and the controller has registered this very start of it.

    After a boot it says so (-b): its own way to tell, the kernel's uptime, is the machine's.
    """
    return Service(
        name=f"slurmd-{node}",
        host=node,
        argv=("/usr/sbin/slurmd", "-D"),
        after_boot=("-b",),
        ready=lambda host: _registered(host, node),
        tcp=(_NODE_PORT,),
        depends=(f"munged-{node}", "slurmctld"),
        runtime=(Runtime("/run/slurm", "slurm"),),
    )


def _registered(host: Host, node: str) -> bool:
    """Whether the controller has heard from the slurmd that runs now, and counts on it.

    Not by sinfo's `-t idle,alloc,mix`: it leaves out a busy node whenever its own state and that of its CPUs differ,
    which on a node with a running job may last as long as the job.
    """
    own = host.run(["/usr/bin/scontrol", "show", "slurmd"], check=False, timeout=10).stdout.decode()
    started = re.search(r"^Boot time += (\S+)", own, re.MULTILINE)
    known = host.run(["/usr/bin/scontrol", "--oneliner", "show", "node", node], check=False, timeout=10).stdout.decode()
    state = re.search(r" State=(\S+)", known)
    if started is None or state is None or f" SlurmdStartTime={started[1]} " not in known:
        return False
    return "*" not in state[1] and not {"UNKNOWN", "DOWN", "NOT_RESPONDING"} & set(state[1].split("+"))


SLURMCTLD = Service(
    name="slurmctld",
    host="ctl",
    argv=("/usr/sbin/slurmctld", "-D"),
    user="slurm",
    ready=answers("/usr/bin/scontrol", "ping", expect="is UP"),
    tcp=(_CONTROLLER_PORT,),
    depends=("munged-ctl", "slurmdbd"),
    runtime=(Runtime("/run/slurm", "slurm"),),
)


def slurm_conf() -> str:
    """slurm.conf(5), the same on every host; it names the driver's prolog and epilog only if the checkout has them."""
    hooks = deployed.slurm_hooks()
    lines = [f"{word.capitalize()}={path}" for word, path in hooks.items()]
    lines += [f"NodeName={node} NodeAddr={spec(node).address} {_NODE}" for node in NODES]
    return _SLURM_CONF + "\n".join(lines) + _PARTITIONS


# More CPUs than the machine has (config_overrides), so that tests run many small jobs at once.
_NODE = "CPUs=16 RealMemory=16000 State=UNKNOWN"
_PARTITIONS = """
PartitionName=ci Nodes=ALL Default=YES MaxTime=02:00:00 DefaultTime=00:10:00 OverSubscribe=NO State=UP
PartitionName=debug Nodes=ALL Default=NO MaxTime=00:10:00 DefaultTime=00:02:00 OverSubscribe=NO State=UP
"""
_SLURM_CONF = f"""\
ClusterName={accounting.CLUSTER}
SlurmctldHost=ctl({spec("ctl").address})
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
CommunicationParameters=NoAddrCache

SlurmctldPort={_CONTROLLER_PORT}
SlurmdPort={_NODE_PORT}
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides

ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PropagateResourceLimits=NONE

SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=1000
PriorityType=priority/basic
JobRequeue=0
KillWait=3
CompleteWait=0
MinJobAge=300
InactiveLimit=0
MessageTimeout=10
SlurmctldTimeout=30
SlurmdTimeout=60
BatchStartTimeout=1
ReturnToService=2
PrologFlags=Alloc

AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStoragePort={accounting.DBD_PORT}
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
"""


def _configure(realm: Realm) -> None:
    """One munge key and one slurm.conf for all members, and the directories that each daemon expects."""
    key, conf = secrets.token_bytes(128), slurm_conf()
    for name in MEMBERS:
        host = realm.host(name)
        host.write("/etc/munge/munge.key", key, mode=0o400, owner="munge")
        for path in ("/var/lib/munge", "/var/log/munge"):
            host.mkdir(path, mode=0o700, owner="munge")
        host.write("/etc/slurm/slurm.conf", conf)
        host.write("/etc/slurm/plugstack.conf", "")
        host.mkdir("/var/spool/slurmd", mode=0o755)
    realm.host("ctl").mkdir("/var/spool/slurmctld", mode=0o700, owner="slurm")


def _starts(service: Service, *needs: str) -> Step:
    return Step(f"slurm.{service.name}", lambda realm: realm.start_service(service), needs)


STEPS: tuple[Step, ...] = (
    Step("slurm.configure", _configure, ("dress",)),
    Step("slurm.mariadb", accounting.start_database, ("dress",)),
    *(_starts(munged(host), "slurm.configure") for host in MEMBERS),
    Step("slurm.slurmdbd", accounting.start_slurmdbd, ("slurm.mariadb", "slurm.munged-ctl")),
    Step("slurm.accounts", accounting.populate, ("slurm.slurmdbd",)),
    _starts(SLURMCTLD, "slurm.accounts"),
    *(_starts(slurmd(node), "slurm.slurmctld", f"slurm.munged-{node}") for node in NODES),
)
