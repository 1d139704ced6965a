// One request to the API as data: what is asked for, before it is signed and sent.

export type Auth = "none" | "token" | "token_and_body" | "token_and_message" | "body";

/** A call of an operation. */
export interface Call {
    operation: string;
    method: string;
    path: string;
    auth: Auth;
    result: "json" | "text" | "bytes" | "none";
    pathArgs?: Record<string, string | number>;
    query?: Record<string, string | number | boolean | Date | null | undefined>;
    headers?: Record<string, string | number | null | undefined>;
    /** The body as a whole. */
    body?: unknown;
    /** The members of the body. Those that are null or undefined are omitted. */
    members?: Record<string, unknown>;
    /** Whether a body without members is omitted. */
    optionalBody?: boolean;
    encoding?: "json" | "form";
    /** Whether the body has an idempotency key. */
    keyed?: boolean;
    /** Members that differ between attempts. With them, another attempt repeats nothing. */
    fresh?: () => Record<string, unknown>;
}

/** Whether a call may be sent again although the first one may have taken effect. */
export function isRepeatable(call: Call): boolean {
    return call.method === "GET" || call.keyed === true || call.fresh !== undefined;
}

/** The path and query, percent-encoded. */
export function target(call: Call): { path: string; query: string } {
    let path = call.path;
    for (const [name, value] of Object.entries(call.pathArgs ?? {})) {
        if (["", ".", ".."].includes(String(value))) {
            throw new RangeError(`"${value}" cannot be part of a path: ${call.path}`);
        }
        path = path.replace(`{${name}}`, () => encoded(String(value)));
    }
    const given = Object.entries(call.query ?? {}).filter(([, value]) => value !== undefined && value !== null);
    const query = given.map(([name, value]) => `${name}=${encoded(value instanceof Date ? value.toISOString() : String(value))}`);
    return { path, query: query.join("&") };
}

/** The media type and the text of the body, with further members. */
export function content(call: Call, extra: Record<string, unknown>): { type: string; text: string } | undefined {
    if (call.members === undefined) {
        return call.body === undefined ? undefined : { type: "application/json", text: JSON.stringify(call.body) };
    }
    const every = Object.entries({ ...call.members, ...call.fresh?.(), ...extra });
    const members = every.filter(([, value]) => value !== undefined && value !== null);
    if (call.encoding === "form") {
        const form = members.map(([name, value]): [string, string] => [name, String(value)]);
        return { type: "application/x-www-form-urlencoded", text: new URLSearchParams(form).toString() };
    }
    if (call.optionalBody && members.length === 0) {
        return undefined;
    }
    return { type: "application/json", text: JSON.stringify(Object.fromEntries(members)) };
}

/** Percent-encodes everything that a URL parser would change or take as syntax. */
function encoded(text: string): string {
    return encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}
