// What happens between a call and its answer: tokens, signatures, retries.

import { randomUUID } from "node:crypto";
import { type Call, content, isRepeatable, target } from "./call.js";
import { ChimeraError } from "./errors.js";
import type { TokenDocument } from "./models.js";
import { mayRepeat, pauseAfter, type Retry } from "./retry.js";
import { signBody, signMessage } from "./signing.js";

/** The parts of the platform that a session uses. Tests replace them. */
export interface Platform {
    fetch: typeof fetch;
    sleep: (seconds: number, signal?: AbortSignal) => Promise<void>;
    /** Milliseconds of a clock that never goes back. */
    monotonic: () => number;
}

export interface Credentials {
    actor?: string | undefined;
    key?: string | undefined;
    scopes?: string[] | undefined;
}

export interface Tokens {
    access: string;
    refresh?: string;
    /** Monotonic milliseconds after which the token is renewed before it is used. */
    renewAt: number;
}

/** Errors of `connect`, after which nothing was sent. */
const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const USER_AGENT = "chimera-client-typescript/0.1.0";

/** The credentials of one actor, and the tokens that they were exchanged for. */
export class Session {
    // Private to the runtime too, so that nobody logs them by accident.
    #credentials: Credentials;
    #tokens: Tokens | undefined;
    #renewing: Promise<Tokens> | undefined;

    constructor(
        private readonly origin: string,
        /** The path of the server's URL, which is part of what is signed. */
        private readonly prefix: string,
        credentials: Credentials,
        readonly retry: Retry,
        private readonly timeoutSeconds: number,
        private readonly platform: Platform,
        tokens: Tokens | undefined,
    ) {
        this.#credentials = credentials;
        this.#tokens = tokens;
    }

    get tokens(): Tokens | undefined {
        return this.#tokens;
    }

    set tokens(tokens: Tokens | undefined) {
        this.#tokens = tokens;
    }

    /** Sends a call until it succeeds, or may not be sent again. The body of the answer is not read. */
    async exchange(call: Call, signal?: AbortSignal): Promise<Response> {
        const given = call.members?.["idempotency_key"] ?? undefined;
        const key = call.keyed && given === undefined ? { idempotency_key: randomUUID() } : undefined;
        let [failed, wasRenewed, mayHaveActed] = [0, false, false];
        for (;;) {
            const token = call.auth.startsWith("token") ? await this.token() : undefined;
            const repeats = call.keyed && (key !== undefined || mayHaveActed);
            const answer = await this.attempt(call, token, { ...key, ...(repeats ? { on_duplicate: "return" } : {}) }, signal);
            if (answer instanceof Response) {
                return mayHaveActed && key === undefined ? checkDuplicate(call, answer) : answer;
            }
            if (token !== undefined && answer.code === "UNAUTHENTICATED" && !wasRenewed && this.canRenew) {
                wasRenewed = true;
                this.discard(token);
                continue;
            }
            failed += 1;
            mayHaveActed ||= answer.isUncertain;
            const pause = mayRepeat(answer, isRepeatable(call)) ? pauseAfter(this.retry, failed, answer) : undefined;
            if (pause === undefined) {
                throw answer;
            }
            await this.platform.sleep(pause, signal);
        }
    }

    /** Waits, for a call that continues another one. */
    sleep(seconds: number, signal?: AbortSignal): Promise<void> {
        return this.platform.sleep(seconds, signal);
    }

    /** One attempt, with a signature of its own. */
    private async attempt(
        call: Call,
        token: string | undefined,
        extra: Record<string, unknown>,
        signal: AbortSignal | undefined,
    ): Promise<Response | ChimeraError> {
        const { url, init } = this.request(call, token, extra);
        const isStream = call.operation === "stream_run_events";
        const stopped = new AbortController();
        const forward = () => stopped.abort(signal?.reason);
        signal?.addEventListener("abort", forward, { once: true });
        const timer = setTimeout(() => stopped.abort(new Error("no answer in time")), this.timeoutSeconds * 1000);
        try {
            signal?.throwIfAborted();
            const answer = await this.platform.fetch(url, { ...init, redirect: "manual", signal: stopped.signal });
            if (answer.ok && isStream) {
                return answer;
            }
            // The body is part of the attempt: a connection that is lost within it is lost too.
            const bytes = await answer.arrayBuffer();
            if (answer.ok || answer.status === 304) {
                const empty = answer.status === 204 || answer.status === 304;
                return new Response(empty ? null : bytes, { status: answer.status, headers: answer.headers });
            }
            return ChimeraError.ofAnswer(answer.status, answer.headers, new TextDecoder().decode(bytes));
        } catch (cause) {
            if (signal?.aborted) {
                throw cause;
            }
            return connectionLost(cause);
        } finally {
            clearTimeout(timer);
            if (!isStream) {
                signal?.removeEventListener("abort", forward);
            }
        }
    }

