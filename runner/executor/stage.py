"""Runs one stage on the bridge and follows it to its end.

The stage is sent with an invocation id of our own, so sending it again is harmless; its events are numbered, so asking
again after the last one that was written loses and doubles nothing. SIGTERM and SIGINT ask the bridge to cancel, and
following goes on until the bridge confirms.
"""

from __future__ import annotations

import http.client
import os
import signal
import time
import types
import urllib.parse
from typing import Any

from runner import wire
from runner.executor.client import Client, Response, bad_answer
from runner.executor.failures import CANCELLED, REFUSED, CallFailed, Unreachable
from runner.executor.joblog import JobLog, LogClosed
from runner.executor.patience import Patience

READ_BYTES = 256 * 1024
SHORTEST_POLL_SECONDS = 0.25
"""Pause after an empty answer that came at once, so that a server that does not wait is not asked in a loop."""

Frame = tuple[dict[str, Any], bytes]


class Stage:
    """One stage of a run: ``perform`` sends it and returns its end frame."""

    def __init__(self, client: Client, log: JobLog, run_id: str, patience: Patience) -> None:
        self._client = client
        self._log = log
        self._patience = patience
        self._path = f"/v1/runs/{run_id}/stages/{os.urandom(16).hex()}"
        self._last = 0
        self._log_bytes = 0
        self._accepted = False
        self._cancel_wanted = False
        self._cancel_told = False

    def perform(self, name: str, script: bytes) -> dict[str, Any]:
        """Run the stage ``name`` with ``script``; returns the header of its end frame; raises CallFailed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._send(name, script)
        while True:
            try:
                end = self._follow()
            except Unreachable as error:
                self._patience.failed(error)
                continue
            except LogClosed:
                self._give_up()
                raise
            self._patience.succeeded()
            if end is not None:
                return end

    def _on_signal(self, _number: int, _frame: types.FrameType | None) -> None:
        """Ask for the cancel at once, even while the main thread waits for events; a second signal changes nothing.

        Python runs this between two steps of the main thread, which then goes on waiting (PEP 475): so it uses a
        connection of its own, and the job log takes a line that comes in the middle of another one.
        """
        if not self._cancel_wanted:
            self._cancel_wanted = True
            if self._accepted:
                self._tell_cancel()

    def _send(self, name: str, script: bytes) -> None:
        path = f"{self._path}?stage={urllib.parse.quote(name, safe='')}"
        attempted = False
        while not self._accepted:
            try:
                if not self._cancel_wanted:
                    attempted = True
                    self._client.call("PUT", path, script, "application/octet-stream")
                elif not attempted or not self._was_started():
                    raise CallFailed(CANCELLED, "executor.cancelled", "Cancelled before it started.", "")
                self._accepted = True
            except Unreachable as error:
                self._patience.failed(error)
        self._patience.succeeded()

    def _was_started(self) -> bool:
        """Cancel a stage of which we don't know whether it reached the bridge, and tell whether it had."""
        try:
            self._client.call("POST", f"{self._path}/cancel?{self._position()}", b"{}")
        except CallFailed as failure:
            if failure.outcome == REFUSED:
                return False
            raise
        self._cancel_told = True
        return True

    def _follow(self) -> dict[str, Any] | None:
        """Ask for events once and write them; returns the end frame if it came; raises Unreachable."""
        if self._cancel_wanted and not self._cancel_told:
            self._tell_cancel()
        asked_at = time.monotonic()
        before = self._last
        response = self._client.open("GET", f"{self._path}/events?{self._position()}")
        end = self._read(response)
        if self._last == before and time.monotonic() - asked_at < SHORTEST_POLL_SECONDS:
            time.sleep(SHORTEST_POLL_SECONDS)
        return end

    def _position(self) -> str:
        """Say how far we have got: a bridge that was restarted goes on from there."""
        return f"after={self._last}&offset={self._log_bytes}"

    def _read(self, response: Response) -> dict[str, Any] | None:
        decoder = wire.Decoder()
        end = None
        try:
            while piece := response.read1(READ_BYTES):
                for header, data in decoder.feed(piece):
                    end = self._take(header, data) or end
        except wire.BrokenFrame as error:
            raise bad_answer("events that are not made of its frames") from error
        except (OSError, http.client.HTTPException) as error:
            self._client.close()
            if end is None:
                raise Unreachable("the connection to the bridge was lost") from error
        finally:
            # read1 leaves a response open that it has read to its end, and the connection would take no request.
            response.close()
        if end is None and (response.length or not decoder.idle):
            self._client.close()
            raise Unreachable("the connection to the bridge was cut")
        return end

    def _take(self, header: dict[str, Any], data: bytes) -> dict[str, Any] | None:
        """Write one event; returns it if it is the end. One that was written before is skipped."""
        number, kind = header.get("n"), header.get("kind")
        if type(number) is not int or kind not in ("log", "note", "end"):
            raise bad_answer("an event of an unknown kind")
        if number <= self._last:
            return None
        if kind == "log":
            self._log.raw(data)
        elif kind == "note":
            self._note(header)
        log_bytes = self._log_bytes + (len(data) if kind == "log" else 0)
        # Both at once, with no call between them: a signal's handler must not see half of a step.
        self._last, self._log_bytes = number, log_bytes
        return header if kind == "end" else None

    def _note(self, header: dict[str, Any]) -> None:
        section = header.get("section")
        section = section if isinstance(section, dict) else {}
        if "end" in section:
            self._log.end_section(str(section["end"]))
        if "start" in section:
            title = str(section.get("title") or section["start"])
            self._log.start_section(str(section["start"]), title, collapsed=section.get("collapsed", True) is not False)
        if header.get("text"):
            self._log.say(str(header["text"]))

    def _tell_cancel(self) -> None:
        """Post the cancel on a connection of its own; where that fails, ``_follow`` tries again."""
        client = self._client.another()
        try:
            client.call("POST", f"{self._path}/cancel?{self._position()}", b"{}")
            self._cancel_told = True
        except Unreachable:
            return
        except CallFailed:
            # A stage that ended meanwhile can't be cancelled; its end frame says how it ended.
            self._cancel_told = True
        finally:
            client.close()
        self._log.say("ci-bridge: cancel requested, waiting until the bridge confirms it")

    def _give_up(self) -> None:
        """The runner is gone: nobody reads the log, so what runs must not go on."""
        if not self._cancel_told:
            client = self._client.another()
            try:
                client.call("POST", f"{self._path}/cancel?{self._position()}", b"{}")
            except (Unreachable, CallFailed):
                return
            finally:
                client.close()
