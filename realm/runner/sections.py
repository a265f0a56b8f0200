"""The headings of the job log: GitLab's collapsible sections around each stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from realm.runner.trace import Trace

TITLES = {
    "prepare_executor": 'Preparing the "custom" executor',
    "prepare_script": "Preparing environment",
    "get_sources": "Getting source from Git repository",
    "clear_worktree": "Deleting all tracked and untracked files due to source fetch failure",
    "restore_cache": "Restoring cache",
    "download_artifacts": "Downloading artifacts",
    "after_script": "Running after_script",
    "archive_cache": "Saving cache for successful job",
    "archive_cache_on_failure": "Saving cache for failed job",
    "upload_artifacts_on_success": "Uploading artifacts for successful job",
    "upload_artifacts_on_failure": "Uploading artifacts for failed job",
    "cleanup_file_variables": "Cleaning up project directory and file based variables",
}


@contextmanager
def section(trace: Trace, stage: str) -> Iterator[None]:
    """Put a stage's output into a collapsible section with its title."""
    name = "step_script" if stage == "build_script" else stage
    title = TITLES.get(stage, f'Executing "{name}" stage of the job script')
    trace.write(f"section_start:{int(time.time())}:{name}\r\x1b[0K\x1b[0K\x1b[36;1m{title}\x1b[0;m\n".encode())
    try:
        yield
    finally:
        trace.write(f"section_end:{int(time.time())}:{name}\r\x1b[0K".encode())
