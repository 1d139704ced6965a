// Every operation of the document is a method, has types, and is signed the way the server wants it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Call } from "../src/call.js";
import { ChimeraError, type EventDocument, type RunDocument, type StartedDocument } from "../src/index.js";
import type { Client } from "../src/index.js";
import * as resources from "../src/resources.js";
import { Server } from "./harness.js";

// The answers of these are the caller's own JSON, or have no body.
type Untyped = { workflows: "call" | "clearCache" };

type IsUnknown<T> = unknown extends T ? true : T extends void ? true : false;
type Methods<R> = {
    [M in keyof R]: R[M] extends (...args: never[]) => Promise<infer A> ? (IsUnknown<A> extends true ? M : never) : never;
}[keyof R];
type UntypedMethods = {
    [R in keyof Client]: R extends keyof Untyped ? Exclude<Methods<Client[R]>, Untyped[R]> : Methods<Client[R]>;
}[keyof Client];
// Fails to compile if another method has no type.
const everyMethodHasTypes: [Exclude<UntypedMethods, "sleep">] extends [never] ? true : never = true;

type Yields<T> = T extends AsyncGenerator<infer Item> ? Item : never;
const actHasTypes: IsUnknown<Awaited<ReturnType<Client["act"]>>> extends false ? true : never = true;
const eventsHaveTypes: Yields<ReturnType<Client["runs"]["events"]>> extends EventDocument ? true : never = true;
const retriesHaveTypes: Awaited<ReturnType<Client["runs"]["retry"]>> extends RunDocument | StartedDocument ? true : never = true;

// @ts-expect-error: the words of a decision are known
const misspelled: resources.RunsApproveOptions = { decision: "aprove" };

/** The credential is in the request itself, not in the client. */
const OWN_CREDENTIAL = new Set(["create_token", "refresh_token", "download_artifact", "open_approval_link", "decide_by_link"]);
const AUTH_ERRORS = new Set([
    "UNAUTHENTICATED",
    "SIGNATURE_INVALID",
    "EXPIRED_TTL",
    "METHOD_NOT_ALLOWED",
    "UNSUPPORTED_MEDIA_TYPE",
    "HTTP_ERROR",
]);

let server: Server;
before(async () => {
    server = await Server.start();
});
after(() => server.stop());

/** A call of every operation, made through its method. */
function calls(): Call[] {
    const found: Call[] = [];
    const sender = async (call: Call) => void found.push(call);
    for (const resource of Object.values(resources)) {
        const made = new resource(sender) as unknown as Record<string, (...args: unknown[]) => unknown>;
        for (const name of Object.getOwnPropertyNames(resource.prototype).filter((it) => it !== "constructor")) {
            const method = made[name];
            const path = ["x", "x", "x"].slice(0, method?.length ?? 0);
            method?.apply(made, path.length > 0 ? [...path, {}] : [{}]);
        }
    }
    return found;
}

test("every operation of the document has one method", async () => {
    assert.ok(everyMethodHasTypes && actHasTypes && eventsHaveTypes && retriesHaveTypes && misspelled);
    const answer = await fetch(`${server.url}/openapi.json`);
    const { paths } = (await answer.json()) as { paths: Record<string, Record<string, { operationId: string }>> };
    const known = Object.entries(paths).flatMap(([path, item]) =>
        Object.entries(item).map(([verb, { operationId }]) => `${operationId} ${verb.toUpperCase()} ${path}`),
    );
    const named = calls().map((call) => `${call.operation} ${call.method} ${call.path}`);
    assert.deepEqual([...named, "stream_run_events GET /runs/{id}/events"].sort(), known.sort());
});

test("the server accepts the signature of every operation", async () => {
    const client = server.client("admin");
    for (const call of calls().filter((it) => !OWN_CREDENTIAL.has(it.operation))) {
        try {
            await client.session.exchange(call);
        } catch (error) {
            assert.ok(error instanceof ChimeraError && !AUTH_ERRORS.has(error.code), `${call.operation}: ${error}`);
        }
    }
});
