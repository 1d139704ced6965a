// The client against a real server, with a relay between them that fails.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { type ActedDocument, type AutonomyLevel, ChimeraError, Client, type EventDocument, type StepBody } from "../src/index.js";
import { QUICK, refuse, Relay, Server } from "./harness.js";

const SUMMARIZE: StepBody = { tool: "local.summarize", input: { text: "One is. Two is." } };
// Tokens that the tests make themselves, such as one that has expired, are signed with this.
const TOKEN_SECRET = "a-secret-of-this-test-run-and-no-other";

let server: Server;
before(async () => {
    server = await Server.start({ JWT_ALGORITHM: "HS256", JWT_SECRET_KEY: TOKEN_SECRET });
});
after(() => server.stop());

function upload(name: string): StepBody {
    return { tool: "s3_upload", input: { bucket: "notes", key_template: name, content: "Hello!" } };
}

async function drafted(client: Client, name: string): Promise<ActedDocument> {
    const draft = await client.act({ steps: [upload(name)], autonomy_level: "L1_Draft", wait: 10 });
    assert.equal(draft.status, "awaiting_approval");
    return draft;
}

async function failure(promise: Promise<unknown>): Promise<ChimeraError> {
    const error = await promise.then(() => undefined, (error: unknown) => error);
    assert.ok(error instanceof ChimeraError, String(error));
    return error;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
    const found: T[] = [];
    for await (const item of items) {
        found.push(item);
    }
    return found;
}

function expiredToken(actor: string): string {
    const part = (text: string) => Buffer.from(text).toString("base64url");
    const now = Math.floor(Date.now() / 1000);
    const claims = { sub: actor, exp: now - 5, iat: now - 3600, aud: "chimera" };
    const signed = `${part('{"alg":"HS256","typ":"JWT"}')}.${part(JSON.stringify(claims))}`;
    return `${signed}.${createHmac("sha256", TOKEN_SECRET).update(signed).digest("base64url")}`;
}

/** Runs a test with a relay of its own. */
function relayed(name: string, body: (relay: Relay) => Promise<void>): void {
    test(name, async () => {
        const relay = await Relay.start(server);
        try {
            await body(relay);
        } finally {
            relay.close();
        }
    });
}

const paths = (relay: Relay) => relay.heads.map((head) => head.split(" ")[1]);

test("an action runs as freely as its level", async () => {
    const client = server.client("admin");
    const expected: [AutonomyLevel, string][] = [
        ["L0_Ask", "awaiting_approval"],
        ["L1_Draft", "awaiting_approval"],
        ["L2_ExecuteNotify", "completed"],
    ];
    for (const [autonomy_level, status] of expected) {
        const acted = await client.act({ steps: [SUMMARIZE], autonomy_level, wait: 10 });
        assert.deepEqual([acted.autonomy_level, acted.status], [autonomy_level, status]);
    }
    const silent = await client.act({ steps: [SUMMARIZE], autonomy_level: "L3_ExecuteSilent" });
    assert.equal((await client.runs.wait(silent.run_id)).status, "completed");
});

test("a draft is approved, done and undone", async () => {
    const client = server.client("admin");
    const place = join(server.folder, "data/buckets/notes/approved.txt");
    const draft = await drafted(client, "approved.txt");
    const decided = await client.runs.approve(draft.run_id, { digest: draft.approvals[0]?.digest ?? null, reason: "fine" });
    assert.equal(decided.approval_status, "approved");
    assert.equal((await client.runs.wait(draft.run_id)).status, "completed");
    assert.equal(readFileSync(place, "utf8"), "Hello!");
    await client.runs.rollback(draft.run_id);
    assert.equal((await client.runs.wait(draft.run_id)).status, "rolled_back");
    assert.ok(!existsSync(place));
});

test("an edited step needs an approval of what it is now", async () => {
    const client = server.client("admin");
    const draft = await client.act({ steps: [upload("a.txt")], autonomy_level: "L0_Ask", wait: 10 });
    const asked = draft.approvals[0];
    await client.runs.edit(draft.run_id, asked?.node_id ?? "", { input: upload("b.txt").input ?? {} });
    const digests: unknown[] = [];
    for await (const event of client.runs.events(draft.run_id)) {
        if (event.event_type === "approval.requested") {
            digests.push((event.data?.["details"] as { digest: string }).digest);
        }
        if (digests.length === 2) {
            break;
        }
    }
    assert.ok(digests[0] === asked?.digest && digests[1] !== asked?.digest);
    assert.equal((await failure(client.runs.approve(draft.run_id, { digest: asked?.digest ?? null }))).code, "STALE_APPROVAL");
    const decided = await client.runs.reject(draft.run_id, { digest: String(digests[1]), reason: "no" });
    assert.equal(decided.approval_status, "denied");
    assert.equal((await client.runs.wait(draft.run_id)).status, "cancelled");
});

