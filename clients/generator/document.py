"""Reads the OpenAPI document into what the generators of both languages print."""

from dataclasses import dataclass
from typing import Any

from . import names

Schema = dict[str, Any]

# The security requirement of an operation: how the client signs it.
AUTH = {
    frozenset(): "none",
    frozenset({"bearer"}): "token",
    frozenset({"bearer", "hmac"}): "token_and_body",
    frozenset({"bearer", "signature"}): "token_and_message",
    frozenset({"hmac"}): "body",
}

RESULTS = {
    "application/json": "json",
    "text/plain": "text",
    "text/html": "text",
    "text/markdown": "text",
    "application/octet-stream": "bytes",
}


class Unsupported(Exception):
    """The document has something that the generator does not know."""


@dataclass(frozen=True)
class Member:
    """A member of an object, or an argument of a method."""

    name: str
    schema: Schema
    required: bool
    description: str
    default: str | None = None


@dataclass(frozen=True)
class Method:
    """An operation as a method of a resource."""

    name: str
    operation: str
    verb: str
    path: str
    auth: str
    result: str
    encoding: str
    # Whether a body without members is omitted.
    optional_body: bool
    keyed: bool
    summary: str
    note: str
    path_members: list[tuple[str, Member]]
    body: Member | None
    body_members: list[Member]
    query: list[Member]
    headers: list[Member]
    returns: list[Schema]
    # The member of the answer with the items of a page, and the parameter that takes the cursor.
    items: str | None
    cursor: str | None

    @property
    def keywords(self) -> list[Member]:
        """Everything that is passed by name, what is required first."""
        found = [*self.body_members, *self.query, *self.headers]
        return sorted(found, key=lambda member: not member.required or member.default is not None)


def reference(schema: Schema) -> str | None:
    """The name that a schema refers to."""
    return schema["$ref"].rsplit("/", 1)[1] if "$ref" in schema else None


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema without `null`, and whether `null` was allowed."""
    options = schema.get("oneOf", [])
    left = [option for option in options if option.get("type") != "null"]
    if len(left) < len(options):
        return (left[0] if len(left) == 1 else {**schema, "oneOf": left}), True
    kinds = schema.get("type")
    if isinstance(kinds, list):
        left = [kind for kind in kinds if kind != "null"]
        if len(left) != 1:
            raise Unsupported(f"types {kinds}")
        return {**schema, "type": left[0]}, True
    return schema, False


class Document:
    def __init__(self, document: Schema):
        self.schemas: dict[str, Schema] = document["components"]["schemas"]
        self.operations = {
            operation["operationId"]: (verb.upper(), path, operation)
            for path, item in document["paths"].items()
            for verb, operation in item.items()
        }
        named = [method.operation for methods in names.RESOURCES.values() for method in methods.values()]
        named += names.BY_HAND
        if sorted(named) != sorted(self.operations):
            wrong = set(named) ^ set(self.operations) or {name for name in named if named.count(name) > 1}
            raise Unsupported(f"add to, or remove from, names.py: {sorted(wrong)}")

    def members(self, schema: Schema) -> list[Member]:
        """The members of an object in the order of the document, those that are always there first."""
        found: dict[str, Member] = {}
        for part in schema.get("allOf", [schema]):
            if name := reference(part):
                part = self.schemas[name]
            required = part.get("required", [])
            for name in sorted(part.get("properties", {}), key=lambda name: (name not in required, name)):
                inner = part["properties"][name]
                found[name] = Member(name, inner, name in required, description(inner))
        return list(found.values())

    def resource(self, name: str) -> list[Method]:
        return [self.method(name, called, method) for called, method in names.RESOURCES[name].items()]

    def method(self, resource: str, called: str, method: names.Method) -> Method:
        verb, path, operation = self.operations[method.operation]
        security = frozenset(scheme for option in operation["security"] for scheme in option)
        answers = [
            content
            for status, answer in operation["responses"].items()
            if status < "400"
            for content in answer.get("content", {}).items()
        ]
        kinds = {RESULTS[kind] for kind, _ in answers} or {"none"}
        if len(kinds) != 1:
            raise Unsupported(f"{method.operation} answers {kinds}")
        returns: list[Schema] = []
        for _, content in answers:
            returns += [content["schema"]] if content["schema"] not in returns else []
        parameters = operation.get("parameters", [])
        query = [argument(it) for it in parameters if it["in"] == "query"]
        body, body_members, encoding = self.body(operation, method)
        items = self.items(returns) if verb == "GET" else None
        cursor = next((it.name for it in query if items and it.name in ("cursor", "after")), None)
        return Method(
            name=called,
            operation=method.operation,
            verb=verb,
            path=path,
            auth=AUTH[security],
            result=kinds.pop(),
            encoding=encoding,
            optional_body=not operation.get("requestBody", {}).get("required", False),
            keyed={"idempotency_key", "on_duplicate"} <= {it.name for it in body_members},
            summary=operation["summary"],
            note=method.note,
            path_members=[(it["name"], path_argument(resource, it)) for it in parameters if it["in"] == "path"],
            body=body,
            body_members=body_members,
            query=query,
            headers=[argument(it) for it in parameters if it["in"] == "header"],
            returns=returns,
            items=items,
            cursor=cursor,
        )

    def body(self, operation: Schema, method: names.Method) -> tuple[Member | None, list[Member], str]:
        """A body without members of its own, or the members of the body, and how it is encoded."""
        if "requestBody" not in operation:
            return None, [], "none"
        [(kind, content)] = operation["requestBody"]["content"].items()
        encoding = {"application/json": "json", "application/x-www-form-urlencoded": "form"}[kind]
        schema, _ = without_null(content["schema"])
        name = reference(schema)
        members = self.members(self.schemas[name]) if name else []
        if not members:
            required = operation["requestBody"].get("required", False)
            return Member(method.body, schema, required, operation["requestBody"].get("description", "")), [], encoding
        defaults = method.defaults
        return (
            None,
            [Member(it.name, it.schema, it.required, it.description, defaults.get(it.name)) for it in members],
            encoding,
        )

    def items(self, returns: list[Schema]) -> str | None:
        """The member with the items, if the answer is a page."""
        name = reference(returns[0]) if len(returns) == 1 else None
        members = self.members(self.schemas[name]) if name else []
        if {"next_cursor"} < {member.name for member in members}:
            [found] = [member.name for member in members if member.schema.get("type") == "array"]
            return found
        return None

    def item_schema(self, method: Method) -> Schema:
        page = self.schemas[reference(method.returns[0]) or ""]
        return page["properties"][method.items]["items"]


def description(schema: Schema) -> str:
    inner, _ = without_null(schema)
    return str(schema.get("description") or inner.get("description", ""))


def argument(parameter: Schema) -> Member:
    return Member(
        parameter["name"], parameter["schema"], parameter.get("required", False), parameter.get("description", "")
    )


def path_argument(resource: str, parameter: Schema) -> Member:
    name = names.IDS[resource] if parameter["name"] == "id" else parameter["name"]
    return Member(name, parameter["schema"], True, parameter.get("description", ""))
