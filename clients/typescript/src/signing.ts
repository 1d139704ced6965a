// Signatures of requests: HMAC-SHA256 with the actor's key.
//
// Signing in, refreshing and acting are signed over the body alone. Everything else that changes something carries an
// HTTP message signature (RFC 9421) over method, path, query and the digest of the body (RFC 9530).

import { createHash, createHmac } from "node:crypto";

/** What a message signature covers, and its parameters. */
export interface Message {
    actor: string;
    key: string;
    method: string;
    /** The path as it is sent, with its percent-encoding. */
    path: string;
    /** The query as it is sent, without its `?`. */
    query: string;
    body: string | undefined;
    /** Unix seconds. */
    created: number;
    nonce: string;
}

/** The value of `X-HMAC-Signature`. */
export function signBody(key: string, body: string): string {
    return createHmac("sha256", key).update(body).digest("hex");
}

/** The value of `Content-Digest`. */
export function contentDigest(body: string): string {
    return `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
}

/** The headers of a message signature. */
export function signMessage(message: Message): Record<string, string> {
    const { actor, key, method, path, query, body, created, nonce } = message;
    const headers: Record<string, string> = {};
    const covered: [string, string][] = [["@method", method], ["@path", path], ["@query", `?${query}`]];
    if (body) {
        headers["Content-Digest"] = contentDigest(body);
        covered.push(["content-digest", headers["Content-Digest"]]);
    }
    const names = covered.map(([name]) => `"${name}"`).join(" ");
    const params = `(${names});created=${created};nonce=${quoted(nonce)};keyid=${quoted(actor)};alg="hmac-sha256"`;
    const base = covered.map(([name, value]) => `"${name}": ${value}\n`).join("") + `"@signature-params": ${params}`;
    const made = createHmac("sha256", key).update(base).digest("base64");
    return { ...headers, "Signature-Input": `sig1=${params}`, Signature: `sig1=:${made}:` };
}

/** A string of a structured field (RFC 9651). */
export function quoted(text: string): string {
    if (!/^[ -~]*$/.test(text)) {
        throw new RangeError(`only printable ASCII can be signed: ${text}`);
    }
    return `"${text.replace(/[\\"]/g, "\\$&")}"`;
}
