"""The frames that the bridge exchanges with its programs on other machines. Standard library only.

One frame = header length and data length, both unsigned 32-bit big-endian, then the header (a UTF-8 JSON object), then
the data (raw bytes). Used in both directions on the login agent's standard input and output, and as the body of the
event stream that the executor reads over HTTP.

Login agent: the bridge sends requests ``{"id": N, "verb": V, ...}``, the agent answers with any number of
``{"id": N, "event": "output"|"progress", ...}`` and exactly one ``{"id": N, "event": "done", ...}`` or
``{"id": N, "event": "error", "code": C, "title": T, "remedy": R}``. Many requests may be under way at once.

Event stream: ``{"n": SEQ, "kind": "log"}`` + bytes for the job log, ``{"n": SEQ, "kind": "note", "text": T}`` for what
the bridge has to say, optionally with ``"section"``, and once, last, ``{"n": SEQ, "kind": "end", "outcome": O, ...}``.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

PROTOCOL: Final = 1
"""Raised when a frame changes its meaning; the login agent's ``hello`` carries it."""

MAX_HEADER_BYTES: Final = 256 * 1024
MAX_DATA_BYTES: Final = 8 * 1024 * 1024
"""Bounds what one frame may make the reader hold; a build script is at most this long."""

OUTPUT_CHUNK_BYTES: Final = 128 * 1024

_LENGTHS: Final = struct.Struct(">II")

LOGIN_STAGES: Final = frozenset(
    {
        "prepare_script",
        "get_sources",
        "clear_worktree",
        "restore_cache",
        "download_artifacts",
        "archive_cache",
        "archive_cache_on_failure",
        "upload_artifacts_on_success",
        "upload_artifacts_on_failure",
        "cleanup_file_variables",
    }
)
"""Stages of the custom executor that hold no user code: they run on the login node."""

USER_STAGES: Final = frozenset({"build_script", "step_script", "after_script"})
"""Stages that hold user code by name; so does every other ``step_<name>``."""


class Outcome(enum.StrEnum):
    """How a stage or a call ended; each is one exit of the executor (facts: exit codes of the custom executor)."""

    OK = "ok"
    SCRIPT_FAILED = "script_failed"
    """The user's script ended with ``exit_code``: BUILD code, and BUILD_EXIT_CODE_FILE."""
    REFUSED = "refused"
    """The bridge said no: BUILD code, nothing to retry."""
    OUTAGE = "outage"
    """Something is down: SYSTEM code, the runner retries where its contract allows it."""
    CANCELLED = "cancelled"
    """Ended on request, and confirmed: BUILD code."""


class BrokenFrame(Exception):
    """The stream is not made of our frames, or ended inside one."""


def is_stage(name: str) -> bool:
    """Tell whether GitLab Runner may call run_exec with this sub-stage name."""
    return name in LOGIN_STAGES or is_user_stage(name)


def is_user_stage(name: str) -> bool:
    """Tell whether the stage holds user code: build_script, after_script, or a ``step_<name>``."""
    suffix = name.removeprefix("step_")
    return name in USER_STAGES or (
        suffix != name and 0 < len(suffix) <= 64 and suffix.isascii() and suffix.replace("_", "").isalnum()
    )


def encode(header: dict[str, Any], data: bytes = b"") -> bytes:
    """Make one frame; raises BrokenFrame where it would be over the limits."""
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > MAX_HEADER_BYTES or len(data) > MAX_DATA_BYTES:
        raise BrokenFrame(f"a frame of {len(head)} + {len(data)} bytes is over the limit")
    return _LENGTHS.pack(len(head), len(data)) + head + data


class Decoder:
    """Turns bytes, in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Take a piece of the stream and yield every frame that it completes; raises BrokenFrame."""
        self._pending += piece
        while len(self._pending) >= _LENGTHS.size:
            head_size, data_size = _LENGTHS.unpack_from(self._pending)
            if head_size > MAX_HEADER_BYTES or data_size > MAX_DATA_BYTES:
                raise BrokenFrame(f"a frame of {head_size} + {data_size} bytes is over the limit")
            end = _LENGTHS.size + head_size + data_size
            if len(self._pending) < end:
                return
            head = bytes(self._pending[_LENGTHS.size : _LENGTHS.size + head_size])
            data = bytes(self._pending[_LENGTHS.size + head_size : end])
            del self._pending[:end]
            yield _object(head), data

    @property
    def idle(self) -> bool:
        """True between two frames."""
        return not self._pending


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Read one frame from a blocking stream; None at its end; raises BrokenFrame."""
    lengths = stream.read(_LENGTHS.size)
    if not lengths:
        return None
    if len(lengths) < _LENGTHS.size:
        raise BrokenFrame("the stream ended inside a frame")
    head_size, data_size = _LENGTHS.unpack(lengths)
    if head_size > MAX_HEADER_BYTES or data_size > MAX_DATA_BYTES:
        raise BrokenFrame(f"a frame of {head_size} + {data_size} bytes is over the limit")
    head, data = stream.read(head_size), stream.read(data_size)
    if len(head) < head_size or len(data) < data_size:
        raise BrokenFrame("the stream ended inside a frame")
    return _object(head), data


def _object(head: bytes) -> dict[str, Any]:
    try:
        value = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame("a frame's header is not JSON") from error
    if not isinstance(value, dict):
        raise BrokenFrame("a frame's header is not an object")
    return value
