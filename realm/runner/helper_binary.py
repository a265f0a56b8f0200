#!/usr/bin/python3 -I
"""Stands in for the helper commands of gitlab-runner on the machine where stage scripts run: artifacts and caches.

Standard library only, one file, so that it can be installed as /usr/local/bin/gitlab-runner. Sub-commands and flags
are the real ones; as there, the token and the URL also come from CI_JOB_TOKEN and CI_SERVER_URL, and the authority
from CI_SERVER_TLS_CA_FILE.
"""

import argparse
import glob
import http.client
import os
import re
import secrets
import shutil
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

TRIES = 3
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 60


class HelperError(Exception):
    """A command that failed; `final` ones are not tried again."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        self.final = final


def main() -> int:
    """Run one sub-command; the exit code is 0 or 1."""
    options = _parser().parse_args()
    try:
        for attempt in range(1, TRIES + 1):
            try:
                options.action(options)
                break
            except HelperError as error:
                if error.final or attempt == TRIES:
                    raise
                _say(f"WARNING: Retrying... error={error}")
                time.sleep(RETRY_SECONDS)
    except (HelperError, OSError, zipfile.BadZipFile) as error:
        _say(f"FATAL: {error}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gitlab-runner", description="Helper commands for job artifacts and caches.")
    parser.add_argument("--version", action="version", version="Version: 18.10.0 (realm helper)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _uploader(commands.add_parser("artifacts-uploader", help="create and upload build artifacts (internal)"))
    _downloader(commands.add_parser("artifacts-downloader", help="download and extract build artifacts (internal)"))
    archiver = commands.add_parser("cache-archiver", help="create cache artifacts (internal)")
    extractor = commands.add_parser("cache-extractor", help="download and extract cache artifacts (internal)")
    _archive_flags(archiver)
    for command in (archiver, extractor):
        command.add_argument("--file", type=Path, required=True)
        command.add_argument("--timeout", type=int, default=10)
    archiver.set_defaults(action=_cache_archiver)
    extractor.set_defaults(action=_cache_extractor)
    return parser


def _uploader(command: argparse.ArgumentParser) -> None:
    _credential_flags(command)
    _archive_flags(command)
    command.add_argument("--name", default="artifacts")
    command.add_argument("--expire-in", default="")
    command.add_argument("--artifact-format", default="zip")
    command.add_argument("--artifact-type", default="archive")
    command.set_defaults(action=_upload)


def _downloader(command: argparse.ArgumentParser) -> None:
    _credential_flags(command)
    command.set_defaults(action=_download)


def _credential_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", default=os.environ.get("CI_SERVER_URL", ""))
    # The environment is the better place: other users can read a command line.
    command.add_argument("--token", default=os.environ.get("CI_JOB_TOKEN", ""))
    command.add_argument("--id", type=int, default=int(os.environ.get("CI_JOB_ID", "0") or 0))
    command.add_argument("--tls-ca-file", default=os.environ.get("CI_SERVER_TLS_CA_FILE", ""))


def _archive_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--path", action="append", default=[], dest="paths")
    command.add_argument("--exclude", action="append", default=[], dest="excludes")
    command.add_argument("--untracked", action="store_true")
    command.add_argument("--verbose", action="store_true")


def _upload(options: argparse.Namespace) -> None:
    _check_credentials(options)
    if options.artifact_format != "zip":
        raise HelperError(f"artifact format {options.artifact_format!r} is not supported", final=True)
    files = list(_matching(options.paths, options.excludes))
    if not files:
        _say("ERROR: No files to upload")
        return
    with tempfile.TemporaryFile() as archive:
        _pack(archive, files)
        archive.seek(0)
        filename = f"{Path(os.path.expandvars(options.name)).name or 'default'}.zip"
        query = {"artifact_format": options.artifact_format, "artifact_type": options.artifact_type}
        if options.expire_in:
            query["expire_in"] = options.expire_in
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + archive.read() + f"\r\n--{boundary}--\r\n".encode()
    url = f"{_job_url(options)}?{urllib.parse.urlencode(query)}"
    headers = {"JOB-TOKEN": options.token, "Content-Type": f"multipart/form-data; boundary={boundary}"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - checked
    with _open(request, options) as response:
        _say(f'Uploading artifacts as "{options.artifact_type}" to coordinator... {response.status} id={options.id}')


def _download(options: argparse.Namespace) -> None:
    _check_credentials(options)
    request = urllib.request.Request(_job_url(options), headers={"JOB-TOKEN": options.token})  # noqa: S310 - checked
    with tempfile.TemporaryFile() as archive:
        with _open(request, options) as response:
            shutil.copyfileobj(response, archive)
            status = response.status
        _say(f"Downloading artifacts from coordinator... ok id={options.id} responseStatus={status}")
        with zipfile.ZipFile(archive) as packed:
            _unpack(packed, Path.cwd())


def _cache_archiver(options: argparse.Namespace) -> None:
    files = list(_matching(options.paths, options.excludes))
    if not files:
        _say("No files to cache")
        return
    options.file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=options.file.parent, delete=False) as archive:
        _pack(archive.file, files)
    # A job that restores at the same time sees the old cache or the new one, never half.
    Path(archive.name).replace(options.file)
    _say(f"Created cache: {len(files)} files")


def _cache_extractor(options: argparse.Namespace) -> None:
    try:
        packed = zipfile.ZipFile(options.file)
    except FileNotFoundError:
        _say("Cache file does not exist")
        return
    with packed:
        _unpack(packed, Path.cwd())
    _say("Successfully extracted cache")


def _check_credentials(options: argparse.Namespace) -> None:
    if not options.url or not options.token:
        raise HelperError("Missing runner credentials", final=True)
    if not options.url.startswith(("https://", "http://")):
        raise HelperError("the URL is neither https nor http", final=True)
    if options.id <= 0:
        raise HelperError("Missing build ID", final=True)


def _job_url(options: argparse.Namespace) -> str:
    return f"{options.url.rstrip('/')}/api/v4/jobs/{options.id}/artifacts"


def _open(request: urllib.request.Request, options: argparse.Namespace) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cafile=options.tls_ca_file or None)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirect()
    )
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        final = error.code < 500 and error.code != 429
        raise HelperError(f"{request.get_method()} artifacts: {error.code} {error.reason}", final=final) from error
    except (urllib.error.URLError, OSError) as error:
        raise HelperError(f"{request.get_method()} artifacts: {error}", final=False) from error
    return response


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the job token to another place."""

    def redirect_request(self, *_: object) -> None:
        return None


