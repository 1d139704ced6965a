"""Signatures of requests: HMAC-SHA256 with the actor's key.

Signing in, refreshing and acting are signed over the body alone. Everything else that changes something carries an HTTP
message signature (RFC 9421) over method, path, query and the digest of the body (RFC 9530).
"""

import base64
import hashlib
import hmac


def sign_body(key: str, body: bytes) -> str:
    """The value of `X-HMAC-Signature`."""
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


def content_digest(body: bytes) -> str:
    """The value of `Content-Digest`."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def sign_message(
    *, actor: str, key: str, method: str, path: str, query: str, body: bytes | None, created: int, nonce: str
) -> dict[str, str]:
    """The headers of a message signature.

    :param path: the path as it is sent, with its percent-encoding
    :param query: the query as it is sent, without its `?`
    """
    covered = {"@method": method, "@path": path, "@query": f"?{query}"}
    headers = {}
    if body:
        covered["content-digest"] = headers["Content-Digest"] = content_digest(body)
    names = " ".join(f'"{name}"' for name in covered)
    params = f"({names});created={created};nonce={quoted(nonce)};keyid={quoted(actor)};" + 'alg="hmac-sha256"'
    base = "".join(f'"{name}": {value}\n' for name, value in covered.items()) + f'"@signature-params": {params}'
    made = base64.b64encode(hmac.new(key.encode(), base.encode(), hashlib.sha256).digest()).decode()
    return {**headers, "Signature-Input": f"sig1={params}", "Signature": f"sig1=:{made}:"}


def quoted(text: str) -> str:
    """A string of a structured field (RFC 9651)."""
    if not all(" " <= letter <= "~" for letter in text):
        raise ValueError(f"only printable ASCII can be signed: {text!r}")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
