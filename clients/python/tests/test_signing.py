"""The signatures are those that openssl makes."""

import json
import pathlib
from typing import Any

import pytest
from chimera_client import signing

KNOWN = json.loads((pathlib.Path(__file__).resolve().parents[2] / "signatures.json").read_text())


@pytest.mark.parametrize("message", KNOWN["messages"], ids=lambda message: message["method"])
def test_a_message_signature_covers_method_path_query_and_body(message: dict[str, Any]) -> None:
    body = message["body"].encode() if message["body"] is not None else None
    asked = {name: message[name] for name in ("method", "path", "query")}
    known = {name: KNOWN[name] for name in ("actor", "key", "created", "nonce")}
    assert signing.sign_message(**asked, **known, body=body) == message["headers"]


@pytest.mark.parametrize("known", KNOWN["bodies"], ids=["utf-8"])
def test_a_body_signature_covers_the_bytes(known: dict[str, str]) -> None:
    assert signing.sign_body(KNOWN["key"], known["body"].encode()) == known["signature"]


def test_a_name_that_a_header_cannot_hold_is_refused() -> None:
    assert signing.quoted('a"b\\c') == '"a\\"b\\\\c"'
    with pytest.raises(ValueError, match="ASCII"):
        signing.quoted("ä")
