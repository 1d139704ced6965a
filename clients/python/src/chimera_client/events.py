"""Server-sent events of a run.

The number of an event is its id, so a client that lost the connection continues after the last one it got. The server
answers 204 when the run has ended and nothing is left; the end of a stream alone means nothing.
"""

import json
from collections.abc import Iterator

from .call import Call
from .errors import ChimeraError
from .models import EventDocument
from .retry import Retry
from .session import ConnectionLost

# The server sends a comment every 10 seconds.
READ_TIMEOUT_SECONDS = 35.0


def stream_call(run_id: str, after: int, for_tenant: str | None) -> Call[None]:
    return Call(
        "stream_run_events",
        "GET",
        "/runs/{id}/events",
        "token",
        "none",
        path={"id": run_id},
        query={"for_tenant": for_tenant},
        headers={"Last-Event-ID": after, "Accept": "text/event-stream"},
        stream=True,
    )


class EventParser:
    """Finds the events in the bytes of a stream."""

    def __init__(self) -> None:
        self.rest = b""
        self.data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[EventDocument]:
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self.data.append(line[5:].removeprefix(b" "))
            elif not line and self.data:
                event: EventDocument = json.loads(b"\n".join(self.data))
                self.data.clear()
                yield event


class Cursor:
    """The last event that arrived, and how often the connection was lost since then."""

    def __init__(self, retry: Retry, after: int) -> None:
        self.retry = retry
        self.after = after
        self.failed = 0

    def take(self, event: EventDocument) -> None:
        self.after, self.failed = event["run_seq"], 0

    def pause(self, lost: ConnectionLost | None) -> float:
        """How long to wait before connecting again after a stream ended."""
        self.failed += 1
        error = ChimeraError("CONNECTION_LOST", str(lost or "the stream ended"), retryable=True)
        pause = self.retry.pause(self.failed, error)
        if pause is None:
            raise error from lost
        # After progress, the first attempt is made at once.
        return pause if self.failed > 1 else 0.0
