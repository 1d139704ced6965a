"""What the resources of a client share: the way to the server."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .call import Call

T = TypeVar("T")


class Resource:
    """A group of operations."""

    def __init__(self, send: Callable[[Call[Any]], Any]) -> None:
        self.__send = send

    def _send(self, call: Call[T]) -> T:
        answer: T = self.__send(call)
        return answer


class AsyncResource:
    """A group of operations, for `asyncio`."""

    def __init__(self, send: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        self.__send = send

    async def _send(self, call: Call[T]) -> T:
        answer: T = await self.__send(call)
        return answer
