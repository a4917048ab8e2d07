"""A local server that speaks the hub's API to its real client: models, trees, files, errors."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = ("main", "v1", COMMIT)
SILENT, DRIPPING = "org/silent", "org/dripping"
"""Repositories of which nothing is heard; of which a byte of each weight file comes at a time."""
_BYTE_SECONDS = 0.2
FAULTS = {"org/gated": (403, "GatedRepo"), "org/broken": (500, "")}


class _Server(ThreadingHTTPServer):
    """Serves `repositories`, name -> folder; the path of every request is kept in `asked`."""

    def __init__(self, repositories: dict[str, Path]):
        super().__init__(("127.0.0.1", 0), _Hub)
        self.repositories = repositories
        self.asked: list[str] = []
        self.closing = threading.Event()


class _Hub(BaseHTTPRequestHandler):
    """Answers for a `_Server`."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urlparse(self.path).path
        self.server.asked.append(path)
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        parts = parts[2:] if is_api else parts
        name, rest = "/".join(parts[:2]), parts[2:]
        if name == SILENT:
            self.server.closing.wait()
            return
        if name in FAULTS:
            return self._fault(*FAULTS[name])
        folder = self.server.repositories.get(name)
        if folder is None:
            return self._fault(404 if name != "org/private" else 401, "RepoNotFound")
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in REVISIONS:
            return self._fault(404, "RevisionNotFound")
        if not is_api:
            return self._file(folder / "/".join(rest[2:]))
        if rest[:1] == ["tree"]:
            return self._json([_described(file) for file in sorted(folder.iterdir())])
        told = [{"rfilename": f.name, "size": f.stat().st_size} for f in sorted(folder.iterdir())]
        self._json({"id": name, "modelId": name, "sha": COMMIT, "siblings": told, "tags": []})

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, file: Path):
        if not file.is_file():
            return self._fault(404, "EntryNotFound")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT, "X-Linked-Etag": f'"{digest}"'}
        self._send(200, file.read_bytes(), headers)

    def _fault(self, status: int, code: str):
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "no"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if DRIPPING in self.path and self.path.endswith(".safetensors"):
            return self._drip(body)
        self.wfile.write(body)

    def _drip(self, body: bytes):
        with suppress(OSError):  # who listened has gone
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.server.closing.wait(_BYTE_SECONDS):
                    return


def _described(file: Path) -> dict:
    size, digest = file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()
    lfs = {"oid": digest, "size": size, "pointerSize": 100}
    return {"type": "file", "path": file.name, "size": size, "oid": digest[:40], "lfs": lfs}


@contextmanager
def serving(repositories: dict[str, Path]) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the paths that were asked for."""
    server = _Server(repositories)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
