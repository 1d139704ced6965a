// What is sent, and when it is sent again, without a server: the outcomes are scripted.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { ChimeraError, Client, type Retry } from "../src/index.js";
import { pauseAfter, RETRY } from "../src/retry.js";

type Outcome = Response | Error;

interface Sent {
    path: string;
    headers: Headers;
    body: Record<string, unknown>;
}

const ISSUED = { access_token: "new", refresh_token: "next", expires_in: 3600, token_type: "Bearer", scopes: [] };
const lost = () => new TypeError("fetch failed", { cause: Object.assign(new Error("reset"), { code: "ECONNRESET" }) });
const refused = () => new TypeError("fetch failed", { cause: Object.assign(new Error("no"), { code: "ECONNREFUSED" }) });
const ok = (document: unknown = {}) => new Response(JSON.stringify(document));
const proxy = () => new Response("<html>", { status: 502 });

function problem(status: number, code: string, retryable = false, headers: Record<string, string> = {}): Response {
    const error = { code, message: "m", error_type: "resource_error", retryable, details: { a: 1 } };
    return new Response(JSON.stringify({ detail: "why", error, trace_id: "trace" }), { status, headers });
}

/** A client whose requests have these outcomes, and what it sent and waited for. */
function scripted(outcomes: Outcome[], retry: Partial<Retry> = {}) {
    const sent: Sent[] = [];
    const pauses: number[] = [];
    const platform = {
        fetch: async (url: unknown, init?: RequestInit) => {
            const body = typeof init?.body === "string" ? (JSON.parse(init.body) as Record<string, unknown>) : {};
            const headers = new Headers(init?.headers as Record<string, string>);
            sent.push({ path: new URL(String(url)).pathname, headers, body });
            const outcome = outcomes.shift();
            if (outcome instanceof Response) {
                return outcome;
            }
            throw outcome ?? new Error("no outcome is left");
        },
        sleep: async (seconds: number) => void pauses.push(seconds),
    };
    const credentials = { server: "http://server", actor: "user_ada", key: "a-key-of-sixteen-characters" };
    const client = new Client({ ...credentials, retry, platform });
    client.session.tokens = { access: "old", refresh: "refresh", renewAt: Infinity };
    return { client, sent, pauses };
}

async function failure(promise: Promise<unknown>): Promise<ChimeraError> {
    const error = await promise.then(() => undefined, (error: unknown) => error);
    assert.ok(error instanceof ChimeraError, String(error));
    return error;
}

const distinct = (values: unknown[]) => new Set(values).size;

test("an act has one idempotency key in all attempts", async () => {
    const { client, sent } = scripted([lost(), problem(503, "OVERLOADED", true), ok()]);
    await client.act({ goal: "g" });
    assert.equal(sent.length, 3);
    assert.equal(distinct(sent.map((it) => it.body["idempotency_key"])), 1);
    assert.deepEqual(sent.map((it) => it.body["on_duplicate"]), ["return", "return", "return"]);
});

test("a key of the caller conflicts until an answer was lost", async () => {
    const { client, sent } = scripted([problem(429, "RATE_LIMITED", true), lost(), ok()]);
    await client.act({ goal: "g", idempotency_key: "mine" });
    assert.deepEqual(sent.map((it) => it.body["on_duplicate"]), [undefined, undefined, "return"]);
    assert.deepEqual(sent.map((it) => it.body["idempotency_key"]), ["mine", "mine", "mine"]);
});

test("after a lost answer the run of a different request is still a conflict", async () => {
    const { client } = scripted([lost(), ok({ request_differs: true })]);
    assert.equal((await failure(client.act({ goal: "g", idempotency_key: "mine" }))).code, "CONFLICT_IDEMPOTENCY");
});

test("every attempt has a signature of its own", async () => {
    const { client, sent } = scripted([problem(503, "OVERLOADED", true), ok()]);
    await client.runs.approve("r");
    assert.equal(distinct(sent.map((it) => it.headers.get("signature"))), 2);
    assert.equal(distinct(sent.map((it) => it.headers.get("signature-input"))), 2);
});

test("what may have happened is not sent again without a key", async () => {
    for (const outcome of [lost(), problem(503, "REQUEST_TIMEOUT", true), proxy()]) {
        const { client, sent } = scripted([outcome]);
        assert.ok((await failure(client.runs.approve("r"))).isUncertain);
        assert.equal(sent.length, 1);
    }
});

test("what never left the machine is sent again", async () => {
    const { client, sent } = scripted([refused(), ok()]);
    await client.runs.approve("r");
    assert.equal(sent.length, 2);
});

test("a read is sent again after any loss", async () => {
    const { client, sent } = scripted([lost(), problem(503, "REQUEST_TIMEOUT", true), proxy(), ok()]);
    await client.runs.get("r");
    assert.equal(sent.length, 4);
});

