"""Sends a server requests signed by an independent implementation of RFC 9421.

    CHIMERA_SERVER=… CHIMERA_HMAC_KEY=… python3 signs.py
"""

import json
import uuid

import requests
from hooks import ACTOR, KEY, SAMPLE, URL, sign_in
from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

WORKFLOW = json.dumps({**SAMPLE, "workflow_id": "signed"}).encode()


class Keys(HTTPSignatureKeyResolver):
    """The same key for every key id."""

    def resolve_private_key(self, key_id):
        return KEY


def sent(method, path, body=None, covered=("@method", "@path", "@query"), **changes):
    """Signs a request, applies `changes`, sends it twice, and returns status and reason of both answers."""
    headers = {"Authorization": f"Bearer {TOKEN}", "User-Agent": "another client"}
    request = requests.Request(method, URL + path, data=body, headers=headers).prepare()
    if body:
        request.headers["Content-Type"] = "application/json"
    signer = HTTPMessageSigner(signature_algorithm=algorithms.HMAC_SHA256, key_resolver=Keys())
    nonce = uuid.uuid4().hex
    signer.sign(request, key_id=ACTOR, nonce=nonce, label="theirs", covered_component_ids=covered, body=body)
    for name, value in changes.items():
        setattr(request, name, value)
    answers = [requests.Session().send(request) for _ in range(2)]
    details = [answer.json().get("error", {}).get("details", {}) if answer.content else {} for answer in answers]
    return [(answer.status_code, detail.get("reason")) for answer, detail in zip(answers, details)]


def main():
    taken = [
        sent("PUT", "/workflows/signed", WORKFLOW),
        sent("DELETE", "/workflows/signed/cache?key=x"),
        sent("DELETE", "/workflows/signed/cache", covered=("@query", "@authority", "@path", "user-agent", "@method")),
    ]
    for first, second in taken:
        assert first[0] in (200, 204), taken
        assert second == (401, "nonce_used"), taken
    elsewhere = sent("DELETE", "/workflows/signed/cache", url=URL + "/workflows/other/cache")
    assert elsewhere[0] == (401, "mismatch"), elsewhere
    bare = sent("DELETE", "/workflows/signed/cache", covered=("@method", "@path"))
    assert bare[0] == (401, "not_covered"), bare
    print(f"{len(taken)} requests signed by another implementation were accepted, once each; 2 others were refused")


TOKEN = sign_in()
main()
