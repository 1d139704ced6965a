// What the resources of a client share: the way to the server.

import type { Call } from "./call.js";

/** Sends a call and decodes its answer. */
export type Sender = (call: Call) => Promise<unknown>;

/** A group of operations. */
export class Resource {
    #sender: Sender;

    constructor(sender: Sender) {
        this.#sender = sender;
    }

    /** The answer has the type that the document says; it is not checked. */
    protected send<Answer>(call: Call): Promise<Answer> {
        return this.#sender(call) as Promise<Answer>;
    }

    /** The items of all pages. */
    protected async *items<Page extends { next_cursor: string | null }, Item>(
        load: (cursor: string | undefined) => Promise<Page>,
        itemsOf: (page: Page) => Item[],
    ): AsyncGenerator<Item, void, undefined> {
        let cursor: string | undefined;
        do {
            const page = await load(cursor);
            yield* itemsOf(page);
            cursor = page.next_cursor ?? undefined;
        } while (cursor !== undefined);
    }
}
