"""Every operation of the document is a method, has types, and is signed the way the server wants it."""

import inspect
import json
import types
import typing
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from chimera_client import ChimeraError, async_resources, models, resources
from chimera_client.call import Call
from harness import Server

# Its answer is the caller's own JSON.
UNTYPED = {"call"}
# The credential is in the request itself, not in the client.
OWN_CREDENTIAL = {"create_token", "refresh_token", "download_artifact", "open_approval_link", "decide_by_link"}
AUTH_ERRORS = {
    "UNAUTHENTICATED",
    "SIGNATURE_INVALID",
    "EXPIRED_TTL",
    "METHOD_NOT_ALLOWED",
    "UNSUPPORTED_MEDIA_TYPE",
    "HTTP_ERROR",
}


def methods(module: types.ModuleType) -> list[tuple[type, str, Any]]:
    classes = [it for _, it in inspect.getmembers(module, inspect.isclass) if it.__module__ == module.__name__]
    return [(it, name, method) for it in classes for name, method in vars(it).items() if inspect.isfunction(method)]


def document(server: Server) -> dict[str, str]:
    """The method and path of every operation."""
    with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
        paths = json.load(answer)["paths"]
    return {
        found["operationId"]: f"{verb.upper()} {path}" for path, item in paths.items() for verb, found in item.items()
    }


def example(hint: Any) -> Any:
    """A value of a type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        return example(arguments[0])
    if typing.is_typeddict(hint) or origin is dict:
        return {}
    return [] if origin is not None else {str: "x", int: 1, float: 1.0, bool: True}.get(hint, "x")


def required(method: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(method)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return {it.name: example(hints[it.name]) for it in parameters if it.default is inspect.Parameter.empty}


def calls() -> list[Call[Any]]:
    """A call of every operation, made through its method."""
    found: list[Call[Any]] = []
    for kind, _, method in methods(resources):
        if not inspect.isgeneratorfunction(method):
            method(kind(found.append), **required(method))
    return found


def test_every_operation_of_the_document_has_one_method(server: Server) -> None:
    named = {call.operation: f"{call.method} {call.path_template}" for call in calls()}
    known = document(server)
    assert known.pop("stream_run_events") == "GET /runs/{id}/events"
    assert named == known and len(calls()) == len(known)


def test_every_method_has_types() -> None:
    known = {"str", "bytes", "NoneType", "dict", *models.__all__}
    untyped = set()
    for kind, name, method in [*methods(resources), *methods(async_resources)]:
        hints = typing.get_type_hints(method)
        assert set(inspect.signature(method).parameters) - {"self"} == set(hints) - {"return"}, name
        answer = hints["return"]
        if typing.get_origin(answer) in (Iterator, AsyncIterator):
            [answer] = typing.get_args(answer)
        options = typing.get_args(answer) if isinstance(answer, types.UnionType) else [answer]
        if Any in options:
            untyped.add(name)
        else:
            assert {option.__name__ for option in options} <= known, (kind, name, answer)
    assert untyped == UNTYPED


def test_both_clients_have_the_same_methods() -> None:
    def shape(module: types.ModuleType) -> list[str]:
        return sorted(
            f"{kind.__name__.removeprefix('Async')}.{name}{[*inspect.signature(it).parameters]}"
            for kind, name, it in methods(module)
        )

    assert shape(resources) == shape(async_resources)


@pytest.mark.parametrize(
    "call", [call for call in calls() if call.operation not in OWN_CREDENTIAL], ids=lambda call: call.operation
)
def test_the_server_accepts_the_signature_of_every_operation(server: Server, call: Call[Any]) -> None:
    with server.client("admin") as client:
        try:
            client.call(call)
        except ChimeraError as error:
            assert error.code not in AUTH_ERRORS, error
