// The signatures are those that openssl makes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { quoted, signBody, signMessage } from "../src/signing.js";

interface Known {
    actor: string;
    key: string;
    created: number;
    nonce: string;
    messages: { method: string; path: string; query: string; body: string | null; headers: Record<string, string> }[];
    bodies: { body: string; signature: string }[];
}

const text = readFileSync(`${process.env["TEST_SOURCE"]}/../signatures.json`, "utf8");
const { messages, bodies, ...known } = JSON.parse(text) as Known;

test("a message signature covers method, path, query and body", () => {
    for (const { headers, body, ...message } of messages) {
        assert.deepEqual(signMessage({ ...known, ...message, body: body ?? undefined }), headers);
    }
});

test("a body signature covers the bytes", () => {
    for (const { body, signature } of bodies) {
        assert.equal(signBody(known.key, body), signature);
    }
});

test("a name that a header cannot hold is refused", () => {
    assert.equal(quoted('a"b\\c'), '"a\\"b\\\\c"');
    assert.throws(() => quoted("ä"), /ASCII/);
});
