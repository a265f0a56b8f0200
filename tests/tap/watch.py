"""Puts together what the taps of one realm have seen, applies the law to all of it, and asks whether it was all."""

from __future__ import annotations

import json
import queue
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from realm import Realm
from tests.tap import files
from tests.tap.coats import uncoated
from tests.tap.kerberos import Sight
from tests.tap.law import Law, Recorded, owner_of
from tests.tap.recorder import DIRECTORY, HEAD

_OVERLAP = 64 * 1024
"""Of a stream that goes on, so much is looked at again with what follows: a ticket may come in pieces."""

_DATABASE = "/var/lib/ci-bridge/bridge.sqlite3"
_OUTCOMES = (
    "SELECT CAST(leaf AS TEXT) AS leaf FROM audit WHERE phase = 'ok' AND type IN ('admission', 'tickets') AND seq > "
)

Piece = tuple[str, bytes, float]


@dataclass
class Stream:
    """One connection, one way, or one file."""

    name: str
    kept: bytes = b""
    base: int = 0
    """Offset of `kept` in the stream."""
    owner: str | None = None
    fresh: bool = False
    moment: float = 0.0
    known: set[tuple[str, int, str | None]] = field(default_factory=set)


class Tap:
    """One realm's. `look` says what is wrong with what left since the last look; `missing` what it should have seen."""

    def __init__(self, realm: Realm) -> None:
        self._realm = realm
        self._law = Law(realm)
        self._streams: dict[str, Stream] = {}
        self._offsets: dict[Path, int] = {}
        self._audited = 0
        self._numbers = Counter[str]()
        self._skipped = set[str]()
        self.recorded: dict[str, Recorded] = {}
        self.seen: dict[str, set[str]] = defaultdict(set)
        """Ids of tickets, by kind of stream: "socket", "https", "ssh", "login", "node1", ..."""
        self.loot: dict[str, dict[str, Sight]] = defaultdict(dict)
        """Entries of caches, by client and id of the ticket."""
        self.pieces: queue.Queue[Piece] = queue.Queue()
        """What comes from this process."""
        self._files = files.CacheFiles(realm, self._file)

    def look(self, *, on_purpose: bool = False) -> list[str]:
        """Look at all that has come; one line for each thing that should not have left.

        on_purpose: tests or persons have sent the login node what no bridge may, so neither its files nor this process
        say anything.
        """
        if not self._realm.is_up:
            return []
        self._files.follow()
        self._files.settle()
        self._collect()
        found = [
            line
            for stream in list(self._streams.values())
            if stream.fresh and not (on_purpose and _of_the_test(stream.name))
            for line in self._scan(stream)
        ]
        self._streams = {
            name: stream
            for name, stream in self._streams.items()
            if not name.startswith("file of") and not (on_purpose and _of_the_test(name))
        }
        return found

    def skip(self) -> None:
        """Pass over what has come since the last look, which another tap looks at."""
        self._collect()
        self._streams.clear()
        before = set(self.recorded)
        self._read_audit()
        self._skipped |= self.recorded.keys() - before

    def missing(self) -> list[str]:
        """What was delivered by the audit log, and not seen: a tap that is off proves nothing.

        Half of it is allowed to be missing, since tests kill a broker between its record and its answer.
        """
        self._read_audit()
        asked: dict[str, list[str]] = defaultdict(list)
        for ticket_id, entry in self.recorded.items():
            if ticket_id in self._skipped:
                continue
            asked[f"socket: of the broker {entry.instance}"].append(ticket_id)
            if entry.use in ("node", "login"):
                asked["https: to nodes" if entry.use == "node" else "ssh: to login nodes"].append(ticket_id)
        return [
            f"{what}, {len(ids)} tickets were delivered by the audit log, and {len(seen)} of them seen"
            for what, ids in sorted(asked.items())
            if len(seen := self.seen[what.partition(":")[0]].intersection(ids)) < len(ids) // 2
        ]

    def close(self) -> None:
        """Watch no more."""
        self._files.close()

    def _file(self, path: str, uid: int, data: bytes, moment: float) -> None:
        self._numbers[path] += 1
        self.pieces.put((f"file of {uid} {path} #{self._numbers[path]}", data, moment))

    def _collect(self) -> None:
        while not self.pieces.empty():
            self._take(*self.pieces.get())
        directory = self._realm.host("bridge").path(DIRECTORY)
        for path in sorted(directory.iterdir()) if directory.is_dir() else []:
            self._read(path)

    def _read(self, path: Path) -> None:
        start = self._offsets.get(path, 0)
        with path.open("rb") as file:
            file.seek(start)
            data, at = file.read(), 0
        while len(data) >= at + HEAD.size:
            moment, name_size, size = HEAD.unpack_from(data, at)
            end = at + HEAD.size + name_size + size
            if end > len(data):
                break
            name = data[at + HEAD.size : end - size].decode()
            self._take(f"{path.name.partition('-')[2]}: {name}", data[end - size : end], moment)
            at = end
        self._offsets[path] = start + at

    def _take(self, name: str, data: bytes, moment: float) -> None:
        stream = self._streams.setdefault(name, Stream(name))
        stream.kept += data
        stream.fresh, stream.moment = True, moment

    def _scan(self, stream: Stream) -> list[str]:
        lines = []
        for sight in uncoated(stream.kept):
            offset = stream.base + sight.offset
            key = (sight.what, offset, sight.ticket_id)
            if key in stream.known:
                continue
            stream.known.add(key)
            if sight.ticket_id is not None:
                self._keep(stream, sight)
            owner = owner_of(stream.name, stream.kept[: sight.offset]) or stream.owner
            faults = list(self._law.faults(stream.name, owner, stream.moment, sight, self.recorded))
            lines += [f"{stream.name}, offset {offset}: {sight.what}: {fault}" for fault in faults]
        stream.owner = owner_of(stream.name, stream.kept) or stream.owner
        stream.base += max(0, len(stream.kept) - _OVERLAP)
        stream.kept, stream.fresh = stream.kept[-_OVERLAP:], False
        return lines

    def _keep(self, stream: Stream, sight: Sight) -> None:
        assert sight.ticket_id is not None
        if sight.ticket_id not in self.recorded:
            self._read_audit()
        kind = stream.name.rpartition(": ")[2].split()[0]
        if stream.name.startswith("file of "):
            kind = stream.name.split()[3].partition(":")[0]
        self.seen[kind].add(sight.ticket_id)
        if sight.client is not None and sight.raw:
            self.loot[sight.client][sight.ticket_id] = sight

    def _read_audit(self) -> None:
        host = self._realm.host("bridge")
        if not host.path(_DATABASE).exists():
            return
        argv = ["sqlite3", "-json", "-readonly", _DATABASE, f"{_OUTCOMES}{self._audited}"]
        for row in json.loads(host.run(argv).stdout or b"[]"):
            record = json.loads(row["leaf"])
            self._audited = max(self._audited, record["seq"])
            use = record.get("detail", {}).get("use", "admission")
            for ticket_id in record.get("tickets", {}).get("ticket_ids", ()):
                self.recorded[ticket_id] = Recorded(record["target"]["principal"], use, record["boot_id"])


def _of_the_test(name: str) -> bool:
    return name.startswith("here: ") or "login:/tmp" in name
