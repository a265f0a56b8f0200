"""The driver's small parts, without processes: masking, configuration, scopes, durations, choice."""

import random
import zipfile
from pathlib import Path

import pytest

from realm.runner.choice import runner_command
from realm.runner.config import ConfigError, load_config
from realm.runner.context import Context
from realm.runner.custom import parse_config_output
from realm.runner.errors import JobCanceled, JobTimeout, SystemFailure, go_duration
from realm.runner.helper_binary import HelperError, _unpack
from realm.runner.masking import Masker
from realm.runner.variables import Variable, attempts, duration, expanded

MINIMAL = """
[[runners]]
name = "r"
url = "https://gitlab.example.invalid/"
token = "glrt-abcdefghijklmnop"
executor = "custom"
[runners.custom]
run_exec = "/bin/true"
"""


@pytest.mark.parametrize("seed", range(20))
def test_masker_hides_secrets_however_the_output_is_cut(seed: int) -> None:
    dice = random.Random(seed)
    secrets = ["topsecret", "tops", "secretive", "aaab"]
    words = [*secrets, "top", "aaa", "harmless ", "glpat-12345678", " ", "\n"]
    text = "".join(dice.choice(words) for _ in range(60)).encode()
    masker = Masker(secrets, ["glpat-"])
    shown, position = b"", 0
    while position < len(text):
        step = dice.randint(1, 7)
        shown += masker.feed(text[position : position + step])
        position += step
    shown += masker.flush()
    whole = Masker(secrets, ["glpat-"])
    assert shown == whole.feed(text) + whole.flush()
    for secret in ("topsecret", "secretive", "12345678"):
        assert secret.encode() not in shown


def test_masker_passes_harmless_output_through_at_once() -> None:
    assert Masker(["secret"]).feed(b"hello\n") == b"hello\n"


def test_config_takes_the_true_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(MINIMAL + "graceful_kill_timeout = 0\nprepare_exec_timeout = -1\n")
    runner = load_config(path).runners[0]
    custom = runner.custom
    assert (custom.config_exec_timeout, custom.prepare_exec_timeout, custom.cleanup_exec_timeout) == (3600,) * 3
    assert (custom.graceful_kill_timeout, custom.force_kill_timeout) == (600, 10)
    assert (runner.short_token, runner.url) == ("abcdefghi", "https://gitlab.example.invalid")
    assert "abcdefghijklmnop" not in repr(runner)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no \\[\\[runners\\]\\]"),
        ("[[runners]]\nexecutor = 'shell'", "custom"),
        (MINIMAL.replace('run_exec = "/bin/true"', ""), "missing run_exec"),
        (MINIMAL.replace('token = "glrt-abcdefghijklmnop"', ""), "token is missing"),
        ("not = [toml", "config.toml"),
    ],
)
def test_config_that_can_not_work_is_refused_with_a_reason(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config(path)


def test_context_ends_with_its_parent_and_keeps_the_first_cause() -> None:
    parent = Context()
    child = Context(parent)
    parent.cancel(JobCanceled())
    child.cancel(SystemFailure("late"))
    assert isinstance(child.cause, JobCanceled)


def test_context_deadline_of_the_parent_ends_the_child() -> None:
    child = Context(Context(None, 0.05, lambda: JobTimeout(0.05)), 60)
    child.wait(30)
    assert isinstance(child.cause, JobTimeout)


@pytest.mark.parametrize(
    "printed",
    [b"\n", b"[]", b"{", b'{"job_env": {"A": 1}}', b'{"driver": "x"}', b'{"builds_dir_is_shared": "yes"}', b"7"],
)
def test_config_output_of_the_wrong_shape_is_a_system_failure(printed: bytes) -> None:
    with pytest.raises(SystemFailure, match="error while parsing JSON output"):
        parse_config_output(printed)


def test_config_output_may_be_empty_or_hold_unknown_keys() -> None:
    assert parse_config_output(b"").builds_dir is None
    assert parse_config_output(b'{"new_key": 1, "builds_dir": "/b"}').builds_dir == "/b"


def test_expansion_is_done_once_and_unknown_names_vanish() -> None:
    variables = [Variable("A", "$B"), Variable("B", "${C}!"), Variable("C", "c"), Variable("D", "$NONE-$")]
    assert [variable.value for variable in expanded(variables)] == ["${C}!", "c!", "c", "-$"]


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("1h30m", 5400), ("90", 90), ("1.5s", 1.5), ("soon", 7)])
def test_durations_are_read_as_go_does(text: str, seconds: float) -> None:
    assert duration([Variable("T", text)], "T", 7) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(2, "2s"), (125, "2m5s"), (3600, "1h0m0s"), (1.5, "1.5s")])
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@pytest.mark.parametrize("text", ["0", "11", "-1", "many"])
def test_attempts_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of the range"):
        attempts([Variable("GET_SOURCES_ATTEMPTS", text)], "GET_SOURCES_ATTEMPTS")


def _archive(path: Path, entries: list[tuple[str, str, bool]]) -> zipfile.ZipFile:
    """A zip of (name, content or link target, whether it is a link)."""
    with zipfile.ZipFile(path, "w") as packed:
        for name, content, is_link in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if is_link else 0o100644) << 16
            packed.writestr(entry, content)
    return zipfile.ZipFile(path)


@pytest.mark.parametrize(
    "entries",
    [
        [("../evil", "x", False)],
        [("a/../../evil", "x", False)],
        [("link", "/etc", True)],
        [("link", "../outside", True)],
        [("sub/link", "../../outside", True)],
        [("planted/evil", "x", False)],
    ],
)
def test_archive_that_reaches_outside_the_project_is_refused(
    tmp_path: Path, entries: list[tuple[str, str, bool]]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "outside").mkdir()
    (project / "planted").symlink_to(tmp_path / "outside")
    with _archive(tmp_path / "a.zip", entries) as packed, pytest.raises(HelperError, match="outside the project"):
        _unpack(packed, project)
    assert not list(tmp_path.rglob("evil"))


def test_archive_keeps_links_and_permissions_inside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with _archive(tmp_path / "a.zip", [("d/file", "text", False), ("d/link", "file", True)]) as packed:
        _unpack(packed, project)
    assert (project / "d" / "link").readlink() == Path("file")
    assert (project / "d" / "link").read_text() == "text"
    assert (project / "d" / "file").stat().st_mode & 0o777 == 0o644


def test_real_runner_is_preferred_but_our_helper_is_not_mistaken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "gitlab-runner"
    program.symlink_to(Path(__file__).parents[2] / "realm" / "runner" / "helper_binary.py")
    assert runner_command(Path("c.toml"))[1:] == ["-m", "realm.runner", "--config", "c.toml", "run"]
    program.unlink()
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    assert runner_command(Path("c.toml")) == [str(program), "run", "--config", "c.toml"]
