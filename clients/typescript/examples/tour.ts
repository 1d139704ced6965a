// The five-minute tour of Chimera, in TypeScript.
//
//   chimera dev                        # in one terminal
//   node examples/tour.js [FOLDER]     # in another, with the data folder of the server, which has the keys

import { readFileSync } from "node:fs";
import { ChimeraError, Client, type StepBody } from "chimera-client";

const folder = process.argv[2] ?? ".chimera";
const server = process.env["CHIMERA_SERVER"] ?? "http://127.0.0.1:8080";

/** The client signs in when it needs a token, and renews it before it expires. */
function signIn(actor: string): Client {
    return new Client({ server, actor, key: readFileSync(`${folder}/keys/actors/${actor}.key`, "utf8").trim() });
}

const [ada, admin, workflow] = [signIn("user_ada"), signIn("admin"), signIn("n8n_workflow_demo")];
const summarize: StepBody = { tool: "local.summarize", input: { text: "One is. Two is." } };
const upload: StepBody = { tool: "s3_upload", input: { bucket: "notes", key_template: "hello.txt", content: "Hello!" } };

// Ada may summarize, but not upload.
try {
    await ada.act({ steps: [upload] });
} catch (error) {
    if (!(error instanceof ChimeraError)) throw error;
    console.log(`refused: ${error.code}, ${error.detail}`);
}

// At level L0, every step waits for a person. The action may be stated in plain English.
const goal = 'Summarize "Chimera lets agents act. It writes everything down."';
const asked = await ada.act({ goal, autonomy_level: "L0_Ask", wait: 10 });
console.log(`L0: ${asked.status}, ${asked.approvals[0]?.review.calls[0]?.what}`);

// At level L1, Chimera does a dry run of the whole plan and asks once.
const draft = await admin.act({ steps: [upload], autonomy_level: "L1_Draft", wait: 10 });
console.log(`L1: ${draft.status}, would ${draft.dry_run_results?.[0]?.would_execute}`);

// At level L2, the plan runs and you get its result. At level L3, you only get the run's id.
const done = await workflow.act({ steps: [summarize], wait: 10 });
console.log(`L2: ${done.status}, ${(done.result as { s1: { summary: string } }).s1.summary}`);
const silent = await admin.act({ steps: [summarize] });
console.log(`L3: ${silent.autonomy_level}, then ${(await admin.runs.wait(silent.run_id)).status}`);

// Approve the draft, and follow it to its end. The digest says what was reviewed.
const decided = await admin.runs.approve(draft.run_id, { digest: draft.approvals[0]?.digest ?? null });
console.log(`approve: ${decided.approval_status}`);
for await (const event of admin.runs.events(draft.run_id, { after: 3 })) {
    console.log(`  ${event.run_seq}  ${event.event_type}`);
}
console.log(`file: ${readFileSync(`${folder}/buckets/notes/hello.txt`, "utf8")}`);

// Read the audit log: what happened to that run, and what was refused.
const events: string[] = [];
for await (const entry of admin.audit.list({ subject_id: draft.run_id })) {
    events.push(entry.event_type);
}
console.log(`audit: ${events.join(", ")}`);
for await (const entry of admin.audit.list({ event_type: "access.refused" })) {
    console.log(`refused: ${entry.subject_id} by ${entry.actor_id}`);
}

// Undo it.
await admin.runs.rollback(draft.run_id);
console.log(`undo: ${(await admin.runs.wait(draft.run_id)).status}`);