def _matching(patterns: list[str], excludes: list[str]) -> Iterator[Path]:
    """Files below the current folder that a path or pattern names, each once, in order; links are not followed."""
    seen: set[str] = set()
    refused = [_glob_regex(os.path.expandvars(pattern)) for pattern in excludes]
    for pattern in patterns:
        for name in _names(pattern):
            for path in _walk(name):
                key = os.path.normpath(path)
                outside = key.startswith(("/", ".."))
                if outside or key in seen or any(regex.fullmatch(key) for regex in refused):
                    continue
                seen.add(key)
                yield Path(key)


def _names(pattern: str) -> list[str]:
    """What a path or pattern matches, relative to the current folder also if it was absolute ($CI_PROJECT_DIR/...)."""
    relative = os.path.relpath(os.path.expandvars(pattern))
    return sorted(glob.glob(relative, recursive=True, include_hidden=True))  # noqa: PTH207 - Path.glob follows no link


def _walk(name: str) -> Iterator[str]:
    if not Path(name).is_dir() or Path(name).is_symlink():
        yield name
        return
    for folder, _, files in os.walk(name):
        for file in sorted(files):
            yield str(Path(folder, file))


def _glob_regex(pattern: str) -> re.Pattern[str]:
    pieces = re.split(r"(\*\*/?|\*|\?)", os.path.normpath(pattern))
    table = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(table.get(piece, re.escape(piece)) for piece in pieces))


def _pack(target: IO[bytes], files: list[Path]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for path in files:
            if path.is_symlink():
                entry = zipfile.ZipInfo(str(path))
                entry.create_system = 3
                entry.external_attr = (0o120777) << 16
                packed.writestr(entry, str(path.readlink()))
            else:
                packed.write(path, str(path))
            _say(f"{path}: found")


def _unpack(packed: zipfile.ZipFile, folder: Path) -> None:
    """Extract with permissions; zipfile itself keeps names inside the folder, links are checked here."""
    for entry in packed.infolist():
        mode = entry.external_attr >> 16
        if mode & 0o170000 == 0o120000:
            _unpack_link(packed, entry, folder)
            continue
        parent = (folder / entry.filename).parent.resolve()
        if not parent.is_relative_to(folder.resolve()):
            raise HelperError(f"{entry.filename}: would be written outside the project", final=True)
        path = packed.extract(entry, folder)
        if mode & 0o777 and not entry.is_dir():
            Path(path).chmod(mode & 0o777)


def _unpack_link(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    path = folder / entry.filename
    target = packed.read(entry).decode()
    if not (path.parent / target).resolve().is_relative_to(folder.resolve()):
        raise HelperError(f"{entry.filename}: link leads outside the project", final=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
