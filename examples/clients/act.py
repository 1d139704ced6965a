#!/usr/bin/env python3
"""Asks Chimera for something, with Python's standard library alone: signs in, acts at L2, acts at L1
and approves.

    CHIMERA_SERVER=http://127.0.0.1:8080 \
    SERVICE=n8n_workflow_demo SERVICE_KEY=… PERSON=user_ada PERSON_KEY=… python3 act.py

Signing in and acting, the body alone is signed. Everything else that changes something is signed over
method, path, query and body, as HTTP message signatures (RFC 9421) are. A signature covers exact bytes. So a
body is made into bytes once, and those bytes are both signed and sent.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
import urllib.error
import urllib.request

URL = os.environ.get("CHIMERA_SERVER", "http://127.0.0.1:8080")
TEXT = "Chimera lets agents act. Every act is written down. What was done can be undone."


class Chimera:
    """Chimera, as one actor sees it."""

    def __init__(self, actor, key):
        self.actor, self.key = actor, key.encode()
        self.token = None
        signed_in = self.ask("/auth/token", {"actor": actor, "issued_at": time.time(), "nonce": secrets.token_hex(16)})
        self.token = signed_in["access_token"]  # good for an hour

    def ask(self, path, document=None):
        """Asks, and gives the answer; a refusal is an error that says why."""
        headers, body = {}, None
        if document is not None:
            body = json.dumps(document).encode()
            headers["Content-Type"] = "application/json"
            if path in ("/auth/token", "/act"):
                headers["X-HMAC-Signature"] = hmac.new(self.key, body, hashlib.sha256).hexdigest()
            else:
                headers.update(self.signed("POST", path, body))
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with urllib.request.urlopen(urllib.request.Request(URL + path, body, headers)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{path}: {refused.code} {refused.read().decode()}") from None

    def signed(self, method, path, body):
        """The headers of an HTTP message signature. A path with a query would be split at its `?`."""
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        covered = {"@method": method, "@path": path, "@query": "?", "content-digest": f"sha-256=:{digest}:"}
        names = " ".join(f'"{name}"' for name in covered)
        params = f'({names});created={int(time.time())};nonce="{secrets.token_hex(16)}";keyid="{self.actor}"'
        base = "".join(f'"{name}": {value}\n' for name, value in covered.items()) + f'"@signature-params": {params}'
        made = base64.b64encode(hmac.new(self.key, base.encode(), hashlib.sha256).digest()).decode()
        signature = {"Signature-Input": f"sig={params}", "Signature": f"sig=:{made}:"}
        return {"Content-Digest": covered["content-digest"], **signature}


def main():
    steps = [{"tool": "local.summarize", "input": {"text": TEXT}}]

    service = Chimera(os.environ.get("SERVICE", "n8n_workflow_demo"), os.environ["SERVICE_KEY"])
    request = {"steps": steps, "wait": 10, "idempotency_key": f"example_{secrets.token_hex(8)}"}
    done = service.ask("/act", request)
    print("L2:", done["status"], done["result"]["s1"]["summary"])
    # Sent again, the same request does nothing a second time.
    again = service.ask("/act", {**request, "on_duplicate": "return"})
    assert again["run_id"] == done["run_id"]
    print("again:", again["status"])

    person = Chimera(os.environ.get("PERSON", "user_ada"), os.environ["PERSON_KEY"])
    draft = person.ask("/act", {"steps": steps, "autonomy_level": "L1_Draft"})
    print("L1:", draft["status"], draft["dry_run_results"][0]["would_execute"])
    decision = {"decision": "approve", "digest": draft["approvals"][0]["digest"]}
    decided = person.ask(draft["approve_url"], decision)
    print("approve:", decided["approval_status"])
    run = draft
    while run["status"] not in ("completed", "failed", "cancelled"):
        time.sleep(0.1)
        run = person.ask(f"/runs/{draft['run_id']}")
    print("then:", run["status"])


if __name__ == "__main__":
    main()
