"""Adds credentials to schemathesis requests: an operator token, and signatures of the exact bytes sent.

Two requests would break all later ones. Revoking without a body revokes the token of the request, so each such
request gets its own token. A registry entry for the operator would replace its scopes, so no request writes one.
"""

import base64
import copy
import hashlib
import hmac
import itertools
import json
import os
import time
import urllib.parse
import urllib.request
import uuid

import requests
import schemathesis

URL = os.environ["CHIMERA_SERVER"]
ACTOR = "admin"
KEY = os.environ["CHIMERA_HMAC_KEY"].encode()


def signature(body: bytes) -> str:
    return hmac.new(KEY, body, hashlib.sha256).hexdigest()


def message(method: str, url: str, body: bytes) -> dict:
    """The headers of an HTTP message signature (RFC 9421) of the request."""
    place = urllib.parse.urlsplit(url)
    covered = {"@method": method, "@path": place.path or "/", "@query": f"?{place.query}"}
    headers = {}
    if body:
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        covered["content-digest"] = headers["Content-Digest"] = f"sha-256=:{digest}:"
    names = " ".join(f'"{name}"' for name in covered)
    params = f'({names});created={int(time.time())};nonce="{uuid.uuid4().hex}";keyid="{ACTOR}";alg="hmac-sha256"'
    base = "".join(f'"{name}": {value}\n' for name, value in covered.items()) + f'"@signature-params": {params}'
    made = base64.b64encode(hmac.new(KEY, base.encode(), hashlib.sha256).digest()).decode()
    return {**headers, "Signature-Input": f"sig={params}", "Signature": f"sig=:{made}:"}


def sign_in() -> str:
    """A fresh token."""
    body = json.dumps({"actor": ACTOR, "issued_at": int(time.time()), "nonce": uuid.uuid4().hex}).encode()
    headers = {"content-type": "application/json", "x-hmac-signature": signature(body)}
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/auth/token", body, headers)) as answer:
        return json.load(answer)["access_token"]


class Signed(requests.auth.AuthBase):
    """Adds both credentials once the body is final."""

    token = None

    def __call__(self, request):
        if Signed.token is None:
            Signed.token = sign_in()
        revokes = request.url.split("?")[0].endswith("/auth/revoke")
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        request.headers["Authorization"] = f"Bearer {sign_in() if revokes else Signed.token}"
        request.headers["X-HMAC-Signature"] = signature(body)
        request.headers.update(message(request.method, request.url, body))
        return request


def ask(method: str, path: str, body=None):
    """Sends a request as the operator."""
    request = requests.Request(method, URL + path, json=body, auth=Signed()).prepare()
    answer = requests.Session().send(request)
    answer.raise_for_status()
    return answer.json()


ECHO = {"tool": "local.echo", "input": {"message": "hi"}}
KEEP = {"tool": "s3_upload", "input": {"bucket": "notes", "key_template": "${run_id}", "content": "x"}}
SAMPLE = {
    "air_version": "1.0",
    "workflow_id": "sample",
    "inputs": {"type": "object"},
    "nodes": [
        {"id": "s1", "type": "function", "fn": "local.echo", "inputs": {"message": "hi"}},
        {"id": "review", "type": "hitl", "prompt": "May it?"},
        {"id": "s2", "type": "function", "fn": "local.echo", "inputs": {"message": "${nodes.s1.outputs.message}"}},
    ],
    "edges": [{"from": "s1", "to": "review"}, {"from": "review", "to": "s2"}],
}

# Bodies that schemathesis would hardly generate.
ACTS = [
    {"steps": [ECHO, ECHO], "wait": 5},
    {"steps": [ECHO], "autonomy_level": "L0_Ask"},
    {"steps": [KEEP], "autonomy_level": "L1_Draft"},
    {"steps": [ECHO], "autonomy_level": "L3_ExecuteSilent"},
    {"steps": [ECHO], "dry_run": True},
    {"steps": [ECHO], "wait": 0},
    {"steps": [ECHO], "idempotency_key": "the same every time"},
    {"steps": [ECHO], "idempotency_key": "the same every time", "on_duplicate": "return"},
    {"steps": [{"tool": "s3_upload", "input": {"bucket": "../b", "key_template": "k", "content": "x"}}], "wait": 5},
    {"goal": 'Summarize "One. Two. Three."', "wait": 5},
    {"workflow_id": "sample", "inputs": {}, "wait": 5},
]

BODIES = {
    ("POST", "/act"): ACTS,
    ("POST", "/runs/{id}/approve"): [{"decision": word} for word in ("approve", "reject", "request_changes")],
    ("POST", "/runs/{id}/replay"): [{"mode": "freeze"}, {"mode": "shadow"}, {"mode": "retry"}],
    ("PATCH", "/runs/{id}"): [{"status": "rolled_back"}],
    ("POST", "/runs/{id}/steps/{step}/edit"): [{"input": {"message": "edited"}}],
    ("PUT", "/workflows/{id}"): [SAMPLE],
    ("POST", "/workflows/{id}/check"): [SAMPLE],
    ("POST", "/workflows/{id}/call"): [{}, {"wait": 1}],
}


def runs():
    """Ids of runs of every kind, created on first use."""
    if not RUNS:
        ask("PUT", "/workflows/sample", SAMPLE)
        RUNS.extend(ask("POST", "/act", body)["run_id"] for body in ACTS if "on_duplicate" not in body)
    return RUNS


RUNS = []
COUNT = itertools.count()


@schemathesis.hook
def before_call(context, case, kwargs):
    kwargs["auth"] = Signed()
    path, number = case.operation.path, next(COUNT)
    known = case.path_parameters
    if path == "/actors/{id}" and known.get("id") == ACTOR:
        known["id"] = "user_other"
    # Every other request names an existing run or workflow.
    if number % 2:
        return
    number //= 2
    if path.startswith("/runs/{id}"):
        known["id"] = runs()[number % len(runs())]
    if path.startswith("/workflows/{id}"):
        known["id"] = runs() and "sample"
    if "step" in known:
        known["step"] = ["s1", "review"][number % 2]
    bodies = BODIES.get((case.method.upper(), path))
    if bodies:
        case.body = copy.deepcopy(bodies[number % len(bodies)])
        case.media_type = "application/json"
    if path == "/auth/token":
        case.body = {"actor": ACTOR, "issued_at": int(time.time()), "nonce": uuid.uuid4().hex}
        case.media_type = "application/json"