test("an act whose outcome the server lost is sent again", async () => {
    const { client, sent } = scripted([problem(503, "OUTCOME_UNKNOWN"), ok()]);
    await client.act({ goal: "g" });
    assert.equal(sent.length, 2);
});

test("what the server calls final is thrown with all that it says", async () => {
    const { client } = scripted([problem(409, "INVALID_TRANSITION", false, { "x-request-id": "r-1" })]);
    const { code, status, retryable, detail, traceId, requestId, details } = await failure(client.runs.get("r"));
    assert.deepEqual([code, status, retryable, detail], ["INVALID_TRANSITION", 409, false, "why"]);
    assert.deepEqual([traceId, requestId, details], ["trace", "r-1", { a: 1 }]);
});

test("an answer that is not the server's is an error", async () => {
    const moved = new Response(null, { status: 302, headers: { location: "http://elsewhere" } });
    const { client } = scripted([moved, new Response("<html>")]);
    for (const expected of [302, 200]) {
        const { code, status } = await failure(client.runs.get("r"));
        assert.deepEqual([code, status], ["HTTP_ERROR", expected]);
    }
});

test("the pauses grow and are bounded like the attempts", async () => {
    const retry = { ...RETRY, attemptsMax: 4, baseSeconds: 1, pauseSecondsMax: 3 };
    const error = new ChimeraError({ code: "X", detail: "x" });
    for (const [failed, bound] of [[1, 2], [2, 3], [3, 3]] as const) {
        const pauses = Array.from({ length: 50 }, () => pauseAfter(retry, failed, error) ?? NaN);
        assert.ok(pauses.every((it) => it >= 0 && it <= bound) && distinct(pauses) > 1);
    }
    const { client, sent } = scripted([lost(), lost(), lost(), lost()], retry);
    await failure(client.runs.get("r"));
    assert.equal(sent.length, 4);
});

test("Retry-After is honoured, and a long one ends the attempts", async () => {
    const { client, pauses } = scripted([problem(429, "RATE_LIMITED", true, { "retry-after": "17" }), ok()]);
    await client.runs.get("r");
    assert.deepEqual(pauses, [17]);
    const other = scripted([problem(429, "RATE_LIMITED", true, { "retry-after": "3600" })]);
    assert.equal((await failure(other.client.runs.get("r"))).retryAfter, 3600);
});

test("a token is refreshed before it expires", async () => {
    const { client, sent } = scripted([ok(ISSUED), ok()]);
    client.session.tokens = { access: "old", refresh: "refresh", renewAt: 0 };
    await client.runs.get("r");
    assert.deepEqual(sent.map((it) => it.path), ["/auth/refresh", "/runs/r"]);
    assert.deepEqual(sent[0]?.body, { refresh_token: "refresh" });
    assert.equal(sent[1]?.headers.get("authorization"), "Bearer new");
});

test("a refused token is renewed once", async () => {
    const { client, sent } = scripted([problem(401, "UNAUTHENTICATED"), ok(ISSUED), ok()]);
    await client.runs.get("r");
    assert.deepEqual(sent.map((it) => it.path), ["/runs/r", "/auth/refresh", "/runs/r"]);
    const other = scripted([problem(401, "UNAUTHENTICATED"), ok(ISSUED), problem(401, "UNAUTHENTICATED")]);
    assert.equal((await failure(other.client.runs.get("r"))).code, "UNAUTHENTICATED");
});

test("a refused refresh token is replaced by a new sign-in", async () => {
    const { client, sent } = scripted([problem(401, "UNAUTHENTICATED"), lost(), ok(ISSUED), ok()]);
    client.session.tokens = { access: "old", refresh: "refresh", renewAt: 0 };
    await client.runs.get("r");
    assert.deepEqual(sent.map((it) => it.path), ["/auth/refresh", "/auth/token", "/auth/token", "/runs/r"]);
    assert.notEqual(sent[1]?.body["nonce"], sent[2]?.body["nonce"]);
});

test("a client without a key reads and does not sign", async () => {
    const client = new Client({ server: "http://server", token: "only", platform: { fetch: async () => ok() } });
    await client.runs.get("r");
    assert.equal((await failure(client.runs.approve("r"))).code, "NO_KEY");
});

test("nothing that is logged shows a secret", () => {
    const { client } = scripted([]);
    const shown = inspect(client, { depth: Infinity });
    assert.ok(shown.includes("http://server"));
    assert.ok(!shown.includes("a-key-of-sixteen-characters") && !shown.includes("refresh"));
});

test("a target is encoded as it is signed", async () => {
    const { client, sent } = scripted([ok()]);
    await client.workflows.get("b/c d?'", { version: 1 });
    assert.equal(sent[0]?.path, "/workflows/b%2Fc%20d%3F%27");
    for (const id of ["", ".", ".."]) {
        await assert.rejects(client.workflows.get(id), /part of a path/);
    }
});
