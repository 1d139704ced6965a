// The tour of the README runs, and prints what the README says.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server } from "./harness.js";

test("the tour prints what the README shows", async () => {
    const server = await Server.start();
    const tour = fileURLToPath(new URL("../examples/tour.js", import.meta.url));
    const ran = promisify(execFile)(process.execPath, [tour, join(server.folder, "data")], {
        env: { ...process.env, CHIMERA_SERVER: server.url },
    });
    const { stdout, stderr } = await ran.finally(() => server.stop());
    assert.equal(stderr, "");
    const source = process.env["TEST_SOURCE"] ?? "";
    const readme = readFileSync(join(source, "README.md"), "utf8");
    assert.ok(readme.includes(`\`\`\`console\n$ node examples/tour.js\n${stdout}\`\`\`\n`), stdout);
    const program = readFileSync(join(source, "examples/tour.ts"), "utf8");
    const code = program.slice(program.indexOf("import"));
    assert.ok(readme.includes(`\`\`\`typescript\n${code}\`\`\`\n`));
});
