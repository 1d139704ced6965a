// Server-sent events of a run.
//
// The number of an event is its id, so a client that lost the connection continues after the last one it got. The server
// answers 204 when the run has ended and nothing is left; the end of a stream alone means nothing.

import type { Call } from "./call.js";
import { ChimeraError } from "./errors.js";
import type { EventDocument } from "./models.js";
import { pauseAfter } from "./retry.js";
import type { Session } from "./session.js";

/** The server sends a comment every 10 seconds. */
const READ_TIMEOUT_MS = 35_000;

export interface EventsOptions {
    /** Number of the last event that is already known. */
    after?: number;
    /** Operators only: slug of the tenant to act for. */
    for_tenant?: string;
    /** Ends the iteration with the signal's reason as the error. */
    signal?: AbortSignal;
}

/** Follows the events of a run until it ends. */
export async function* follow(
    session: Session,
    runId: string,
    options: EventsOptions,
): AsyncGenerator<EventDocument, void, undefined> {
    let after = options.after ?? 0;
    let failed = 0;
    for (;;) {
        const stopped = new AbortController();
        const forward = () => stopped.abort(options.signal?.reason);
        options.signal?.throwIfAborted();
        options.signal?.addEventListener("abort", forward, { once: true });
        let lost: unknown;
        try {
            const answer = await session.exchange(streamCall(runId, after, options.for_tenant), stopped.signal);
            if (answer.status === 204 || answer.body === null) {
                return;
            }
            for await (const event of received(answer.body)) {
                [after, failed] = [event.run_seq, 0];
                yield event;
            }
        } catch (error) {
            if (error instanceof ChimeraError || options.signal?.aborted) {
                throw error;
            }
            lost = error;
        } finally {
            options.signal?.removeEventListener("abort", forward);
            // Closes the connection if the caller left the loop.
            stopped.abort();
        }
        failed += 1;
        const detail = `the stream ended: ${lost ?? "no reason"}`;
        const ended = new ChimeraError({ code: "CONNECTION_LOST", detail, retryable: true, cause: lost });
        const pause = pauseAfter(session.retry, failed, ended);
        if (pause === undefined) {
            throw ended;
        }
        // After progress, the first attempt is made at once.
        await session.sleep(failed > 1 ? pause : 0, options.signal);
    }
}

function streamCall(runId: string, after: number, forTenant: string | undefined): Call {
    return {
        operation: "stream_run_events",
        method: "GET",
        path: "/runs/{id}/events",
        auth: "token",
        result: "none",
        pathArgs: { id: runId },
        query: { for_tenant: forTenant },
        headers: { "Last-Event-ID": after, Accept: "text/event-stream" },
    };
}

/** The events in the bytes of a stream. */
export async function* received(body: ReadableStream<Uint8Array>): AsyncGenerator<EventDocument, void, undefined> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    let data: string[] = [];
    for (;;) {
        const { done, value } = await within(READ_TIMEOUT_MS, reader.read());
        if (done) {
            return;
        }
        const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines.map((it) => it.replace(/\r$/, ""))) {
            if (line.startsWith("data:")) {
                data.push(line.slice(5).replace(/^ /, ""));
            } else if (line === "" && data.length > 0) {
                const event = JSON.parse(data.join("\n")) as EventDocument;
                data = [];
                yield event;
            }
        }
    }
}

async function within<T>(limitMs: number, promise: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error("nothing arrived in time")), limitMs);
    });
    try {
        return await Promise.race([promise, late]);
    } finally {
        clearTimeout(timer);
    }
}
