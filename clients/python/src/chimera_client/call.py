"""One request to the API as data: what is asked for, before it is signed and sent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

T_co = TypeVar("T_co", covariant=True)

Auth = Literal["none", "token", "token_and_body", "token_and_message", "body"]
Result = Literal["json", "text", "bytes", "none"]
SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """A call of an operation. `T_co` is the type of its answer."""

    operation: str
    method: str
    path_template: str
    auth: Auth
    result: Result
    path: Mapping[str, object] = field(default_factory=dict)
    query: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, object] = field(default_factory=dict)
    # The body as a whole, or its members, of which those that are `None` are omitted.
    body: Any = field(default=None, repr=False)
    members: Mapping[str, object] | None = field(default=None, repr=False)
    encoding: Literal["json", "form"] = "json"
    # Whether a body without members is omitted.
    optional_body: bool = False
    # Whether the body has an idempotency key.
    keyed: bool = False
    # Members that differ between attempts. With them, another attempt repeats nothing.
    fresh: Callable[[], Mapping[str, object]] | None = None
    # Whether the answer is read as it arrives.
    stream: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again although the first one may have taken effect."""
        return self.method in SAFE_METHODS or self.keyed or self.fresh is not None

    @property
    def target(self) -> str:
        """The path and query, percent-encoded."""
        path = self.path_template
        for name, value in self.path.items():
            if value in ("", ".", ".."):
                raise ValueError(f"{value!r} cannot be part of a path: {self.path_template}")
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        found = [(name, query_value(value)) for name, value in self.query.items() if value is not None]
        return f"{path}?{urlencode(found, quote_via=quote)}" if found else path

    def content(self, extra: Mapping[str, object]) -> tuple[str, bytes] | None:
        """The media type and the bytes of the body, with further members."""
        if self.members is None:
            return None if self.body is None else ("application/json", encode(self.body))
        fresh = self.fresh() if self.fresh else {}
        members = {name: value for name, value in {**self.members, **fresh, **extra}.items() if value is not None}
        if self.encoding == "form":
            return "application/x-www-form-urlencoded", urlencode(members).encode()
        return None if self.optional_body and not members else ("application/json", encode(members))


def encode(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def query_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"a time needs a zone: {value!r}")
        return value.isoformat()
    return str(value)