test("a cancelled run can be retried", async () => {
    const client = server.client("admin");
    const draft = await drafted(client, "cancelled.txt");
    await client.runs.cancel(draft.run_id, { reason: "changed my mind" });
    assert.equal((await client.runs.wait(draft.run_id)).status, "cancelled");
    const again = await client.runs.retry(draft.run_id);
    assert.notEqual(again.run_id, draft.run_id);
    await client.runs.cancel(again.run_id);
});

test("a workflow is checked, stored and shared", async () => {
    const client = server.client("admin");
    const [found] = (await client.workflows.listPage()).items;
    const id = found?.workflow_id ?? "";
    const document = (await client.workflows.get(id)).document ?? {};
    assert.ok((await client.workflows.check(id, document)).nodes > 0);
    assert.equal((await client.workflows.put(id, document)).created, false);
    assert.equal((await client.workflows.share(id)).shared, true);
    assert.equal((await client.workflows.unshare(id)).shared, false);
});

test("a list continues over its pages", async () => {
    const client = server.client("admin");
    for (let at = 0; at < 3; at += 1) {
        await client.act({ steps: [SUMMARIZE], dry_run: true });
    }
    const every = (await all(client.runs.list())).map((run) => run.run_id);
    assert.deepEqual((await all(client.runs.list({ limit: 2 }))).map((run) => run.run_id), every);
    assert.ok(every.length > 2 && new Set(every).size === every.length);
    assert.ok((await all(client.audit.list({ limit: 5, event_type: "run.started" }))).length >= 3);
});

test("actors and their keys are managed", async () => {
    const client = server.client("admin");
    const made = await client.actors.put("service_client", { scopes: ["local.summarize"], quota_per_minute: 20 });
    assert.deepEqual(made.effective_scopes, ["local.summarize"]);
    const { hmac_key: key } = await client.actors.createKey("service_client");
    const other = new Client({ server: server.url, actor: "service_client", key });
    assert.equal((await other.act({ steps: [SUMMARIZE], wait: 10 })).status, "completed");
    await client.actors.remove("service_client");
    assert.ok((await all(client.actors.list())).every((actor) => actor.id !== "service_client"));
});

test("a quota that takes too long to recover is an error", async () => {
    const admin = server.client("admin");
    await admin.actors.put("service_slow", { scopes: ["local.summarize"], quota_per_minute: 1 });
    const { hmac_key: key } = await admin.actors.createKey("service_slow");
    const slow = new Client({ server: server.url, actor: "service_slow", key, retry: { retryAfterSecondsMax: 0 } });
    const act = () => slow.act({ steps: [SUMMARIZE], dry_run: true });
    const error = await failure(act().then(act).then(act));
    assert.deepEqual([error.code, error.status, error.retryable], ["RATE_LIMITED", 429, true]);
    assert.ok(error.retryAfter !== undefined && error.retryAfter > 0);
});

test("what an actor may not do says so", async () => {
    const error = await failure(server.client("user_ada").act({ steps: [upload("no.txt")] }));
    assert.deepEqual([error.code, error.status, error.retryable], ["RBAC_FORBIDDEN", 403, false]);
    assert.equal(error.detail, "the actor lacks the scope s3.upload");
    assert.ok(error.traceId && error.requestId);
});

test("a name that has to be encoded is signed as it is sent", async () => {
    const name = "weekly report/ü'(1)*~";
    const refused = await failure(server.client("admin").workflows.clearCache(name, { key: "a/b&c=d +%" }));
    assert.equal(refused.code, "NOT_FOUND");
    assert.ok(refused.message.includes(name));
});

relayed("a wrong key is refused once", async (relay) => {
    const client = new Client({ server: relay.url, actor: "admin", key: "0".repeat(64), retry: QUICK });
    assert.equal((await failure(client.runs.listPage())).code, "SIGNATURE_INVALID");
    assert.equal(relay.heads.length, 1);
});

relayed("an expired token is replaced", async (relay) => {
    const client = server.client("admin", relay);
    client.session.tokens = { access: expiredToken("admin"), renewAt: Infinity };
    await client.runs.listPage();
    assert.deepEqual(paths(relay), ["/runs", "/auth/token", "/runs"]);
});

test("a revoked session is replaced", async () => {
    const client = server.client("admin");
    assert.equal((await client.auth.revokeToken()).revoked, true);
    await client.runs.listPage();
});

