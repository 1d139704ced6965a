"""A private server, and a relay between a client and the server that fails on request."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable

from chimera_client import AsyncClient, Client, Retry

ROOT = pathlib.Path(__file__).resolve().parents[3]

# Short pauses, so that no test waits.
QUICK = Retry(base_seconds=0.001, pause_seconds_max=0.01)


class Server:
    """`chimera dev` on a free port, with its data in a folder of its own."""

    def __init__(self, **settings: str) -> None:
        binary = pathlib.Path(os.environ.get("TEST_BINARY", ROOT / "target/debug/chimera")).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        args = [binary, "dev", "--json", "--listen", "127.0.0.1:0", "--data", self.folder / "data"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, **settings}
        self.process = subprocess.Popen(args, cwd=self.folder, text=True, env=environment, **pipes)  # type: ignore[call-overload]
        ready = json.loads(self.process.stdout.readline())
        self.url: str = ready["url"]
        self.keys: dict[str, str] = {actor["actor"]: actor["hmac_key"] for actor in ready["actors"]}

    def client(self, actor: str, relay: "Relay | None" = None) -> Client:
        return Client(relay.url if relay else self.url, actor, self.keys[actor], retry=QUICK)

    def async_client(self, actor: str, relay: "Relay | None" = None) -> AsyncClient:
        return AsyncClient(relay.url if relay else self.url, actor, self.keys[actor], retry=QUICK)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        shutil.rmtree(self.folder)


# What happens to a request, of which it gets the head: an answer of the relay's own, or how many bytes of the body of
# the server's answer pass before the connection is cut. Without any, not even the head passes. With `None`, all does.
Fault = Callable[[str], bytes | int | None]


class Relay:
    """Passes connections on to the server. `faults` apply to one request each; each request has its own connection."""

    def __init__(self, server: Server) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self.address = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.faults: list[Fault] = []
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, socket.create_connection(self.address) as server:
            head, body = read_request(connection)
            if not head:
                return
            self.heads.append(head)
            self.bodies.append(body)
            fault = self.faults.pop(0) if self.faults else None
            passes = fault(head) if fault else None
            if isinstance(passes, bytes):
                connection.sendall(passes)
                return
            lines = [line for line in head.split("\r\n") if not line.lower().startswith("connection:")]
            server.sendall("\r\n".join([*lines, "Connection: close"]).encode() + b"\r\n\r\n" + body)
            # The answer is complete when the server closes, so a cut comes after the commit.
            if passes == 0:
                while server.recv(65536):
                    pass
                return
            pending = read_head(server, connection)
            sent = 0
            while pending:
                part = pending if passes is None else pending[: passes - sent]
                connection.sendall(part)
                sent += len(part)
                if sent == passes:
                    return
                pending = server.recv(65536)

    def close(self) -> None:
        if self.listener.fileno() >= 0:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()


def read_request(connection: socket.socket) -> tuple[str, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = connection.recv(65536)
        if not chunk:
            return "", b""
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.decode().split("\r\n") if line.lower().startswith("content-length:")]
    length = int(lengths[0].split(":")[1]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head.decode(), body


def read_head(server: socket.socket, connection: socket.socket) -> bytes:
    """Passes the head of an answer on, and returns what arrived after it."""
    received = b""
    while b"\r\n\r\n" not in received:
        chunk = server.recv(65536)
        if not chunk:
            return b""
        received += chunk
    end = received.index(b"\r\n\r\n") + 4
    connection.sendall(received[:end])
    return received[end:] or server.recv(65536)


def drop_answer(head: str) -> int:
    """The server answers, and the client gets nothing of it."""
    return 0


def cut_after(size: int) -> Fault:
    return lambda head: size


def refuse(status: int, code: str, retry_after: str) -> Fault:
    """An answer like the server's own."""
    error = {"code": code, "message": "try later", "error_type": "resource_error", "retryable": True, "details": {}}
    problem = {
        "type": "/",
        "title": "-",
        "status": status,
        "detail": "try later",
        "instance": "/",
        "error": error,
        "trace_id": "t",
    }
    body = json.dumps(problem).encode()
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/problem+json\r\nRetry-After: {retry_after}\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return lambda _: head.encode() + body
