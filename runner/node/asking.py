"""Fetches the tickets of one job from the bridge, checked, and tells it that they are gone."""

from __future__ import annotations

import pwd
import time

from runner import ccache
from runner.node.settings import Settings

LIMIT_SECONDS = 15.0
RETRY_PAUSE_SECONDS = 0.5
TELL_SECONDS = 5.0


class Failed(Exception):
    """The job can't have its tickets."""


class Refused(Exception):
    """The job gets no tickets, and asking again changes nothing; ``ours`` where it is or was a job of the bridge's."""

    def __init__(self, code: str, *, ours: bool) -> None:
        super().__init__(code)
        self.ours = ours


class Bundle:
    """A checked cache: ``name`` is where the bridge wants it, ``end`` the earliest end of its tickets."""

    __slots__ = ("data", "end", "name")

    def __init__(self, name: str, data: bytes, end: int) -> None:
        self.name = name
        self.data = data
        self.end = end


def fetch(settings: Settings, job_id: str, uid: int, *, once: bool = False) -> Bundle:
    """Ask for a job's tickets, again after a failure as long as time allows or ``once``; raises Failed, Refused.

    What comes must be the cache of the account that has the uid on this node, whatever the bridge says.
    """
    try:
        account = pwd.getpwuid(uid).pw_name
    except KeyError:
        raise Failed(f"uid {uid} has no account on this node") from None
    name, data = _ask(settings, job_id, uid, once=once)
    try:
        return Bundle(name, data, ccache.check(data, account))
    except ccache.BadCache as error:
        raise Failed(f"the bridge sent a bad ticket cache: {error}") from error


def _ask(settings: Settings, job_id: str, uid: int, *, once: bool) -> tuple[str, bytes]:
    from runner.node.bridge import Bridge, Impostor, NoAnswer, NotOurs, RunOver, WrongClock

    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            response, data = Bridge(settings, deadline).ask("tickets", int(job_id), uid)
        except NotOurs as error:
            raise Refused(str(error), ours=False) from error
        except RunOver as error:
            raise Refused(str(error), ours=True) from error
        except NoAnswer as error:
            pause = _pause(error.wait)
            if once or time.monotonic() + pause >= deadline:
                raise Failed(str(error)) from error
            time.sleep(pause)
        except (Impostor, WrongClock) as error:
            raise Failed(str(error)) from error
        else:
            return response.getheader("X-CI-Bridge-Cache") or "", data


def _pause(wait: float) -> float:
    """Give the seconds until the next try; those of many jobs that were told to wait must not come back together."""
    if not wait:
        return RETRY_PAUSE_SECONDS
    import random

    return max(RETRY_PAUSE_SECONDS, wait * random.uniform(1, 2))  # noqa: S311 - no secret


def tell_released(settings: Settings, job_id: str, uid: int) -> bool:
    """Tell the bridge that a job's tickets are no more on this node; whether it has heard it."""
    from runner.node.bridge import Bridge, Impostor, NoAnswer, NotOurs, RunOver

    try:
        Bridge(settings, time.monotonic() + TELL_SECONDS).ask("released", int(job_id), uid)
    except (NoAnswer, NotOurs, RunOver, Impostor):
        return False
    return True
