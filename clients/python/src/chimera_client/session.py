"""What happens between a call and its answer: tokens, signatures, retries.

Nothing here does I/O. `Session.exchange` is a generator that yields what is to be done next (send, wait, lock), and is
given the outcome. The two clients drive it, one with threads and one with `asyncio`, so both behave the same.
"""

import json
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from . import signing
from .call import Call
from .errors import ChimeraError
from .models import TokenDocument
from .retry import Retry, may_repeat

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """Send this request, and give back its `Reply`, or throw `ConnectionLost`."""

    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    stream: bool


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Lock:
    """Acquire the lock of the session."""


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)
    # The open response, if the answer is read as it arrives.
    opened: Any = None


class ConnectionLost(Exception):
    """There was no answer."""

    def __init__(self, detail: str, *, was_sent: bool) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class Releasable(Protocol):
    def release(self) -> None: ...


Effect: TypeAlias = Send | Pause | Lock
Steps: TypeAlias = Generator[Effect, Reply | None, T]


@dataclass
class Tokens:
    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    # Monotonic time after which the token is renewed before it is used.
    renew_at: float


@dataclass
class Session:
    """The credentials of one actor, and the tokens that they were exchanged for. Its representation shows no secret."""

    actor: str | None
    key: str | None = field(repr=False)
    lock: Releasable
    retry: Retry = field(default_factory=Retry)
    scopes: Sequence[str] | None = None
    # The path of the server's URL, which is part of what is signed.
    prefix: str = ""
    tokens: Tokens | None = None

    def exchange(self, call: Call[Any]) -> Steps[Reply]:
        """Sends a call until it succeeds, or may not be sent again."""
        key = self.idempotency_key(call)
        failed, was_renewed, may_have_acted = 0, False, False
        while True:
            token = (yield from self.token()) if call.auth.startswith("token") else None
            extra = {**key, "on_duplicate": "return"} if call.keyed and (key or may_have_acted) else key
            try:
                reply = yield self.request(call, token, extra)
                assert reply is not None
                if 200 <= reply.status < 300 or reply.status == 304:
                    self.check_duplicate(call, reply, may_have_acted and not key)
                    return reply
                error = ChimeraError.of_answer(reply.status, reply.headers, reply.body)
            except ConnectionLost as lost:
                error = ChimeraError("CONNECTION_LOST", str(lost), retryable=True, is_uncertain=lost.was_sent)
                error.__cause__ = lost
            if token and error.code == "UNAUTHENTICATED" and not was_renewed and self.can_renew:
                was_renewed = True
                self.discard(token)
                continue
            failed += 1
            may_have_acted |= error.is_uncertain
            pause = self.retry.pause(failed, error) if may_repeat(error, call.is_repeatable) else None
            if pause is None:
                raise error
            yield Pause(pause)

    def idempotency_key(self, call: Call[Any]) -> dict[str, object]:
        """A key for a call that has none. All attempts have the same."""
        if not call.keyed or (call.members or {}).get("idempotency_key") is not None:
            return {}
        return {"idempotency_key": uuid.uuid4().hex}

    def check_duplicate(self, call: Call[Any], reply: Reply, was_repeated: bool) -> None:
        """Refuses the run of a different request, which the repeated one asked to be given instead of a conflict."""
        members = call.members or {}
        if not was_repeated or members.get("on_duplicate") == "return":
            return
        if decoded(call, reply).get("request_differs") is not True:
            return
        detail = f"idempotency key already used by a different request: {members['idempotency_key']}"
        raise ChimeraError("CONFLICT_IDEMPOTENCY", detail, status=409)

    def request(self, call: Call[Any], token: str | None, extra: Mapping[str, object]) -> Send:
        """The request of one attempt, with a signature of its own."""
        headers = {name: str(value) for name, value in call.headers.items() if value is not None}
        content = call.content(extra)
        body = content[1] if content else None
        if content:
            headers["Content-Type"] = content[0]
        if token:
            headers["Authorization"] = f"Bearer {token}"
        target = self.prefix + call.target
        if call.auth in ("body", "token_and_body"):
            headers["X-HMAC-Signature"] = signing.sign_body(self.credentials(call)[1], body or b"")
        elif call.auth == "token_and_message":
            actor, key = self.credentials(call)
            path, _, query = target.partition("?")
            created, nonce = int(time.time()), uuid.uuid4().hex
            headers |= signing.sign_message(
                actor=actor,
                key=key,
                method=call.method,
                path=path,
                query=query,
                body=body,
                created=created,
                nonce=nonce,
            )
        return Send(call.method, target, headers, body, call.stream)

    def credentials(self, call: Call[Any]) -> tuple[str, str]:
        if self.actor is None or self.key is None:
            raise ChimeraError("NO_KEY", f"{call.operation} is signed: give the client an actor and a key")
        return self.actor, self.key

    # Tokens

    @property
    def can_renew(self) -> bool:
        return self.key is not None

    def token(self) -> Steps[str]:
        """A token that is still valid for a while."""
        if self.tokens is not None and time.monotonic() < self.tokens.renew_at:
            return self.tokens.access
        if self.tokens is not None and not self.can_renew:
            return self.tokens.access
        yield Lock()
        try:
            if self.tokens is None or time.monotonic() >= self.tokens.renew_at:
                self.tokens = yield from self.renewed(self.tokens)
            return self.tokens.access
        finally:
            self.lock.release()

    def discard(self, token: str) -> None:
        """Renews the token before the next request, unless that has happened already."""
        if self.tokens is not None and self.tokens.access == token:
            self.tokens.renew_at = 0.0

    def renewed(self, old: Tokens | None) -> Steps[Tokens]:
        if old is not None and old.refresh is not None:
            try:
                return (yield from self.issued(refresh_call(old.refresh)))
            except ChimeraError as error:
                if error.status != 401:
                    raise
        return (yield from self.issued(self.sign_in_call()))

    def issued(self, call: Call[TokenDocument]) -> Steps[Tokens]:
        asked = time.monotonic()
        document: TokenDocument = decoded(call, (yield from self.exchange(call)))
        life = document["expires_in"]
        return Tokens(document["access_token"], document["refresh_token"], asked + life - min(60.0, life / 10))

    def sign_in_call(self) -> Call[TokenDocument]:
        scopes = list(self.scopes) if self.scopes is not None else None
        return Call(
            "create_token",
            "POST",
            "/auth/token",
            "body",
            "json",
            members={"actor": self.actor, "scopes": scopes},
            fresh=lambda: {"issued_at": time.time(), "nonce": uuid.uuid4().hex},
        )


def refresh_call(token: str) -> Call[TokenDocument]:
    # A used refresh token stays valid for a while, so repeating the request is harmless.
    members = {"refresh_token": token}
    return Call("refresh_token", "POST", "/auth/refresh", "body", "json", members=members, fresh=dict)


def decoded(call: Call[T], reply: Reply) -> T:
    """The answer as the type of its call."""
    answer: Any = None
    if call.result == "json":
        try:
            answer = json.loads(reply.body)
        except ValueError as error:
            raise ChimeraError("HTTP_ERROR", f"the answer is not JSON: {error}", status=reply.status) from error
    elif call.result == "text":
        answer = reply.body.decode()
    elif call.result == "bytes":
        answer = reply.body
    return answer  # type: ignore[no-any-return]
