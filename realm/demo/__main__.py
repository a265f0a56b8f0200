"""`python -m realm.demo [--json]`: bring a realm up, tell the story, take it down."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from realm.cluster import Realm
from realm.demo.narrator import Narrator
from realm.demo.scenes import Scenes
from realm.errors import RealmError
from realm.workspace import CHECKOUT

LOGS = CHECKOUT / ".realm" / "demo-logs"


def main() -> int:
    """Run the demo; 0 when every step was ok."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="A CI job runs on Slurm as who started it.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the story")
    narrator = Narrator(as_json=parser.parse_args().json)
    realm = Realm()
    try:
        if narrator.tell(
            "A cluster on this machine: KDC on LDAP, sshd, Slurm, GitLab, bridge, runner", lambda: _up(realm)
        ):
            with Scenes(realm) as scenes:
                _tell(narrator, scenes)
        good = narrator.close()
        if not good and realm.is_up:
            sys.stderr.write(f"The logs of every service are in {realm.save_logs(LOGS)}\n")
        return 0 if good else 1
    finally:
        realm.down()


def _tell(narrator: Narrator, scenes: Scenes) -> None:
    narrator.tell(
        "alice and bob push; each job runs on a node as its person, with listed tickets only", scenes.alice_and_bob
    )
    narrator.tell("What alice's job made is an artifact in GitLab", scenes.artifact)
    narrator.tell("A script's exit code 3 arrives as 3", scenes.exit_code)
    narrator.tell("Cancel in GitLab kills the job in Slurm", scenes.cancel)
    narrator.tell(
        "mallory has no account here: refused", lambda: scenes.refused("mallory", "misc/mallory", "account.not_mapped")
    )
    narrator.tell(
        "eve's row was mistyped and says root: refused", lambda: scenes.refused("eve", "misc/eve", "account.privileged")
    )
    narrator.tell("carol is locked at the KDC, and the KDC refuses", scenes.kdc_refused)
    narrator.tell("Nothing is left of any of it", scenes.nothing_left)
    narrator.tell("Who did this? alice's job in the audit log", scenes.timeline)


def _up(realm: Realm) -> Iterator[str]:
    try:
        realm.up()
    except RealmError as error:
        raise RuntimeError(f"{error} {error.remedy}") from error
    running = [f"{service.host}: {service.name}" for service, pid in realm.services() if pid]
    yield ", ".join(sorted(running))


if __name__ == "__main__":
    sys.exit(main())