relayed("a token is refreshed with its refresh token, and once for concurrent calls", async (relay) => {
    const client = server.client("admin", relay);
    await Promise.all([client.runs.listPage(), client.runs.listPage(), client.runs.listPage()]);
    assert.ok(client.session.tokens);
    client.session.tokens.renewAt = 0;
    await Promise.all([client.runs.listPage(), client.runs.listPage()]);
    const renewals = paths(relay).filter((path) => path?.startsWith("/auth"));
    assert.deepEqual(renewals, ["/auth/token", "/auth/refresh"]);
});

relayed("an answer that is lost after the commit starts no second run", async (relay) => {
    const client = server.client("admin", relay);
    await client.runs.listPage();
    relay.faults.push(0, 40);
    const acted = await client.act({ steps: [SUMMARIZE], correlation_id: "lost" });
    assert.equal((await client.runs.wait(acted.run_id)).status, "completed");
    const sent = relay.bodies.filter((body) => body.includes("correlation_id"));
    assert.equal(sent.length, 3);
    assert.equal(new Set(sent.map((body) => (JSON.parse(body) as { idempotency_key: string }).idempotency_key)).size, 1);
    assert.equal((await all(client.audit.list({ event_type: "run.started", run_id: acted.run_id }))).length, 1);
    assert.equal((await client.runs.listPage({ limit: 1 })).items[0]?.run_id, acted.run_id);
});

relayed("a decision whose answer is lost is not repeated", async (relay) => {
    const client = server.client("admin", relay);
    const draft = await drafted(client, "once.txt");
    relay.faults.push(0);
    const error = await failure(client.runs.approve(draft.run_id));
    assert.deepEqual([error.code, error.isUncertain], ["CONNECTION_LOST", true]);
    assert.equal(paths(relay).filter((path) => path?.endsWith("/approve")).length, 1);
    assert.equal((await client.runs.wait(draft.run_id)).status, "completed");
});

relayed("refusals that pass are waited for", async (relay) => {
    const client = server.client("admin", relay);
    const draft = await drafted(client, "later.txt");
    relay.faults.push(refuse(429, "RATE_LIMITED", "0"), refuse(503, "OVERLOADED", "1"));
    const began = performance.now();
    await client.runs.cancel(draft.run_id);
    assert.ok(performance.now() - began >= 990);
    const signatures = relay.heads.flatMap((head) => /^signature: .*$/im.exec(head) ?? []);
    assert.equal(new Set(signatures).size, 3);
});

relayed("events continue after the connection is cut", async (relay) => {
    const client = server.client("admin", relay);
    const draft = await drafted(client, "cut.txt");
    // The first stream is cut within its second event, and the second one within its first.
    relay.faults.push(800, 100);
    const seen: EventDocument[] = [];
    for await (const event of client.runs.events(draft.run_id)) {
        seen.push(event);
        if (event.event_type === "approval.requested") {
            await client.runs.approve(draft.run_id);
        }
    }
    assert.deepEqual(seen.map((event) => event.run_seq), seen.map((_, at) => at + 1));
    assert.deepEqual(await all(client.runs.events(draft.run_id)), seen);
    assert.equal(seen.at(-1)?.event_type, "run.completed");
    const resumed = relay.heads.flatMap((head) => /^last-event-id: (\d+)/im.exec(head)?.[1] ?? []);
    assert.deepEqual(resumed.slice(0, 3), ["0", "1", "1"]);
});

test("events start after the one that is known, and stop when the caller does", async () => {
    const client = server.client("admin");
    const acted = await client.act({ steps: [SUMMARIZE], autonomy_level: "L2_ExecuteNotify", wait: 10 });
    const every = await all(client.runs.events(acted.run_id));
    assert.deepEqual(await all(client.runs.events(acted.run_id, { after: 1 })), every.slice(1));
    const draft = await drafted(client, "stopped.txt");
    const stop = new AbortController();
    const followed = all(client.runs.events(draft.run_id, { signal: stop.signal }));
    stop.abort(new Error("enough"));
    await assert.rejects(followed, /enough/);
});

test("the events of a run that does not exist are an error", async () => {
    const error = await failure(all(server.client("admin").runs.events("01a1e72b-f87b-7e20-a832-1344d6896013")));
    assert.equal(error.code, "NOT_FOUND");
});

test("a server that is gone is an error with its cause", async () => {
    const closed = await Relay.start(server);
    closed.close();
    const client = new Client({ server: closed.url, actor: "admin", key: "k".repeat(64), retry: { ...QUICK, attemptsMax: 2 } });
    const error = await failure(client.runs.listPage());
    assert.deepEqual([error.code, error.isUncertain], ["CONNECTION_LOST", false]);
    assert.ok(error.cause);
});
