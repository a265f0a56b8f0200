"""SCHEDULER_PARAMETERS: what is allowed is read as sbatch reads it, everything else is refused by name."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.cluster.options import ALLOWED_OPTIONS, parse_options, to_argv
from bridge.errors import RequestRefused
from bridge.model import SlurmPlan, SlurmRequest

READ: list[tuple[str, SlurmRequest]] = [
    ("", SlurmRequest()),
    ("   ", SlurmRequest()),
    ("-p debug", SlurmRequest(partition="debug")),
    ("-pdebug", SlurmRequest(partition="debug")),
    ("--partition=debug", SlurmRequest(partition="debug")),
    ("--partition debug", SlurmRequest(partition="debug")),
    ("-q high -A chem", SlurmRequest(qos="high", slurm_account="chem")),
    ("--qos=high --account=chem", SlurmRequest(qos="high", slurm_account="chem")),
    ("-N 2", SlurmRequest(nodes=2)),
    ("-N2-2", SlurmRequest(nodes=2)),
    ("-n 8 --ntasks-per-node=4 -c2", SlurmRequest(tasks=8, tasks_per_node=4, cpus_per_task=2)),
    ("--ntasks=8 --cpus-per-task 2", SlurmRequest(tasks=8, cpus_per_task=2)),
    ("-G 4", SlurmRequest(gpus=4)),
    ("--gpus=4", SlurmRequest(gpus=4)),
    ("--gres=gpu", SlurmRequest(gpus=1)),
    ("--gres=gpu:4", SlurmRequest(gpus=4)),
    ("--gres=gpu:4 -N 3", SlurmRequest(gpus=12, nodes=3)),
    ("-N 3 --gres=gpu:4", SlurmRequest(gpus=12, nodes=3)),
    ("--mem=512", SlurmRequest(memory_mib=512)),
    ("--mem=512M", SlurmRequest(memory_mib=512)),
    ("--mem=16G", SlurmRequest(memory_mib=16384)),
    ("--mem=16gb", SlurmRequest(memory_mib=16384)),
    ("--mem=1T", SlurmRequest(memory_mib=1048576)),
    ("--mem=1K", SlurmRequest(memory_mib=1)),
    ("--mem=1025K", SlurmRequest(memory_mib=2)),
    ("-t 30", SlurmRequest(time_minutes=30)),
    ("-t 30:00", SlurmRequest(time_minutes=30)),
    ("-t 30:01", SlurmRequest(time_minutes=31)),
    ("-t 1:30:00", SlurmRequest(time_minutes=90)),
    ("-t 0:0:1", SlurmRequest(time_minutes=1)),
    ("-t 1-0", SlurmRequest(time_minutes=1440)),
    ("-t 1-2", SlurmRequest(time_minutes=1560)),
    ("-t 1-2:30", SlurmRequest(time_minutes=1590)),
    ("-t 1-2:30:01", SlurmRequest(time_minutes=1591)),
    ("--time=100", SlurmRequest(time_minutes=100)),
    ("-C 'intel&gpu'", SlurmRequest(constraint="intel&gpu")),
    ("--constraint=[rack1|rack2]", SlurmRequest(constraint="[rack1|rack2]")),
    ("--exclusive", SlurmRequest(exclusive=True)),
    ("--exclusive -p debug", SlurmRequest(exclusive=True, partition="debug")),
    ('--partition="debug"', SlurmRequest(partition="debug")),
]


@pytest.mark.parametrize(("text", "request_"), READ)
def test_reads_what_sbatch_reads(text: str, request_: SlurmRequest) -> None:
    assert parse_options(text) == request_


# sbatch(1) of 22.05, and what later releases added.
SBATCH_LONG = re.findall(
    r"\S+",
    """
