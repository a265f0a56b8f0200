"""A cancellable scope with an optional deadline, inherited by its children, like Go's context."""

import threading
import time
import weakref
from collections.abc import Callable

from realm.runner.errors import RunnerError


class Context:
    """Ends by `cancel`, by its deadline, or with its parent; `cause` then says why.

    Args:
        parent: ends this one too.
        timeout: seconds until the deadline, or None.
        expired: makes the cause for a passed deadline.
    """

    def __init__(
        self,
        parent: "Context | None" = None,
        timeout: float | None = None,
        expired: Callable[[], RunnerError] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._cause: RunnerError | None = None
        self._listeners: list[Callable[[], None]] = []
        # Weak, so that a service that lives for months does not keep every job's scope.
        self._children: weakref.WeakSet[Context] = weakref.WeakSet()
        self._parent = parent
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._expired = expired
        if parent is not None:
            parent.adopt(self)

    def cancel(self, cause: RunnerError) -> None:
        """End the scope; only the first cause counts."""
        with self._lock:
            if self._cause is not None:
                return
            self._cause = cause
            listeners, self._listeners = self._listeners, []
            children = list(self._children)
        for listener in listeners:
            listener()
        for child in children:
            child.cancel(cause)

    def on_done(self, listener: Callable[[], None]) -> None:
        """Call the listener when the scope is cancelled, or now if it was. A deadline alone calls nobody."""
        with self._lock:
            if self._cause is None:
                self._listeners.append(listener)
                return
        listener()

    def adopt(self, child: "Context") -> None:
        """Let a child end with this scope; called by the child itself."""
        with self._lock:
            cause = self._cause
            self._children.add(child)
        if cause is not None:
            child.cancel(cause)

    @property
    def cause(self) -> RunnerError | None:
        """Why the scope has ended, or None while it lives."""
        if self._cause is None and self.remaining() == 0:
            ancestor = self._parent.cause if self._parent else None
            self.cancel(ancestor or (self._expired() if self._expired else RunnerError("deadline exceeded")))
        return self._cause

    def remaining(self) -> float | None:
        """Seconds until the nearest deadline of this scope and its ancestors, 0 if passed, None if there is none."""
        own = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        inherited = self._parent.remaining() if self._parent else None
        known = [value for value in (own, inherited) if value is not None]
        return min(known) if known else None

    def wait(self, seconds: float) -> None:
        """Sleep, but wake up when the scope ends."""
        woken = threading.Event()
        self.on_done(woken.set)
        left = self.remaining()
        woken.wait(seconds if left is None else min(seconds, left))

    def wait_for(self, wake: threading.Event) -> None:
        """Wait until `wake` is set (by anybody) or the scope ends."""
        self.on_done(wake.set)
        wake.wait(self.remaining())
