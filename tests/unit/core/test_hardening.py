"""A process that closed itself off, under attack: by another user, by its own user, by a crash, by the swap."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge import hardening

CHECKOUT = Path(__file__).parents[3]
OWN, OTHER = 65533, 65532
CANARY = "canary-4f1d9c"

VICTIM = """
import ctypes, os, signal, sys
from bridge import hardening
libc = ctypes.CDLL(None, use_errno=True)
def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(4, 1, 0, 0, 0)
    libc.prctl(0x59616d61, ctypes.c_ulong(-1 & 2**64 - 1), 0, 0, 0)  # a Yama that restricts would do our work
def hold():
    os.write(1, b"ready\\n")
    os.read(0, 1)
"""


@contextmanager
def victim(program: str, *prefix: str, cwd: Path = CHECKOUT) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs ``program`` and then holds still until the end of the block."""
    secret = os.environ | {"CANARY": CANARY, "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(
        [*prefix, sys.executable, "-B", "-c", VICTIM + program + "\nhold()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
        env=secret,
    )
    assert process.stdin
    assert process.stdout
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait(20)
        process.stdin.close()
        process.stdout.close()


ATTACKS = {
    "reads its memory": "open(f'/proc/{pid}/mem', 'rb')",
    "reads its environment": "assert b'CANARY' in open(f'/proc/{pid}/environ', 'rb').read()",
    "reads where its memory is": "assert open(f'/proc/{pid}/maps').read()",
    "opens its files": "assert os.listdir(f'/proc/{pid}/fd')",
    "learns what it executes": "os.readlink(f'/proc/{pid}/exe')",
    "enters its directory": "os.chdir(f'/proc/{pid}/cwd')",
    "traces it": "check(libc.ptrace(16, pid, 0, 0))",
    "traces it without a signal": "check(libc.ptrace(0x4206, pid, 0, 0))",
    "copies its memory": "copy(pid)",
    "takes a descriptor of its": "check(libc.syscall(438, os.pidfd_open(pid), 0, 0))",
}
ATTACKER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
pid = int(sys.argv[1])
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
def copy(pid):
    # Any address will do: who may not read gets EPERM, and who may gets EFAULT for a bad one.
    own = ctypes.create_string_buffer(8)
    here, there = Part(ctypes.addressof(own), 8), Part(4096, 8)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0 and ctypes.get_errno() != 14:
        raise PermissionError
try:
    %s
except PermissionError:
    print("refused")
except OSError as error:
    print("refused" if error.errno in (1, 13) else error)
else:
    print("in")
"""


def attack(pid: int, uid: int, what: str) -> str:
    """Do something to a process as a user: ``in`` or ``refused``."""
    done = subprocess.run(
        [
            *("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"),
            *("/usr/bin/python3", "-I", "-S", "-c", ATTACKER % what, str(pid)),
        ],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == b""
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def closed() -> Iterator[int]:
    """A process of an ordinary user's that closed itself off."""
    with victim(f"become({OWN}); hardening.close_off()") as process:
        yield process.pid


@pytest.fixture(scope="module")
def open_one() -> Iterator[int]:
    """The same without it."""
    with victim(f"become({OWN})") as process:
        yield process.pid


@pytest.mark.threat("T27")
@pytest.mark.parametrize("uid", [OWN, OTHER])
@pytest.mark.parametrize("what", ATTACKS.values(), ids=ATTACKS.keys())
def test_nobody_looks_into_a_closed_process(closed: int, uid: int, what: str) -> None:
    assert attack(closed, uid, what) == "refused"


@pytest.mark.parametrize("what", ATTACKS.values(), ids=ATTACKS.keys())
def test_the_attacks_work_on_an_open_process(open_one: int, what: str) -> None:
    assert attack(open_one, OWN, what) == "in"
    assert attack(open_one, OTHER, what) == "refused"


def ending(program: str, folder: Path) -> int:
    """How a process ends that may write as large a core file as it likes, and breaks: a CLD_* of waitid(2)."""
    with victim(program, "prlimit", "--core=unlimited:unlimited", cwd=folder) as process:
        process.send_signal(signal.SIGSEGV)
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        return ended.si_code


CRASHES = {
    "as a service does": "hardening.close_off()",
    # core(5): where core_pattern is a program the limit does not count, so that this must do by itself
    "not dumpable alone": "hardening._prctl(hardening.PR_SET_DUMPABLE, 0)",
    "a limit of nothing alone": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
}


@pytest.mark.threat("T27")
@pytest.mark.parametrize("guard", CRASHES.values(), ids=CRASHES.keys())
def test_a_crash_leaves_no_core(tmp_path: Path, guard: str) -> None:
    assert ending("pass", tmp_path) == os.CLD_DUMPED, "this machine writes no cores, so the test shows nothing"
    for core in tmp_path.iterdir():
        core.unlink()
    assert ending(guard, tmp_path) == os.CLD_KILLED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.threat("T27")
def test_a_closed_process_gains_nothing_by_a_program_of_root_s(short_path: Path) -> None:
    short_path.chmod(0o755)
    program = short_path / "id"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    run = f"import subprocess; euid = subprocess.check_output(['{program}', '-u']).decode().strip()"
    told = "os.write(2, euid.encode())"
    seen = []
    for guard in ("pass", "hardening.close_off()"):
        done = subprocess.run(
            [sys.executable, "-B", "-c", f"{VICTIM}\nbecome({OWN}); {guard}; {run}; {told}"],
            capture_output=True,
            timeout=30,
            check=False,
            cwd=CHECKOUT,
        )
        seen.append(done.stderr.decode())
    assert seen == ["0", str(OWN)]


@pytest.mark.threat("T27")
def test_a_traced_process_does_not_start() -> None:
    program = "libc.ptrace(0, 0, 0, 0)\ntry: hardening.close_off()\nexcept Exception as error: print(error.code)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", VICTIM + program], capture_output=True, timeout=30, check=False, cwd=CHECKOUT
    )
    assert (done.stdout.strip(), done.stderr) == (b"process.traced", b"")


