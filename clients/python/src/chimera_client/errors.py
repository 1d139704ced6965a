"""The one error that the client raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# The server gave up, or lost track, while the request may have taken effect.
UNCERTAIN_CODES = frozenset({"REQUEST_TIMEOUT", "OUTCOME_UNKNOWN"})


class ChimeraError(Exception):
    """A request that was refused, or whose answer was lost.

    `code` is one of the server's stable codes (docs/reference/errors.md). Three codes are the client's own:
    `CONNECTION_LOST` if there was no answer, `HTTP_ERROR` if the answer was not Chimera's, such as that of a proxy,
    and `NO_KEY` if the client has no key to sign with.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        error_type: str | None = None,
        details: Mapping[str, Any] | None = None,
        trace_id: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
        is_uncertain: bool = False,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status
        self.retryable = retryable
        self.error_type = error_type
        self.details: Mapping[str, Any] = details or {}
        self.trace_id = trace_id
        self.request_id = request_id
        self.retry_after = retry_after
        # Whether the request may have taken effect.
        self.is_uncertain = is_uncertain

    @classmethod
    def of_answer(cls, status: int, headers: Mapping[str, str], body: bytes) -> ChimeraError:
        """The error of an answer whose status is not a success."""
        request_id, retry_after = headers.get("x-request-id"), seconds(headers.get("retry-after"))
        try:
            problem = json.loads(body)
            error = problem["error"]
            return cls(
                error["code"],
                problem["detail"],
                status=status,
                retryable=error["retryable"],
                error_type=error["error_type"],
                details=error["details"],
                trace_id=problem["trace_id"],
                request_id=request_id,
                retry_after=retry_after if retry_after is not None else error.get("retry_after_seconds"),
                is_uncertain=error["code"] in UNCERTAIN_CODES,
            )
        except (ValueError, KeyError, TypeError):
            detail = f"status {status}: " + (body[:200].decode(errors="replace") or "no body")
            return cls(
                "HTTP_ERROR",
                detail,
                status=status,
                request_id=request_id,
                retry_after=retry_after,
                is_uncertain=status >= 500,
            )


def seconds(value: str | None) -> float | None:
    """`Retry-After` in seconds; a date is ignored."""
    try:
        return max(0.0, float(value)) if value is not None else None
    except ValueError:
        return None
