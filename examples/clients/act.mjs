// Asks Chimera for something, with Node alone: signs in, acts at L2, acts at L1 and approves.
//
//   CHIMERA_SERVER=http://127.0.0.1:8080 \
//   SERVICE=n8n_workflow_demo SERVICE_KEY=… PERSON=user_ada PERSON_KEY=… node act.mjs
//
// Signing in and acting, the body alone is signed. Everything else that changes something is signed over
// method, path, query and body, as HTTP message signatures (RFC 9421) are. A signature covers exact bytes.
// So a body is made into a string once, and that string is both signed and sent.

import { createHash, createHmac, randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

const {
  CHIMERA_SERVER: url = "http://127.0.0.1:8080",
  SERVICE = "n8n_workflow_demo",
  SERVICE_KEY,
  PERSON = "user_ada",
  PERSON_KEY,
} = process.env;
const text = "Chimera lets agents act. Every act is written down. What was done can be undone.";

// The headers of an HTTP message signature. A path with a query would be split at its `?`.
function signed(actor, key, method, path, body) {
  const digest = `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
  const covered = { "@method": method, "@path": path, "@query": "?", "content-digest": digest };
  const names = Object.keys(covered).map((name) => `"${name}"`).join(" ");
  const [created, nonce] = [Math.floor(Date.now() / 1000), randomBytes(16).toString("hex")];
  const params = `(${names});created=${created};nonce="${nonce}";keyid="${actor}"`;
  const lines = Object.entries(covered).map(([name, value]) => `"${name}": ${value}\n`).join("");
  const made = createHmac("sha256", key).update(`${lines}"@signature-params": ${params}`).digest("base64");
  return { "content-digest": digest, "signature-input": `sig=${params}`, signature: `sig=:${made}:` };
}

// Chimera, as one actor sees it.
async function chimera(actor, key) {
  let token;
  const ask = async (path, document) => {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    let body;
    if (document !== undefined) {
      body = JSON.stringify(document);
      headers["content-type"] = "application/json";
      if (["/auth/token", "/act"].includes(path)) {
        headers["x-hmac-signature"] = createHmac("sha256", key).update(body).digest("hex");
      } else {
        Object.assign(headers, signed(actor, key, "POST", path, body));
      }
    }
    const answer = await fetch(url + path, { method: body ? "POST" : "GET", headers, body });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const nonce = randomBytes(16).toString("hex");
  const signedIn = await ask("/auth/token", { actor, issued_at: Date.now() / 1000, nonce });
  token = signedIn.access_token; // good for an hour
  return ask;
}

const steps = [{ tool: "local.summarize", input: { text } }];

const service = await chimera(SERVICE, SERVICE_KEY);
const request = { steps, wait: 10, idempotency_key: `example_${randomBytes(8).toString("hex")}` };
const done = await service("/act", request);
console.log("L2:", done.status, done.result.s1.summary);
// Sent again, the same request does nothing a second time.
const again = await service("/act", { ...request, on_duplicate: "return" });
if (again.run_id !== done.run_id) throw new Error("it was done twice");
console.log("again:", again.status);

const person = await chimera(PERSON, PERSON_KEY);
const draft = await person("/act", { steps, autonomy_level: "L1_Draft" });
console.log("L1:", draft.status, draft.dry_run_results[0].would_execute);
const decision = { decision: "approve", digest: draft.approvals[0].digest };
const decided = await person(draft.approve_url, decision);
console.log("approve:", decided.approval_status);
let run = draft;
while (!["completed", "failed", "cancelled"].includes(run.status)) {
  await pause(100);
  run = await person(`/runs/${draft.run_id}`);
}
console.log("then:", run.status);