    private request(call: Call, token: string | undefined, extra: Record<string, unknown>): { url: string; init: RequestInit } {
        const headers: Record<string, string> = { "User-Agent": USER_AGENT };
        for (const [name, value] of Object.entries(call.headers ?? {})) {
            if (value !== undefined && value !== null) {
                headers[name] = String(value);
            }
        }
        const made = content(call, extra);
        const body = made?.text;
        if (made !== undefined) {
            headers["Content-Type"] = made.type;
        }
        if (token !== undefined) {
            headers["Authorization"] = `Bearer ${token}`;
        }
        const { path: bare, query } = target(call);
        const path = this.prefix + bare;
        if (call.auth === "body" || call.auth === "token_and_body") {
            headers["X-HMAC-Signature"] = signBody(this.keyFor(call).key, body ?? "");
        } else if (call.auth === "token_and_message") {
            const created = Math.floor(Date.now() / 1000);
            const nonce = randomUUID();
            Object.assign(headers, signMessage({ ...this.keyFor(call), method: call.method, path, query, body, created, nonce }));
        }
        const url = this.origin + path + (query === "" ? "" : `?${query}`);
        return { url, init: { method: call.method, headers, ...(body === undefined ? {} : { body }) } };
    }

    private keyFor(call: Call): { actor: string; key: string } {
        const { actor, key } = this.#credentials;
        if (actor === undefined || key === undefined) {
            throw new ChimeraError({ code: "NO_KEY", detail: `${call.operation} is signed: give the client an actor and a key` });
        }
        return { actor, key };
    }

    // Tokens

    private get canRenew(): boolean {
        return this.#credentials.key !== undefined;
    }

    /** A token that is still valid for a while. */
    private async token(): Promise<string> {
        const held = this.tokens;
        if (held !== undefined && (this.platform.monotonic() < held.renewAt || !this.canRenew)) {
            return held.access;
        }
        // Concurrent calls wait for one renewal.
        this.#renewing ??= this.renewed(held).finally(() => (this.#renewing = undefined));
        this.tokens = await this.#renewing;
        return this.tokens.access;
    }

    /** Renews the token before the next request, unless that has happened already. */
    private discard(token: string): void {
        if (this.tokens?.access === token) {
            this.tokens.renewAt = 0;
        }
    }

    private async renewed(held: Tokens | undefined): Promise<Tokens> {
        if (held?.refresh !== undefined) {
            try {
                return await this.issued(refreshCall(held.refresh));
            } catch (error) {
                if (!(error instanceof ChimeraError) || error.status !== 401) {
                    throw error;
                }
            }
        }
        return this.issued(this.signInCall());
    }

    private async issued(call: Call): Promise<Tokens> {
        const asked = this.platform.monotonic();
        const document = (await (await this.exchange(call)).json()) as TokenDocument;
        const life = document.expires_in * 1000;
        const renewAt = asked + life - Math.min(60_000, life / 10);
        return { access: document.access_token, refresh: document.refresh_token, renewAt };
    }

    private signInCall(): Call {
        const { actor, scopes } = this.#credentials;
        return {
            operation: "create_token",
            method: "POST",
            path: "/auth/token",
            auth: "body",
            result: "json",
            members: { actor, scopes },
            fresh: () => ({ issued_at: Date.now() / 1000, nonce: randomUUID() }),
        };
    }
}

function refreshCall(token: string): Call {
    return {
        operation: "refresh_token",
        method: "POST",
        path: "/auth/refresh",
        auth: "body",
        result: "json",
        members: { refresh_token: token },
        // A used refresh token stays valid for a while, so repeating the request is harmless.
        fresh: () => ({}),
    };
}

/** Refuses the run of a different request, which the repeated one asked to be given instead of a conflict. */
async function checkDuplicate(call: Call, answer: Response): Promise<Response> {
    const document = (await answer.clone().json()) as { request_differs?: boolean };
    if (document.request_differs !== true || call.members?.["on_duplicate"] === "return") {
        return answer;
    }
    const detail = `idempotency key already used by a different request: ${call.members?.["idempotency_key"]}`;
    throw new ChimeraError({ code: "CONFLICT_IDEMPOTENCY", detail, status: 409 });
}

function connectionLost(cause: unknown): ChimeraError {
    const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
    const code = (inner as { code?: unknown }).code;
    const wasSent = !(typeof code === "string" && NEVER_SENT.has(code));
    const detail = inner instanceof Error ? `${inner.name}: ${inner.message}` : String(inner);
    return new ChimeraError({ code: "CONNECTION_LOST", detail, retryable: true, isUncertain: wasSent, cause });
}
