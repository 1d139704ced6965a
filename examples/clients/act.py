#!/usr/bin/env python3
"""Asks Chimera for something, with Python's standard library alone: signs in, acts at L2, acts at L1
and approves.

    CHIMERA_SERVER=http://127.0.0.1:8080 \
    SERVICE=n8n_workflow_demo SERVICE_KEY=… PERSON=user_ada PERSON_KEY=… python3 act.py

The signature covers the exact bytes of the body. So a body is made into bytes once, and those bytes are
both signed and sent.
"""

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
        self.key = key.encode()
        self.token = None
        signed_in = self.ask("/auth/token", {"actor": actor, "issued_at": time.time(), "nonce": secrets.token_hex(16)})
        self.token = signed_in["access_token"]  # good for an hour

    def ask(self, path, document=None):
        """Asks, and gives the answer; a refusal is an error that says why."""
        headers, body = {}, None
        if document is not None:
            body = json.dumps(document).encode()
            headers["Content-Type"] = "application/json"
            headers["X-HMAC-Signature"] = hmac.new(self.key, body, hashlib.sha256).hexdigest()
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with urllib.request.urlopen(urllib.request.Request(URL + path, body, headers)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{path}: {refused.code} {refused.read().decode()}") from None


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


main()