account acctg-freq array batch bb bbf begin chdir cluster-constraint clusters comment constraint container contiguous
core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution error exclude
exclusive export export-file extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket
gpus-per-task gres gres-flags help hint hold ignore-pbs input job-name kill-on-invalid-dep licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice no-kill no-requeue nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output overcommit oversubscribe parsable
partition power prefer priority profile propagate qos quiet reboot requeue reservation signal sockets-per-node
spread-job switches test-only thread-spec threads-per-core time time-min tmp uid usage use-min-nodes verbose version
wait wait-all-nodes wckey wrap admin-comment extra segment stepmgr tres-bind tres-per-task tres-per-job resv-ports
prolog epilog task-prolog task-epilog container-id async oom-kill-step consolidate-segments spank cluster share
""",
)
SBATCH_SHORT = "aBbDdeFgHhIiJjkLlMmOoPQSsTuVvWwXxZ"


@pytest.mark.threat("T30")
@pytest.mark.parametrize("name", sorted(set(SBATCH_LONG) - set(ALLOWED_OPTIONS)))
@pytest.mark.parametrize("form", ["--{}", "--{}=1", "--{} 1", "-p debug --{}=1", "--{}=1 -p debug"])
def test_every_other_long_option_is_refused_by_name(name: str, form: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_options(form.format(name))
    assert caught.value.code == "slurm.option_refused"
    assert f"'--{name}'" in caught.value.title
    assert "--partition" in caught.value.remedy


@pytest.mark.threat("T30")
@pytest.mark.parametrize("letter", SBATCH_SHORT)
@pytest.mark.parametrize("form", ["-{}", "-{}1", "-{} 1", "-p debug -{}", "-{}pdebug"])
def test_every_other_short_option_is_refused_by_name(letter: str, form: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_options(form.format(letter))
    assert caught.value.code == "slurm.option_refused"
    assert f"'-{letter}'" in caught.value.title


@pytest.mark.threat("T30")
@pytest.mark.parametrize(
    "text", ["--part=debug", "--exclus", "--ntask=1", "--tim=1", "--account-x=1", "--=x", "---partition=x"]
)
def test_abbreviations_are_not_guessed(text: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_options(text)
    assert caught.value.code == "slurm.option_refused"


VALUES: list[str] = [
    "-N 0",
    "-N -1",
    "-N 1-2",
    "-N 2-1",
    "-N 1-",
    "-N 100001",
    "-N 1e3",
    "-N ٣",
    "-N 1.5",
    "-n 0",
    "-n x",
    "-c 0",
    "-c=2",
    "-G 0",
    "-G a100:2",
    "--gres=gpu:0",
    "--gres=gpu:a100:2",
    "--gres=gpu:1,fs:lustre:2",
    "--gres=mps:100",
    "--mem=0",
    "--mem=-1",
    "--mem=",
    "--mem=1X",
    "--mem=99999999T",
    "--mem=1.5G",
    "-t 0",
    "-t 0:0:0",
    "-t -1",
    "-t UNLIMITED",
    "-t INFINITE",
    "-t 1:2:3:4",
    "-t 1-",
    "-t -1-2",
    "-t 367-0",
    "-t 99999999",
    "-t 1h",
    "-p a,b",
    "-p ''",
    "-p",
    "-p -A",
    "-p --uid=0",
    "-p 'a b'",
    "-p a;b",
    "-p $(id)",
    "-p ../x",
    "-p -x",
    "-p ä",
    "-p " + "a" * 65,
    "-q high,low",
    "-A x/y",
    "-C '--uid=0'",
    "-C 'a b'",
    "-C $(id)",
    "--exclusive=user",
    "--exclusive=mcs",
]


@pytest.mark.parametrize("text", VALUES)
def test_odd_values_are_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_options(text)
    assert caught.value.code == "slurm.option_value"
    assert "expected is" in caught.value.title


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("debug", "slurm.options_malformed"),
        ("-p debug script.sh", "slurm.options_malformed"),
        ("--", "slurm.options_malformed"),
        ("-", "slurm.options_malformed"),
        ("-p 'debug", "slurm.options_malformed"),
        ("-p debug\\", "slurm.options_malformed"),
        ("-p debug\n--uid=0", "slurm.options_malformed"),
        ("-p debug\0", "slurm.options_malformed"),
        ("-p \x1b[31mdebug", "slurm.options_malformed"),
        ("x" * 5000, "slurm.options_malformed"),
        ("-p a -p a", "slurm.option_repeated"),
        ("-p a --partition=b", "slurm.option_repeated"),
        ("-G 1 --gres=gpu:1", "slurm.option_repeated"),
        ("--exclusive --exclusive", "slurm.option_repeated"),
    ],
)
def test_malformed_text_is_refused(text: str, code: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        parse_options(text)
    assert caught.value.code == code
    assert caught.value.title.isprintable()


@given(st.text(max_size=200))
def test_any_text_gives_a_request_or_a_refusal(text: str) -> None:
    try:
        request = parse_options(text)
    except RequestRefused as error:
        shown = f"{error.title} {error.remedy}"
        assert shown.isprintable()
        return
    assert isinstance(request, SlurmRequest)


PLAN = SlurmPlan(
    partition="ci",
    nodes=2,
    time_minutes=90,
    qos="high",
    slurm_account="chem",
    tasks=8,
    tasks_per_node=4,
    cpus_per_task=2,
    gpus=4,
    memory_mib=2048,
    constraint="intel&gpu",
    exclusive=True,
)
PLACES = {
    "job_name": "ci-abc-build_script",
    "comment": "ci job 17 of project 3",
    "private_dir": "/builds/alice/abc/private",
    "output": "/builds/alice/abc/private/build_script.log",
}
COMMAND = ("/usr/lib/ci-bridge/ci-bridge-job", "/builds/alice/abc/private/build_script.sh")


def test_the_command_line_says_everything_that_was_planned() -> None:
    assert to_argv(PLAN, **PLACES, command=COMMAND) == [
        "--hold",
        "--job-name=ci-abc-build_script",
        "--dependency=singleton",
        "--export=ALL",
        "--no-requeue",
        "--input=none",
        "--open-mode=append",
        "--output=/builds/alice/abc/private/build_script.log",
        "--chdir=/builds/alice/abc/private",
        "--comment=ci job 17 of project 3",
        "--partition=ci",
        "--qos=high",
        "--account=chem",
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--cpus-per-task=2",
        "--gpus=4",
        "--mem=2048M",
        "--time=90",
        "--constraint=intel&gpu",
        "--exclusive",
        *COMMAND,
    ]


def test_what_was_not_planned_is_not_said() -> None:
    argv = to_argv(SlurmPlan(partition="ci", nodes=1, time_minutes=5, gpus=0), **PLACES, command=COMMAND)
    assert not any(re.match(r"--(qos|account|ntasks|cpus|gpus|mem|constraint|exclusive)", word) for word in argv)


HOSTILE = (
    "--uid=0",
    "-D/",
    "a b",
    "a\nb",
    "$(id)",
    "`id`",
    "a;b",
    "a'b",
    'a"b',
    "a,b",
    "a=b c",
    "",
    "\0",
    "ä",
    "%j",
    "../x",
)


@pytest.mark.threat("T29")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *itertools.product(("partition", "qos", "slurm_account", "constraint"), HOSTILE),
        *itertools.product(("nodes", "tasks", "cpus_per_task", "memory_mib", "time_minutes"), (-1, 10**12)),
        *itertools.product(("nodes", "time_minutes", "memory_mib"), (0,)),
    ],
)
def test_a_hostile_plan_gets_no_command_line(field: str, value: object) -> None:
    values = {"partition": "ci", "nodes": 1, "time_minutes": 5} | {field: value}
    with pytest.raises(RequestRefused):
        to_argv(SlurmPlan(**values), **PLACES, command=COMMAND)  # type: ignore[arg-type]


@pytest.mark.threat("T29")
@pytest.mark.parametrize(("field", "value"), [*itertools.product(("job_name", "private_dir", "output"), HOSTILE)])
def test_hostile_places_get_no_command_line(field: str, value: str) -> None:
    with pytest.raises(RequestRefused):
        to_argv(PLAN, **(PLACES | {field: value}), command=COMMAND)


@pytest.mark.threat("T29")
@pytest.mark.parametrize("value", [word for word in HOSTILE if word not in ("", "a b", "a,b", "a=b c", "../x")])
def test_hostile_comments_get_no_command_line(value: str) -> None:
    if value.startswith("-"):
        assert f"--comment={value}" in to_argv(PLAN, **(PLACES | {"comment": value}), command=COMMAND)
        return
    with pytest.raises(RequestRefused):
        to_argv(PLAN, **(PLACES | {"comment": value}), command=COMMAND)


@pytest.mark.parametrize(
    "cache", ["FILE:/tmp/krb5cc_20001", "DIR:/run/user/20001/krb5cc", "KEYRING:persistent:20001", "KCM:"]
)
def test_the_wrapper_is_told_where_the_tickets_are(cache: str) -> None:
    assert to_argv(PLAN, **PLACES, command=COMMAND, ccache=cache)[-3:] == [*COMMAND, cache]


@pytest.mark.threat("T29")
@pytest.mark.parametrize(
    "cache",
    [*HOSTILE, "FILE:x", "FILE:/a b", "MEMORY:x", "KEYRING:session:x", "KEYRING:persistent:-1", "KCM:0", "KCM:\n"],
)
def test_nothing_but_a_caches_name_is_said_in_its_place(cache: str) -> None:
    with pytest.raises(RequestRefused):
        to_argv(PLAN, **PLACES, command=COMMAND, ccache=cache)


@pytest.mark.threat("T29")
@pytest.mark.parametrize(
    "command", [("relative.sh",), ("/bin/sh", "-c"), ("/bin/sh", "a b"), ("/bin/../sh",), ("/x\n",)]
)
def test_only_absolute_plain_paths_are_run(command: tuple[str, ...]) -> None:
    with pytest.raises(RequestRefused):
        to_argv(PLAN, **PLACES, command=command)
