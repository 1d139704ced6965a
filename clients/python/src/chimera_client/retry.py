"""When a request is sent again, and how long the client waits before."""

import random
from dataclasses import dataclass

from .errors import ChimeraError


@dataclass(frozen=True)
class Retry:
    """How often, and after which pauses, a request is sent again.

    The pause before attempt n is random, up to `base_seconds` times 2ⁿ and at most `pause_seconds_max`. It is never
    shorter than `Retry-After`; if the server asks for more than `retry_after_seconds_max`, the error is raised at once.
    """

    attempts_max: int = 5
    base_seconds: float = 0.25
    pause_seconds_max: float = 8.0
    retry_after_seconds_max: float = 60.0

    def pause(self, failed: int, error: ChimeraError) -> float | None:
        """The pause after so many failed attempts; `None` if it was the last one."""
        asked = error.retry_after or 0.0
        if failed >= self.attempts_max or asked > self.retry_after_seconds_max:
            return None
        bound = min(self.pause_seconds_max, self.base_seconds * 2.0**failed)
        return max(asked, random.uniform(0.0, bound))


def may_repeat(error: ChimeraError, is_repeatable: bool) -> bool:
    """Whether the request may be sent again after this error.

    What may have taken effect is repeated only if repeating does nothing twice. Otherwise the server says whether a
    retry can help.
    """
    return is_repeatable if error.is_uncertain else error.retryable
