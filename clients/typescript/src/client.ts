// The client: one object per actor.

import { performance } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";
import type { Call } from "./call.js";
import { ChimeraError } from "./errors.js";
import { type EventsOptions, follow } from "./events.js";
import type { EventDocument, RunDocument } from "./models.js";
import {
    Actors,
    Artifacts,
    Audit,
    Auth,
    Events,
    Inbox,
    Links,
    Root,
    Runs as RunOperations,
    Schedules,
    Server,
    Tenants,
    Tools,
    Workflows,
} from "./resources.js";
import { RETRY, type Retry } from "./retry.js";
import { type Platform, Session } from "./session.js";

/** How to reach a server, and as whom. What is omitted is taken from the environment. */
export interface ClientOptions {
    /** URL of the server; `CHIMERA_SERVER` if omitted. */
    server?: string | undefined;
    /** Who acts; `CHIMERA_ACTOR` if omitted. */
    actor?: string | undefined;
    /** The key of the actor; `CHIMERA_HMAC_KEY` if omitted. */
    key?: string | undefined;
    /** An access token, for a client without a key, which can only read. */
    token?: string | undefined;
    /** Narrows what the client's tokens may do. */
    scopes?: string[] | undefined;
    retry?: Partial<Retry> | undefined;
    /** Seconds to wait for an answer; 60 if omitted. */
    timeoutSeconds?: number | undefined;
    /** Replaces parts of the platform. */
    platform?: Partial<Platform> | undefined;
}

const PLATFORM: Platform = {
    fetch: (input, init) => fetch(input, init),
    sleep: (seconds, signal) => pause(seconds * 1000, undefined, signal === undefined ? {} : { signal }),
    monotonic: () => performance.now(),
};

/** Runs: what was asked for, decided and done. */
export class Runs extends RunOperations {
    #session: Session;

    constructor(session: Session) {
        super((call) => send(session, call));
        this.#session = session;
    }

    /** Follows the events of a run until it ends. After a lost connection it continues where it was. */
    events(runId: string, options: EventsOptions = {}): AsyncGenerator<EventDocument, void, undefined> {
        return follow(this.#session, runId, options);
    }

    /** Waits until a run ends, however long that takes, and returns it. */
    async wait(runId: string, options: EventsOptions = {}): Promise<RunDocument> {
        for await (const _ of this.events(runId, options)) {
            // Only the end matters.
        }
        return this.get(runId, options.for_tenant === undefined ? {} : { for_tenant: options.for_tenant });
    }
}

/** Chimera as one actor sees it. */
export class Client extends Root {
    readonly runs: Runs;
    readonly workflows: Workflows;
    readonly schedules: Schedules;
    readonly events: Events;
    readonly tools: Tools;
    readonly actors: Actors;
    readonly tenants: Tenants;
    readonly audit: Audit;
    readonly inbox: Inbox;
    readonly artifacts: Artifacts;
    readonly links: Links;
    readonly auth: Auth;
    readonly server: Server;
    /** @internal */
    readonly session: Session;

    constructor(options: ClientOptions = {}) {
        const session = sessionOf(options);
        const sender = (call: Call) => send(session, call);
        super(sender);
        this.session = session;
        this.runs = new Runs(session);
        this.workflows = new Workflows(sender);
        this.schedules = new Schedules(sender);
        this.events = new Events(sender);
        this.tools = new Tools(sender);
        this.actors = new Actors(sender);
        this.tenants = new Tenants(sender);
        this.audit = new Audit(sender);
        this.inbox = new Inbox(sender);
        this.artifacts = new Artifacts(sender);
        this.links = new Links(sender);
        this.auth = new Auth(sender);
        this.server = new Server(sender);
    }
}

async function send(session: Session, call: Call): Promise<unknown> {
    const answer = await session.exchange(call);
    switch (call.result) {
        case "json":
            return json(answer);
        case "text":
            return answer.text();
        case "bytes":
            return new Uint8Array(await answer.arrayBuffer());
        case "none":
            return undefined;
    }
}

async function json(answer: Response): Promise<unknown> {
    const { status } = answer;
    try {
        return await answer.json();
    } catch (cause) {
        throw new ChimeraError({ code: "HTTP_ERROR", detail: "the answer is not JSON", status, cause });
    }
}

function sessionOf(options: ClientOptions): Session {
    const { env } = process;
    const server = options.server ?? env["CHIMERA_SERVER"];
    const withToken = options.token !== undefined;
    const actor = options.actor ?? (withToken ? undefined : env["CHIMERA_ACTOR"]);
    const key = options.key ?? (withToken ? undefined : env["CHIMERA_HMAC_KEY"]);
    if (!server) {
        throw new TypeError("server is required: pass it or set CHIMERA_SERVER");
    }
    if (!withToken && !(actor && key)) {
        throw new TypeError("actor and key are required: pass them or set CHIMERA_ACTOR and CHIMERA_HMAC_KEY");
    }
    const { origin, pathname } = new URL(server);
    const tokens = options.token === undefined ? undefined : { access: options.token, renewAt: Infinity };
    const retry = { ...RETRY, ...options.retry };
    const platform = { ...PLATFORM, ...options.platform };
    const credentials = { actor, key, scopes: options.scopes };
    return new Session(origin, pathname.replace(/\/$/, ""), credentials, retry, options.timeoutSeconds ?? 60, platform, tokens);
}
