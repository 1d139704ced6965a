"""The client for programs with `asyncio`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from . import async_resources
from .call import Call
from .client import TIMEOUT_SECONDS, connection_lost, http_request, session_of
from .events import Cursor, EventParser, stream_call
from .models import EventDocument, RunDocument
from .retry import Retry
from .session import ConnectionLost, Effect, Pause, Reply, Send, Steps, decoded


class AsyncRuns(async_resources.AsyncRuns):
    """Runs: what was asked for, decided and done."""

    def __init__(self, client: "AsyncClient") -> None:
        super().__init__(client.call)
        self.__client = client

    async def events(
        self, run_id: str, *, after: int = 0, for_tenant: str | None = None
    ) -> AsyncIterator[EventDocument]:
        """Follows the events of a run until it ends. After a lost connection it continues where it was.

        :param after: Number of the last event that is already known
        """
        cursor = Cursor(self.__client.retry, after)
        while True:
            opened = await self.__client.open(stream_call(run_id, cursor.after, for_tenant))
            if opened is None:
                return
            lost = None
            try:
                parser = EventParser()
                async for chunk in opened.aiter_raw():
                    for event in parser.feed(chunk):
                        cursor.take(event)
                        yield event
            except httpx.TransportError as error:
                lost = ConnectionLost(str(error), was_sent=True)
            finally:
                await opened.aclose()
            await asyncio.sleep(cursor.pause(lost))

    async def wait(self, run_id: str, *, for_tenant: str | None = None) -> RunDocument:
        """Waits until a run ends, however long that takes, and returns it."""
        async for _ in self.events(run_id, for_tenant=for_tenant):
            pass
        return await self.get(run_id, for_tenant=for_tenant)


class AsyncClient(async_resources.AsyncRoot):
    """Chimera as one actor sees it, for `asyncio`. The arguments are those of `Client`."""

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
        http: httpx.AsyncClient | None = None,
    ) -> None:
        super().__init__(self.call)
        self.retry = retry or Retry()
        self._lock = asyncio.Lock()
        self._origin, self._session = session_of(server, actor, key, token, scopes, self.retry, self._lock)
        self._http = http or httpx.AsyncClient(timeout=timeout)
        self.runs = AsyncRuns(self)
        self.workflows = async_resources.AsyncWorkflows(self.call)
        self.schedules = async_resources.AsyncSchedules(self.call)
        self.events = async_resources.AsyncEvents(self.call)
        self.tools = async_resources.AsyncTools(self.call)
        self.actors = async_resources.AsyncActors(self.call)
        self.tenants = async_resources.AsyncTenants(self.call)
        self.audit = async_resources.AsyncAudit(self.call)
        self.inbox = async_resources.AsyncInbox(self.call)
        self.artifacts = async_resources.AsyncArtifacts(self.call)
        self.links = async_resources.AsyncLinks(self.call)
        self.auth = async_resources.AsyncAuth(self.call)
        self.server = async_resources.AsyncServer(self.call)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def call(self, call: Call[Any]) -> Any:
        """Sends a call and returns its answer."""
        return decoded(call, await self._drive(self._session.exchange(call)))

    async def open(self, call: Call[None]) -> httpx.Response | None:
        """Opens a stream; `None` if nothing is left of it."""
        reply = await self._drive(self._session.exchange(call))
        opened: httpx.Response | None = reply.opened
        if opened is not None and reply.status == 204:
            await opened.aclose()
            return None
        return opened

    async def _drive(self, steps: Steps[Reply]) -> Reply:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = await self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            reply: Reply = done.value
            return reply

    async def _perform(self, effect: Effect) -> Reply | None:
        if isinstance(effect, Send):
            return await self._send_request(effect)
        if isinstance(effect, Pause):
            await asyncio.sleep(effect.seconds)
        else:
            await self._lock.acquire()
        return None

    async def _send_request(self, send: Send) -> Reply:
        request = http_request(self._http, self._origin, send)
        try:
            response = await self._http.send(request, stream=True)
            if send.stream and response.is_success:
                return Reply(response.status_code, response.headers, opened=response)
            try:
                return Reply(response.status_code, response.headers, await response.aread())
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise connection_lost(error) from error
