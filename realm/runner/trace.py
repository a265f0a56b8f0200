"""The job log: collects output, masks it, sends it in patches, and learns from the answers about cancels."""

import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from realm.runner.coordinator import Answer, Coordinator, Outcome
from realm.runner.masking import Masker
from realm.runner.pace import Pace

MAX_PATCH_BYTES = 1024 * 1024
MAX_INTERVAL_SECONDS = 3600
FINAL_TRIES = 100
"""The runner tries for ever; a realm that is being taken down must not hang on it."""


class Trace:
    """One job's log; `write` can be called from any thread.

    Args:
        limit_bytes: after which output is dropped, with a line that says so.
    """

    def __init__(
        self, coordinator: Coordinator, job_id: int, token: str, masker: Masker, limit_bytes: int, pace: Pace
    ) -> None:
        self._coordinator = coordinator
        self._job_id = job_id
        self._token = token
        self._masker = masker
        self._limit = limit_bytes
        self._pace = pace
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._full = False
        self._sent = 0
        self._sent_at = time.monotonic()
        self._interval = pace.trace
        self._finished = threading.Event()
        self._cancel: Callable[[], None] | None = None
        self._abort: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._watch, name=f"trace-{job_id}", daemon=True)

    def start(self, abort: Callable[[], None]) -> None:
        """Begin to send; `abort` is called when the server does not want the job any more."""
        self._abort = abort
        self._thread.start()

    def set_cancel(self, cancel: Callable[[], None] | None) -> None:
        """What a cancel by a person does now: nothing outside the script phase, as in the runner."""
        with self._lock:
            self._cancel = cancel

    def write(self, data: bytes) -> None:
        """Append raw output."""
        self._append(self._masker.feed(data))

    def line(self, text: str) -> None:
        """Append a line of the runner's own."""
        self.write(f"{text}\x1b[0;m\n".encode())

    def finish(self, state: str, reason: str | None, exit_code: int | None) -> None:
        """Send the rest of the log and the job's final state, again and again until the server has them."""
        self._append(self._masker.flush())
        self._finished.set()
        self._thread.join()
        for _ in range(FINAL_TRIES):
            if not self._send_all():
                return
            answer = self._coordinator.update_job(self._job_id, self._body(state, reason, exit_code))
            if answer.outcome not in (Outcome.FAILED, Outcome.PENDING):
                return
            time.sleep(min(self._interval, self._pace.trace))

    def _append(self, data: bytes) -> None:
        with self._lock:
            if self._full:
                return
            room = self._limit - len(self._buffer)
            self._buffer += data[:room]
            if len(data) > room:
                self._full = True
                self._buffer += (
                    f"\n\x1b[33;1mJob's log exceeded limit of {self._limit} bytes.\n"
                    "Job execution will continue but no more output will be collected.\x1b[0;m\n"
                ).encode()

    def _watch(self) -> None:
        while not self._finished.wait(self._interval):
            answer = self._patch()
            if answer is None and time.monotonic() - self._sent_at > self._pace.touch:
                answer = self._coordinator.update_job(self._job_id, self._body("running", None, None))
                self._sent_at = time.monotonic()
            if answer is not None:
                self._obey(answer)

    def _patch(self) -> Answer | None:
        """Send one piece; None when there was nothing to send."""
        with self._lock:
            content = bytes(self._buffer[self._sent : self._sent + MAX_PATCH_BYTES])
            start = self._sent
        if not content:
            return None
        answer = self._coordinator.patch_trace(self._job_id, self._token, content, start)
        if answer.outcome in (Outcome.OK, Outcome.CANCEL, Outcome.RANGE) and answer.offset is not None:
            with self._lock:
                self._sent = min(answer.offset, len(self._buffer))
            self._sent_at = time.monotonic()
        return answer

    def _obey(self, answer: Answer) -> None:
        if answer.interval is not None and self._pace.follow_server:
            self._interval = min(answer.interval, MAX_INTERVAL_SECONDS)
        if answer.outcome is Outcome.ABORT and self._abort is not None:
            self._abort()
        elif answer.outcome is Outcome.CANCEL:
            with self._lock:
                cancel = self._cancel
            if cancel is not None:
                cancel()

    def _send_all(self) -> bool:
        """Send until nothing is left; False when the server refuses the job for good."""
        for _ in range(FINAL_TRIES):
            answer = self._patch()
            if answer is None:
                return True
            if answer.outcome is Outcome.ABORT:
                return False
            if answer.outcome in (Outcome.FAILED, Outcome.RANGE):
                time.sleep(min(self._interval, self._pace.trace))
        return False

    def _body(self, state: str, reason: str | None, exit_code: int | None) -> dict[str, Any]:
        with self._lock:
            checksum = f"crc32:{zlib.crc32(self._buffer):08x}"
            size = len(self._buffer)
        body: dict[str, Any] = {
            "token": self._token,
            "state": state,
            "checksum": checksum,
            "output": {"checksum": checksum, "bytesize": size},
        }
        if reason is not None:
            body["failure_reason"] = reason
        if exit_code is not None:
            body["exit_code"] = exit_code
        return body
