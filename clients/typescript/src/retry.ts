// When a request is sent again, and how long the client waits before.

import type { ChimeraError } from "./errors.js";

/**
 * How often, and after which pauses, a request is sent again.
 *
 * The pause before attempt n is random, up to `baseSeconds` times 2ⁿ and at most `pauseSecondsMax`. It is never shorter
 * than `Retry-After`; if the server asks for more than `retryAfterSecondsMax`, the error is thrown at once.
 */
export interface Retry {
    attemptsMax: number;
    baseSeconds: number;
    pauseSecondsMax: number;
    retryAfterSecondsMax: number;
}

export const RETRY: Retry = { attemptsMax: 5, baseSeconds: 0.25, pauseSecondsMax: 8, retryAfterSecondsMax: 60 };

/** The pause after so many failed attempts; `undefined` if it was the last one. */
export function pauseAfter(retry: Retry, failed: number, error: ChimeraError): number | undefined {
    const asked = error.retryAfter ?? 0;
    if (failed >= retry.attemptsMax || asked > retry.retryAfterSecondsMax) {
        return undefined;
    }
    const bound = Math.min(retry.pauseSecondsMax, retry.baseSeconds * 2 ** failed);
    return Math.max(asked, Math.random() * bound);
}

/**
 * Whether a request may be sent again after this error.
 *
 * What may have taken effect is repeated only if repeating does nothing twice. Otherwise the server says whether a retry
 * can help.
 */
export function mayRepeat(error: ChimeraError, isRepeatable: boolean): boolean {
    return error.isUncertain ? isRepeatable : error.retryable;
}
