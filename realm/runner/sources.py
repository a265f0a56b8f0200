"""The get_sources and clear_worktree scripts: git without a credential ever reaching the disk."""

from realm.runner.build import Build
from realm.runner.shell import YELLOW, BashScript

DEFAULT_CLEAN_FLAGS = "-ffdx"


def get_sources(build: Build) -> str | None:
    """Fetches the job's refs and checks its commit out, by GIT_STRATEGY fetch, clone, none or empty."""
    script = BashScript(build)
    strategy = build.lookup("GIT_STRATEGY", "fetch")
    if strategy in ("clone", "empty"):
        script.command("rm", "-rf", "--", build.project_dir)
    script.command("mkdir", "-p", "--", build.project_dir)
    if strategy in ("none", "empty"):
        script.say("Skipping Git repository setup", YELLOW)
        return script.text()
    _authenticate(script, build)
    _fetch(script, build)
    if build.lookup("GIT_CHECKOUT", "true") == "false":
        script.say("Skipping Git checkout", YELLOW)
    else:
        _checkout(script, build)
    return script.text()


def clear_worktree(build: Build) -> str | None:
    """Empties the project folder before the second attempt at get_sources."""
    script = BashScript(build)
    script.command("rm", "-rf", "--", build.project_dir)
    return script.text()


def _authenticate(script: BashScript, build: Build) -> None:
    """Lets git ask a helper that answers from the environment: nothing is written to .git/config or a file."""
    remote = _remote(build)
    base = remote.split("/", 3)
    server = "/".join(base[:3])
    helper = '!f() { test "$1" = get && printf "username=gitlab-ci-token\\npassword=%s\\n" "$CI_JOB_TOKEN"; }; f'
    settings = [
        # An empty first value clears helpers of the machine or the user, so that none of them stores the token.
        ("credential.helper", ""),
        (f"credential.{server}.helper", helper),
        ("fetch.recurseSubmodules", "false"),
        ("transfer.bundleURI", "false"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("init.defaultBranch", "none"),
    ]
    script.export("GIT_TERMINAL_PROMPT", "0")
    script.export("GCM_INTERACTIVE", "Never")
    script.export("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (key, value) in enumerate(settings):
        script.export(f"GIT_CONFIG_KEY_{number}", key)
        script.export(f"GIT_CONFIG_VALUE_{number}", value)
    if build.runner.tls_ca_file is not None:
        script.raw('export GIT_SSL_CAINFO="$CI_SERVER_TLS_CA_FILE"')
        script.raw("unset GIT_SSL_CAPATH")


def _remote(build: Build) -> str:
    """The repository's address without credentials."""
    if build.runner.clone_url:
        return f"{build.runner.clone_url}/{build.job.project_path}.git"
    url = str(build.job.git.get("repo_url", ""))
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _fetch(script: BashScript, build: Build) -> None:
    depth = int(build.lookup("GIT_DEPTH") or build.job.git.get("depth") or 0)
    with_depth = f" with git depth set to {depth}" if depth > 0 else ""
    script.say(f"Fetching changes{with_depth}...")
    script.command("git", "init", "--quiet", build.project_dir)
    script.command("cd", build.project_dir)
    script.raw("rm -f .git/index.lock .git/shallow.lock .git/HEAD.lock .git/config.lock")
    remote = _remote(build)
    script.raw("if git remote get-url origin >/dev/null 2>&1; then")
    script.command("git", "remote", "set-url", "origin", remote)
    script.raw("else")
    script.command("git", "remote", "add", "origin", remote)
    script.raw("fi")
    limits = ["--depth", str(depth)] if depth > 0 else []
    refspecs = [str(spec) for spec in build.job.git.get("refspecs") or []]
    script.command("git", "fetch", "origin", "--no-recurse-submodules", "--prune", "--quiet", *limits, *refspecs)


def _checkout(script: BashScript, build: Build) -> None:
    sha = str(build.job.git.get("sha", ""))
    script.say(f"Checking out {sha[:8]} as detached HEAD (ref is {build.job.git.get('ref', '')})...")
    script.command("git", "checkout", "--force", "--quiet", "--detach", sha)
    flags = build.lookup("GIT_CLEAN_FLAGS", DEFAULT_CLEAN_FLAGS)
    if flags != "none":
        script.command("git", "clean", *flags.split())
