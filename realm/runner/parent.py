"""Ties a process to the one that started it, so that a killed test leaves nothing running."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Get SIGTERM when the parent ends, however it ends (prctl(2), PR_SET_PDEATHSIG).

    Raises:
        OSError: the kernel refused.
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        # The parent ended before the kernel knew that we care.
        os.kill(os.getpid(), signal.SIGTERM)
