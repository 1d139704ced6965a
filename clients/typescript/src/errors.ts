// The one error that the client throws.

import type { ErrorClass, JsonObject, ProblemDocument } from "./models.js";

/** The server gave up, or lost track, while the request may have taken effect. */
const UNCERTAIN_CODES = new Set(["REQUEST_TIMEOUT", "OUTCOME_UNKNOWN"]);

/** What is known about a failure. */
export interface Failure {
    code: string;
    detail: string;
    status?: number | undefined;
    retryable?: boolean;
    errorType?: ErrorClass;
    details?: JsonObject;
    traceId?: string;
    requestId?: string | undefined;
    retryAfter?: number | undefined;
    isUncertain?: boolean;
    cause?: unknown;
}

/**
 * A request that was refused, or whose answer was lost.
 *
 * `code` is one of the server's stable codes (docs/reference/errors.md). Three codes are the client's own: `CONNECTION_LOST`
 * if there was no answer, `HTTP_ERROR` if the answer was not a problem document, such as that of a proxy, and `NO_KEY`
 * if the client has no key to sign with.
 */
export class ChimeraError extends Error {
    override readonly name = "ChimeraError";
    readonly code: string;
    readonly detail: string;
    readonly status: number | undefined;
    /** Whether the server says that the same request may succeed later. */
    readonly retryable: boolean;
    readonly errorType: ErrorClass | undefined;
    /** Details; the members depend on the code. */
    readonly details: JsonObject;
    readonly traceId: string | undefined;
    readonly requestId: string | undefined;
    /** Seconds to wait before a retry. */
    readonly retryAfter: number | undefined;
    /** Whether the request may have taken effect. */
    readonly isUncertain: boolean;

    constructor(failure: Failure) {
        super(`${failure.code}: ${failure.detail}`, failure.cause === undefined ? {} : { cause: failure.cause });
        this.code = failure.code;
        this.detail = failure.detail;
        this.status = failure.status;
        this.retryable = failure.retryable ?? false;
        this.errorType = failure.errorType;
        this.details = failure.details ?? {};
        this.traceId = failure.traceId;
        this.requestId = failure.requestId;
        this.retryAfter = failure.retryAfter;
        this.isUncertain = failure.isUncertain ?? false;
    }

    /** The error of an answer whose status is not a success. */
    static ofAnswer(status: number, headers: Headers, body: string): ChimeraError {
        const requestId = headers.get("x-request-id") ?? undefined;
        const retryAfter = seconds(headers.get("retry-after"));
        const problem = parsed(body);
        if (problem === undefined) {
            const detail = `status ${status}: ${body.slice(0, 200) || "no body"}`;
            return new ChimeraError({ code: "HTTP_ERROR", detail, status, requestId, retryAfter, isUncertain: status >= 500 });
        }
        const { code, retryable, error_type: errorType, details, retry_after_seconds } = problem.error;
        return new ChimeraError({
            code,
            detail: problem.detail,
            status,
            retryable,
            errorType,
            details,
            traceId: problem.trace_id,
            requestId,
            retryAfter: retryAfter ?? retry_after_seconds,
            isUncertain: UNCERTAIN_CODES.has(code),
        });
    }
}

function parsed(body: string): ProblemDocument | undefined {
    try {
        const document = JSON.parse(body) as Partial<ProblemDocument> | null;
        return typeof document?.error?.code === "string" ? (document as ProblemDocument) : undefined;
    } catch {
        return undefined;
    }
}

/** `Retry-After` in seconds; a date is ignored. */
function seconds(value: string | null): number | undefined {
    const found = value === null ? NaN : Number(value);
    return Number.isNaN(found) ? undefined : Math.max(0, found);
}
