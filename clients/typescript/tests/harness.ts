// A private server, and a relay between a client and the server that fails on request.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect, type Server as Listener, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "../src/index.js";

/** Short pauses, so that no test waits. */
export const QUICK = { baseSeconds: 0.001, pauseSecondsMax: 0.01 };

/** `chimera dev` on a free port, with its data in a folder of its own. */
export class Server {
    private constructor(
        readonly url: string,
        readonly keys: Map<string, string>,
        readonly folder: string,
        private readonly process: ChildProcess,
    ) {}

    static async start(settings: Record<string, string> = {}): Promise<Server> {
        const binary = process.env["TEST_BINARY"];
        if (binary === undefined) {
            throw new Error("TEST_BINARY must name the server's binary");
        }
        const folder = mkdtempSync(join(tmpdir(), "chimera-"));
        const args = ["dev", "--json", "--listen", "127.0.0.1:0", "--data", join(folder, "data")];
        const env = { ...process.env, ...settings };
        const child = spawn(binary, args, { cwd: folder, env, stdio: ["ignore", "pipe", "ignore"] });
        const exited = once(child, "exit").then(([code]) => Promise.reject(new Error(`the server exited with ${code}`)));
        exited.catch(() => undefined);
        const [line] = (await Promise.race([once(createInterface(child.stdout), "line"), exited])) as [string];
        const ready = JSON.parse(line) as { url: string; actors: { actor: string; hmac_key: string }[] };
        return new Server(ready.url, new Map(ready.actors.map((it) => [it.actor, it.hmac_key])), folder, child);
    }

    client(actor: string, relay?: Relay): Client {
        return new Client({ server: relay?.url ?? this.url, actor, key: this.keys.get(actor), retry: QUICK });
    }

    async stop(): Promise<void> {
        this.process.kill();
        await once(this.process, "exit");
        rmSync(this.folder, { recursive: true });
    }
}

/**
 * What happens to a request: an answer of the relay's own, or how many bytes of the body of the server's answer pass before
 * the connection is cut. Without any, not even the head passes.
 */
export type Fault = string | number;

/** Passes requests on to the server. `faults` apply to one request each; each request has its own connection. */
export class Relay {
    readonly faults: (Fault | undefined)[] = [];
    readonly heads: string[] = [];
    readonly bodies: string[] = [];
    private constructor(private readonly listener: Listener, readonly url: string) {}

    static async start(server: Server): Promise<Relay> {
        const { hostname, port } = new URL(server.url);
        const listener = createServer();
        listener.listen(0, "127.0.0.1");
        await once(listener, "listening");
        const address = listener.address() as { port: number };
        const relay = new Relay(listener, `http://127.0.0.1:${address.port}`);
        listener.on("connection", (client) => relay.serve(client, () => connect(Number(port), hostname)));
        return relay;
    }

    private serve(client: Socket, open: () => Socket): void {
        let received = Buffer.alloc(0);
        client.on("error", () => client.destroy());
        client.on("data", (chunk) => {
            received = Buffer.concat([received, chunk]);
            const end = received.indexOf("\r\n\r\n");
            if (end < 0) {
                return;
            }
            const head = received.subarray(0, end).toString();
            const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
            if (received.length < end + 4 + length) {
                return;
            }
            const body = received.subarray(end + 4);
            received = Buffer.alloc(0);
            this.heads.push(head);
            this.bodies.push(body.toString());
            this.pass(head, body, client, open);
        });
    }

    private pass(head: string, body: Buffer, client: Socket, open: () => Socket): void {
        const fault = this.faults.shift();
        if (typeof fault === "string") {
            client.end(fault);
            return;
        }
        const server = open();
        const lines = head.split("\r\n").filter((line) => !/^connection:/i.test(line));
        server.write([...lines, "Connection: close", "", ""].join("\r\n"));
        server.write(body);
        let answer = Buffer.alloc(0);
        let passed = 0;
        server.on("error", () => client.destroy());
        client.on("close", () => server.destroy());
        server.on("data", (chunk) => {
            answer = Buffer.concat([answer, chunk]);
            const end = answer.indexOf("\r\n\r\n") + 4;
            if (fault === 0 || end < 4) {
                return;
            }
            const limit = fault === undefined ? answer.length : Math.min(answer.length, end + fault);
            client.write(answer.subarray(passed, limit));
            passed = limit;
            if (fault !== undefined && limit === end + fault) {
                server.destroy();
                client.destroySoon();
            }
        });
        // The answer is complete when the server closes, so a cut comes after the commit.
        server.on("end", () => (fault === undefined ? client.end() : client.destroy()));
    }

    close(): void {
        this.listener.close();
    }
}

/** An answer like the server's own. */
export function refuse(status: number, code: string, retryAfter: string): string {
    const error = { code, message: "try later", error_type: "resource_error", retryable: true, details: {} };
    const body = JSON.stringify({ type: "/", title: "-", status, detail: "try later", instance: "/", error, trace_id: "t" });
    const head = [`HTTP/1.1 ${status} -`, "Content-Type: application/problem+json", `Retry-After: ${retryAfter}`];
    return [...head, `Content-Length: ${body.length}`, "Connection: close", "", body].join("\r\n");
}
