"""The client for programs without `asyncio`. It can be shared by threads."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from . import resources
from .call import Call
from .events import READ_TIMEOUT_SECONDS, Cursor, EventParser, stream_call
from .models import EventDocument, RunDocument
from .retry import Retry
from .session import ConnectionLost, Effect, Pause, Reply, Send, Session, Steps, Tokens, decoded

TIMEOUT_SECONDS = 60.0
USER_AGENT = "chimera-client-python/0.1.0"


class Runs(resources.Runs):
    """Runs: what was asked for, decided and done."""

    def __init__(self, client: "Client") -> None:
        super().__init__(client.call)
        self.__client = client

    def events(self, run_id: str, *, after: int = 0, for_tenant: str | None = None) -> Iterator[EventDocument]:
        """Follows the events of a run until it ends. After a lost connection it continues where it was.

        :param after: Number of the last event that is already known
        """
        cursor = Cursor(self.__client.retry, after)
        while True:
            opened = self.__client.open(stream_call(run_id, cursor.after, for_tenant))
            if opened is None:
                return
            lost = None
            try:
                parser = EventParser()
                for chunk in opened.iter_raw():
                    for event in parser.feed(chunk):
                        cursor.take(event)
                        yield event
            except httpx.TransportError as error:
                lost = ConnectionLost(str(error), was_sent=True)
            finally:
                opened.close()
            time.sleep(cursor.pause(lost))

    def wait(self, run_id: str, *, for_tenant: str | None = None) -> RunDocument:
        """Waits until a run ends, however long that takes, and returns it."""
        for _ in self.events(run_id, for_tenant=for_tenant):
            pass
        return self.get(run_id, for_tenant=for_tenant)


class Client(resources.Root):
    """Chimera as one actor sees it.

    :param server: URL of the server; `CHIMERA_SERVER` if omitted
    :param actor: who acts; `CHIMERA_ACTOR` if omitted
    :param key: the key of the actor; `CHIMERA_HMAC_KEY` if omitted
    :param token: an access token, for a client without a key, which can only read
    :param scopes: narrows what the client's tokens may do
    :param retry: how often a request is sent again
    :param timeout: seconds to wait for an answer
    :param http: replaces the connection pool, for proxies and certificates; `timeout` then does not apply
    """

    def __init__(
        self,
        server: str | None = None,
        actor: str | None = None,
        key: str | None = None,
        *,
        token: str | None = None,
        scopes: Sequence[str] | None = None,
        retry: Retry | None = None,
        timeout: float = TIMEOUT_SECONDS,
        http: httpx.Client | None = None,
    ) -> None:
        super().__init__(self.call)
        self.retry = retry or Retry()
        self._lock = threading.Lock()
        self._origin, self._session = session_of(server, actor, key, token, scopes, self.retry, self._lock)
        self._http = http or httpx.Client(timeout=timeout)
        self.runs = Runs(self)
        self.workflows = resources.Workflows(self.call)
        self.schedules = resources.Schedules(self.call)
        self.events = resources.Events(self.call)
        self.tools = resources.Tools(self.call)
        self.actors = resources.Actors(self.call)
        self.tenants = resources.Tenants(self.call)
        self.audit = resources.Audit(self.call)
        self.inbox = resources.Inbox(self.call)
        self.artifacts = resources.Artifacts(self.call)
        self.links = resources.Links(self.call)
        self.auth = resources.Auth(self.call)
        self.server = resources.Server(self.call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def call(self, call: Call[Any]) -> Any:
        """Sends a call and returns its answer."""
        return decoded(call, self._drive(self._session.exchange(call)))

    def open(self, call: Call[None]) -> httpx.Response | None:
        """Opens a stream; `None` if nothing is left of it."""
        reply = self._drive(self._session.exchange(call))
        opened: httpx.Response | None = reply.opened
        if opened is not None and reply.status == 204:
            opened.close()
            return None
        return opened

    def _drive(self, steps: Steps[Reply]) -> Reply:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            reply: Reply = done.value
            return reply

    def _perform(self, effect: Effect) -> Reply | None:
        if isinstance(effect, Send):
            return self._send_request(effect)
        if isinstance(effect, Pause):
            time.sleep(effect.seconds)
        else:
            self._lock.acquire()
        return None

    def _send_request(self, send: Send) -> Reply:
        request = http_request(self._http, self._origin, send)
        try:
            response = self._http.send(request, stream=True)
            if send.stream and response.is_success:
                return Reply(response.status_code, response.headers, opened=response)
            try:
                return Reply(response.status_code, response.headers, response.read())
            finally:
                response.close()
        except httpx.TransportError as error:
            raise connection_lost(error) from error


def session_of(
    server: str | None,
    actor: str | None,
    key: str | None,
    token: str | None,
    scopes: Sequence[str] | None,
    retry: Retry,
    lock: Any,
) -> tuple[str, Session]:
    """The origin of the server, and the session of a client."""
    server = server or os.environ.get("CHIMERA_SERVER")
    if token is None:
        actor = actor or os.environ.get("CHIMERA_ACTOR")
        key = key or os.environ.get("CHIMERA_HMAC_KEY")
    if not server:
        raise ValueError("server is required: pass it or set CHIMERA_SERVER")
    if token is None and not (actor and key):
        raise ValueError("actor and key are required: pass them or set CHIMERA_ACTOR and CHIMERA_HMAC_KEY")
    parts = urlsplit(server)
    tokens = Tokens(token, None, float("inf")) if token is not None else None
    session = Session(actor, key, lock, retry, scopes, parts.path.rstrip("/"), tokens)
    return f"{parts.scheme}://{parts.netloc}", session


def http_request(http: httpx.Client | httpx.AsyncClient, origin: str, send: Send) -> httpx.Request:
    timeout = http.timeout.as_dict()
    if send.stream:
        timeout["read"] = READ_TIMEOUT_SECONDS
    # The target is sent exactly as it was signed.
    url = httpx.URL(origin).copy_with(raw_path=send.target.encode())
    headers = {"User-Agent": USER_AGENT, **send.headers}
    return httpx.Request(send.method, url, headers=headers, content=send.body, extensions={"timeout": timeout})


def connection_lost(error: httpx.TransportError) -> ConnectionLost:
    never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
    return ConnectionLost(f"{type(error).__name__}: {error}", was_sent=not isinstance(error, never_sent))
