"""What Slurm's Prolog and Epilog do: fetch a job's tickets before it starts, remove them after it ended."""

from __future__ import annotations

import contextlib
import subprocess
import time

from runner.node import ccache
from runner.node.job import SlurmJob
from runner.node.place import Markers, Place
from runner.node.settings import Settings

LIMIT_SECONDS = 15.0
RETRY_PAUSE_SECONDS = 0.5
SYNC_SECONDS = 8.0


class Failed(Exception):
    """The job can't have its tickets."""


def prolog(settings: Settings, job: SlurmJob) -> str:
    """Fetch the job's tickets and put them where the mount helper looks; returns what to log; raises Failed.

    A job that the bridge does not know is left alone, and so is one whose run is over: a failure would drain the node
    for a job that is about to be cancelled.
    """
    if job.uid < settings.min_uid:
        return f"job {job.job_id}: uid {job.uid} is below min_uid, nothing done"
    from runner.node.bridge import NotOurs, RunOver

    try:
        name, data = _fetch(settings, job)
    except NotOurs:
        return f"job {job.job_id} is not the bridge's, nothing done"
    except RunOver as error:
        return f"job {job.job_id}: its run is over ({error}), no tickets"
    try:
        end = ccache.check(data)
    except ccache.BadCache as error:
        raise Failed(f"the bridge sent a bad ticket cache: {error}") from error
    place = Place(name, settings.cache_directories, job.uid)
    markers = Markers(settings.state_directory, job.uid)
    with markers.locked():
        markers.add(job.job_id, name, end)
        place.write(data)
    return f"job {job.job_id}: tickets of uid {job.uid} placed in {name}"


def epilog(settings: Settings, job: SlurmJob) -> str:
    """Remove the job's tickets unless another job of the uid needs them here; returns what to log."""
    markers = Markers(settings.state_directory, job.uid)
    name = markers.get(job.job_id)
    if name is None:
        return f"job {job.job_id} has no tickets here, nothing done"
    _sync()
    with markers.locked():
        markers.remove(job.job_id)
        if markers.others():
            return f"job {job.job_id}: tickets of uid {job.uid} kept for another job"
        removed = Place(name, settings.cache_directories, job.uid).remove()
    told = _tell_released(settings, job)
    return f"job {job.job_id}: tickets {'removed' if removed else 'were gone'}, bridge {'told' if told else 'not told'}"


def _fetch(settings: Settings, job: SlurmJob) -> tuple[str, bytes]:
    """Ask for the bundle, again after a failure as long as time allows; returns the cache's name and bytes."""
    from runner.node.bridge import Bridge, Impostor, NoAnswer

    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        try:
            body = {"slurm_job_id": int(job.job_id), "uid": job.uid, "node": settings.node}
            response, data = Bridge(settings, deadline).post("/v1/node/tickets", body)
        except NoAnswer as error:
            if time.monotonic() + RETRY_PAUSE_SECONDS >= deadline:
                raise Failed(str(error)) from error
            time.sleep(RETRY_PAUSE_SECONDS)
        except Impostor as error:
            raise Failed(str(error)) from error
        else:
            return response.getheader("X-CI-Bridge-Cache") or "", data


def _tell_released(settings: Settings, job: SlurmJob) -> bool:
    from runner.node.bridge import Bridge, Impostor, NoAnswer, NotOurs, RunOver

    body = {"slurm_job_id": int(job.job_id), "uid": job.uid, "node": settings.node}
    try:
        Bridge(settings, time.monotonic() + LIMIT_SECONDS / 3).post("/v1/node/released", body)
    except (NoAnswer, NotOurs, RunOver, Impostor):
        return False
    return True


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
