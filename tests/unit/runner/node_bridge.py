"""A bridge for the node agent's tests: HTTPS with a real GSSAPI acceptor, run as ``node_bridge.py DIRECTORY MODE``.

It listens on a free port, which it writes to ``DIRECTORY/port``, hands out ``DIRECTORY/bundle`` and appends each
request that it let in to ``DIRECTORY/requests``.
"""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import sys
from pathlib import Path

import gssapi
from gssapi.raw import ChannelBindings

from runner.binding import node_binding

directory, mode = Path(sys.argv[1]), sys.argv[2]
acceptor = gssapi.Credentials(usage="accept", store={"keytab": str(directory / "http.keytab")})


FIELDS = ("slurm_job_id", "uid", "node")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        purpose = self.path.rpartition("/")[2]
        binding = ChannelBindings(application_data=node_binding(purpose, *(body[key] for key in FIELDS)))
        context = gssapi.SecurityContext(creds=acceptor, usage="accept", channel_bindings=binding)
        token = context.step(base64.b64decode(self.headers["Authorization"].removeprefix("Negotiate ")))
        assert gssapi.RequirementFlag.channel_bound in context.actual_flags
        with (directory / "requests").open("a") as log:
            log.write(json.dumps({"path": self.path, "as": str(context.initiator_name), **body}) + "\n")
        if mode == "busy" and len((directory / "requests").read_text().splitlines()) == 1:
            self.reply(429, json.dumps({"code": "node.too_many"}).encode())
        elif mode == "outage":
            self.reply(503, json.dumps({"code": "bridge.down"}).encode())
        elif (directory / "refusals").exists() and str(body["slurm_job_id"]) in (told := self.refusals()):
            status, code = told[str(body["slurm_job_id"])]
            self.reply(int(status), json.dumps({"code": code}).encode())
        elif mode == "not_ours":
            self.reply(404, json.dumps({"code": "node.not_ours"}).encode())
        elif mode.startswith("refused "):
            _, status, code = mode.split()
            self.reply(int(status), json.dumps({"code": code}).encode())
        elif self.path == "/v1/node/released":
            self.reply(204, b"", token)
        else:
            name = (directory / "cachename").read_text()
            self.reply(200, (directory / "bundle").read_bytes(), None if mode == "no_mutual" else token, name)

    def refusals(self) -> dict[str, tuple[str, str]]:
        """Status and code for single jobs: lines of ``job status code``."""
        lines = (line.split() for line in (directory / "refusals").read_text().splitlines())
        return {job: (status, code) for job, status, code in lines}

    def reply(self, status: int, body: bytes, token: bytes | None = None, name: str = "") -> None:
        self.send_response(status)
        if token:
            self.send_header("WWW-Authenticate", f"Negotiate {base64.b64encode(token).decode()}")
        if name:
            self.send_header("X-CI-Bridge-Cache", name)
        if status == 429:
            self.send_header("Retry-After", "1")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(directory / "tls.pem")
server.socket = tls.wrap_socket(server.socket, server_side=True)
(directory / "port.new").write_text(str(server.server_address[1]))
(directory / "port.new").rename(directory / "port")
server.serve_forever()