def locked_flags(pid: int) -> list[bool]:
    """Of each mapping of private memory with something in it, whether it is locked (proc(5), VmFlags ``lo``)."""
    flags, resident = [], 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if line.startswith("Rss:"):
            resident = int(line.split()[1])
        elif line.startswith("VmFlags:") and resident:
            flags.append("lo" in line.split() or "pf" in line.split() or "io" in line.split())
    return flags


LATER = """
import threading
kept, gate = bytearray(64 * 2**20), threading.Event()
for _ in range(64):
    threading.Thread(target=gate.wait, daemon=True).start()
"""


@pytest.mark.threat("T27")
def test_no_page_of_a_locked_process_can_be_swapped_out() -> None:
    with victim(f"assert hardening.lock_memory() is None\n{LATER}") as process:
        status = hardening._fields(Path(f"/proc/{process.pid}/status"))
        flags = locked_flags(process.pid)
        used = int(status["VmRSS"].split()[0])
    assert flags.count(False) <= 3, "all but what the kernel itself maps, such as vvar"
    assert len(flags) > 20
    assert status["VmSwap"] == "0 kB"
    assert used < 200 * 1024, "64 threads' stacks and the heap's arenas are locked as they are used, not as a whole"


@pytest.mark.threat("T27")
@pytest.mark.parametrize("limit", [0, 64 * 1024, 8 * 2**20])
def test_a_process_that_may_not_lock_says_so_and_runs(limit: int) -> None:
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, ({limit}, {limit}))
become({OWN})
reason = hardening.lock_memory()
assert reason and "RLIMIT_MEMLOCK" in reason, reason
{LATER}
"""
    with victim(program) as process:
        assert "is not locked" in str(hardening.weaknesses(process.pid))


@pytest.mark.threat("T27")
def test_what_is_open_is_seen_from_outside() -> None:
    with victim(f"become({OWN})", "prlimit", "--core=unlimited:unlimited") as process:
        assert hardening.weaknesses(process.pid) == (
            "can be read and traced by its own user",
            "may write a core file",
            "may gain rights by executing a program",
            "has memory that is not locked, and may be swapped",
        )


def test_what_is_closed_is_seen_from_outside(closed: int) -> None:
    assert hardening.weaknesses(closed) == ("has memory that is not locked, and may be swapped",)
    with victim("assert hardening.lock_memory() is None; hardening.close_off()") as process:
        assert hardening.weaknesses(process.pid) == ()


def test_a_process_that_is_gone_is_not_good() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait(20)
    with pytest.raises(ProcessLookupError):
        hardening.weaknesses(process.pid)
