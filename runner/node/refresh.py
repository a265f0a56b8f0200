"""What a timer does every half minute: renews what ends soon, and removes what a crash or a boot has left.

A cache is renewed once no more than a third of its life is left, for as long as the bridge lets the job have tickets. A
refusal leaves the old ones to end. A node without bridge jobs asks nobody anything.
"""

from __future__ import annotations

import time

from runner.node import asking, hooks
from runner.node.caches import cache
from runner.node.markers import Marker, Markers, alone, boot_id, uids
from runner.node.place import BadPlace
from runner.node.presence import Presence
from runner.node.settings import Settings
from runner.renewal import renew_at

MAX_ASKED = 3
"""How many of a uid's jobs are asked about in one tick; any one of them renews the cache for all."""

ROUND_SECONDS = 40.0
"""For all of a tick; who was not asked about is first in the next, since the others are renewed by then."""


def refresh(settings: Settings) -> list[str]:
    """Look at everything that was delivered here, once; returns what to log."""
    with alone(settings.state_directory) as go:
        if not go:
            return ["another refresh is at work, nothing done"]
        presence = Presence(settings.node.partition(".")[0], settings.tool_directories)
        until = time.monotonic() + ROUND_SECONDS
        said: list[str] = []
        waiting = sorted(uids(settings.state_directory), key=lambda uid: _ends(settings, uid))
        for uid in waiting:
            try:
                said += _reap(settings, uid, presence)
                if time.monotonic() < until:
                    said += _renew(settings, uid)
            except (BadPlace, OSError) as error:
                said.append(f"uid {uid}: {error}")
        return said


def _ends(settings: Settings, uid: int) -> float:
    return max((marker.end for marker in Markers(settings.state_directory, uid).all()), default=0.0)


def _reap(settings: Settings, uid: int, presence: Presence) -> list[str]:
    """Remove what belongs to jobs that are not here any more. What can't be asked stays until its tickets end."""
    markers, boot, now = Markers(settings.state_directory, uid), boot_id(), time.time()
    gone = [marker for marker in markers.all() if _is_gone(marker, boot, now, presence)]
    if not gone:
        return []
    trouble: list[str] = []
    with markers.locked():
        # A prolog that has come in between has written another marker of the same name: a requeued job.
        removed = [marker for marker in gone if markers.get(marker.job_id) == marker]
        kept = markers.needed(now, without=removed)
        if not kept:
            trouble = _clear(settings, uid, removed, now)
        for marker in removed:
            markers.remove(marker.job_id)
    for marker in () if kept or trouble else removed:
        asking.tell_released(settings, marker.job_id, uid)
    what = "kept for another job" if kept else "removed"
    said = [f"job {marker.job_id} is not here any more: tickets of uid {uid} {what}" for marker in removed]
    return trouble or said


def _clear(settings: Settings, uid: int, removed: list[Marker], now: float) -> list[str]:
    """Remove the caches of these markers; returns what went wrong with tickets that have ended meanwhile.

    While they are good it is raised, and the next tick tries again.
    """
    trouble = []
    for one in {marker.cache: marker for marker in removed}.values():
        try:
            hooks.clear(settings, one, uid)
        except (BadPlace, OSError) as error:
            if any(marker.end > now for marker in removed):
                raise
            trouble.append(f"job {one.job_id} is not here any more, and what its ended tickets left stays: {error}")
    return trouble


def _is_gone(marker: Marker, boot: str, now: float, presence: Presence) -> bool:
    if marker.boot != boot:
        return True
    here = presence.here(marker.job_id)
    return marker.end <= now if here is None else not here


def _renew(settings: Settings, uid: int) -> list[str]:
    """Fetch new tickets for a uid whose newest end soon, in the name of the first of its jobs that may have them."""
    markers = Markers(settings.state_directory, uid)
    standing = sorted(markers.all(), key=lambda marker: marker.end - marker.got, reverse=True)
    if not standing:
        return []
    newest = max(standing, key=lambda marker: marker.got)
    if time.time() < renew_at(newest.got, newest.end):
        return []
    said: list[str] = []
    for marker in [marker for marker in standing if not marker.refused][:MAX_ASKED]:
        try:
            bundle = asking.fetch(settings, marker.job_id, uid, once=True)
            said.append(_place(settings, uid, marker, bundle))
        except asking.Refused as error:
            said.append(_note_refusal(markers, marker, str(error)))
        except asking.Failed as error:
            said.append(f"tickets of job {marker.job_id} are not renewed yet: {error}")
        else:
            break
    return said


def _place(settings: Settings, uid: int, asked: Marker, bundle: asking.Bundle) -> str:
    """Put new tickets in the place of the old, unless the job has ended meanwhile."""
    markers, now = Markers(settings.state_directory, uid), time.time()
    place = cache(settings, bundle.name, uid)
    with markers.locked():
        if markers.get(asked.job_id) != asked:
            return f"job {asked.job_id} ended while its tickets were renewed, nothing written"
        place.write(bundle.data)
        for marker in markers.all():
            # They share the cache, so all of them live on what is in it now.
            if marker.cache == bundle.name or marker.job_id == asked.job_id:
                refused = "" if marker.job_id == asked.job_id else marker.refused
                markers.put(Marker(marker.job_id, bundle.name, now, bundle.end, marker.boot, refused))
    return f"job {asked.job_id}: tickets of uid {uid} renewed in {bundle.name}"


def _note_refusal(markers: Markers, marker: Marker, code: str) -> str:
    with markers.locked():
        if markers.get(marker.job_id) == marker:
            markers.put(Marker(marker.job_id, marker.cache, marker.got, marker.end, marker.boot, code))
    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(marker.end))
    return f"tickets of job {marker.job_id} end at {end} and are not renewed: {code}"
