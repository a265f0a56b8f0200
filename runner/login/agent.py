"""Takes the bridge's requests, does each in a thread of its own, and ends everything when the bridge goes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

from runner import wire
from runner.login import orphans, slurm
from runner.login.call import Call, Registry
from runner.login.failures import VerbFailed, malformed
from runner.login.follow import follow
from runner.login.outbox import Outbox
from runner.login.processes import run
from runner.login.request import Request
from runner.login.tickets import drop_tickets, tickets
from runner.login.tools import Tools
from runner.login.user import User
from runner.login.workspace import destroy, put, workspace

MAX_REQUESTS = 1024
"""Requests under way at once; each is a thread."""

END_GRACE_SECONDS = 5.0
"""What scripts get between SIGTERM and SIGKILL when the bridge goes."""


class Agent:
    """The login agent of one connection."""

    def __init__(self, user: User, tools: Tools, outbox: Outbox) -> None:
        self._user = user
        self._tools = tools
        self._outbox = outbox
        self._registry = Registry()
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)

    def serve(self, stream: BinaryIO) -> None:
        """Take requests until the stream ends; raises BrokenFrame where it is not made of frames."""
        while (frame := wire.read_frame(stream)) is not None:
            request = Request(*frame)
            number = request.number
            self._registry.begin(number)
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._answer, args=(number, request), daemon=True).start()
            else:
                self._registry.end(number)
                self._fail(number, VerbFailed("agent.busy", "The login agent has too much to do.", "Try again later."))

    def end(self) -> None:
        """End every script and what it left behind: SIGTERM, and SIGKILL after a grace. Slurm jobs go on."""
        stops = [
            threading.Thread(target=entry.stop, args=(END_GRACE_SECONDS,), kwargs={"drain": False}, daemon=True)
            for entry in self._registry.close()
        ]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join(END_GRACE_SECONDS + 1)
        orphans.end_all(1.0)

    def _answer(self, number: int, request: Request) -> None:
        try:
            fields = self._perform(request, Call(number, self._user, self._tools, self._registry, self._outbox))
            self._outbox.send({**fields, "id": number, "event": "done"})
        except VerbFailed as failure:
            self._fail(number, failure)
        except OSError as error:
            self._fail(number, VerbFailed("agent.system", f"{error.strerror}.", "See the login node.", str(error)))
        except Exception as error:  # noqa: BLE001 - the bridge must get exactly one answer for every request
            place = f"{type(error).__name__} in {request.header.get('verb')}"
            self._fail(number, VerbFailed("agent.defect", "The login agent has a defect.", "Tell its makers.", place))
        finally:
            self._registry.end(number)
            self._slots.release()

    def _perform(self, request: Request, call: Call) -> dict[str, Any]:
        verb = request.text("verb")
        if verb in _LONG:
            return _LONG[verb](request, call)
        if verb in _SHORT:
            return _SHORT[verb](request, self._user)
        raise malformed("there is no such verb")

    def _fail(self, number: int, failure: VerbFailed) -> None:
        header = {"id": number, "event": "error", "code": failure.code, "title": failure.title}
        self._outbox.send({**header, "remedy": failure.remedy, "detail": failure.detail})


def hello(request: Request, user: User) -> dict[str, Any]:
    """Say who and where the agent is, after making sure that both sides mean the same frames."""
    if request.integer("protocol", 0, 2**31) != wire.PROTOCOL:
        raise VerbFailed(
            "agent.protocol",
            f"The login agent speaks protocol {wire.PROTOCOL}.",
            "Install bridge and login agent of the same release.",
        )
    return {
        "protocol": wire.PROTOCOL,
        "user": user.name,
        "uid": user.uid,
        "gid": user.gid,
        "host": socket.gethostname(),
        "home": user.home,
        "pid": os.getpid(),
    }


def stop(request: Request, call: Call) -> dict[str, Any]:
    """Stop the request ``target`` and return once it has ended; one that has ended already is fine."""
    entry = call.registry.get(request.integer("target", 0, 2**53))
    if entry is not None:
        entry.stop(request.seconds("grace_seconds", END_GRACE_SECONDS), drain=request.flag("drain"))
    return {}


_SHORT: dict[str, Callable[[Request, User], dict[str, Any]]] = {
    "hello": hello,
    "workspace": workspace,
    "put": put,
    "destroy": destroy,
    "tickets": tickets,
    "drop_tickets": drop_tickets,
}

_LONG: dict[str, Callable[[Request, Call], dict[str, Any]]] = {
    "run": run,
    "follow": follow,
    "stop": stop,
    "submit": slurm.submit,
    "release": slurm.release,
    "cancel": slurm.cancel,
    "find": slurm.find,
    "state": slurm.state,
}
