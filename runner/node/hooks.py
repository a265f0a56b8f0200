"""What Slurm's Prolog and Epilog do: fetch a job's tickets before it starts, remove them after it ended."""

from __future__ import annotations

import contextlib
import subprocess
import time

from runner.node import asking, lustre
from runner.node.caches import cache
from runner.node.job import SlurmJob
from runner.node.markers import Marker, Markers, boot_id
from runner.node.settings import Settings

SYNC_SECONDS = 8.0


def prolog(settings: Settings, job: SlurmJob) -> str:
    """Fetch the job's tickets and put them where the mount helper looks; returns what to log; raises asking.Failed.

    A job that the bridge does not know is left alone, and so is one whose run is over: a failure would drain the node
    for a job that is about to be cancelled. A requeued job is asked for anew. What does not look like the bridge's is
    asked about once only: other people's jobs must not wait for a bridge that is down or busy.
    """
    if job.uid < settings.min_uid:
        return f"job {job.job_id}: uid {job.uid} is below min_uid, nothing done"
    try:
        ours = job.looks_like_ours(settings.comment_prefix)
        bundle = asking.fetch(settings, job.job_id, job.uid, once=not ours)
    except asking.Refused as error:
        if error.ours:
            return f"job {job.job_id}: its run is over ({error}), no tickets"
        return f"job {job.job_id} is not the bridge's, nothing done"
    place = cache(settings, bundle.name, job.uid)
    markers = Markers(settings.state_directory, job.uid)
    with markers.locked():
        markers.put(Marker(job.job_id, bundle.name, time.time(), bundle.end, boot_id()))
        place.write(bundle.data)
    return f"job {job.job_id}: tickets of uid {job.uid} placed in {bundle.name}"


def epilog(settings: Settings, job: SlurmJob) -> str:
    """Remove the job's tickets unless another job of the uid needs them here; returns what to log."""
    markers = Markers(settings.state_directory, job.uid)
    if markers.get(job.job_id) is None:
        return f"job {job.job_id} has no tickets here, nothing done"
    _sync()
    with markers.locked():
        marker = markers.get(job.job_id)
        if marker is None:
            return f"job {job.job_id}: a refresh has removed its tickets"
        if markers.needed(time.time(), without=[marker]):
            markers.remove(job.job_id)
            return f"job {job.job_id}: tickets of uid {job.uid} kept for another job"
        # What can't be removed now is still on the list then, and the next refresh tries again.
        removed = clear(settings, marker, job.uid)
        markers.remove(job.job_id)
    told = asking.tell_released(settings, job.job_id, job.uid)
    return f"job {job.job_id}: tickets {'removed' if removed else 'were gone'}, bridge {'told' if told else 'not told'}"


def clear(settings: Settings, marker: Marker, uid: int) -> bool:
    """Have Lustre forget the user, and remove the cache; tells if it was there. To be called under the uid's lock."""
    lustre.flush(uid, settings.tool_directories)
    return cache(settings, marker.cache, uid).remove()


def _sync() -> None:
    """Have what the job wrote carried to the servers while its tickets are still there.

    In a process of its own: sync(2) can't be interrupted, and a server that hangs must not hold up the node.
    """
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process = subprocess.Popen(
            ["/bin/sync"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        process.wait(SYNC_SECONDS)
