// Runs an n8n workflow the way n8n does, as far as examples/n8n/act.json needs it: Code nodes with n8n's
// globals, HTTP Request nodes with a raw body, one node after the other.
//
//   node n8n.mjs WORKFLOW.json EXECUTION_ID
//
// Prints what the last node gave for each item. As a retry does, the last node sends everything twice.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [file, execution] = process.argv.slice(2);
const workflow = JSON.parse(readFileSync(file, "utf8"));
const { CHIMERA_SERVER, CHIMERA_ACTOR, CHIMERA_HMAC_KEY } = process.env;
const AsyncFunction = (async () => {}).constructor;
const given = {};

// n8n's globals, as a node sees them.
const globals = (items, at) => ({
  $env: { CHIMERA_SERVER, CHIMERA_ACTOR, CHIMERA_HMAC_KEY },
  $execution: { id: execution },
  $input: { all: () => items, first: () => items[0] },
  $json: items[at]?.json,
  $: (name) => ({ all: () => given[name], first: () => given[name][0] }),
  require: createRequire(import.meta.url),
});

// A field of a node: after a `=` whatever stands in {{ }} is an expression.
const field = (text, scope) => {
  if (!text.startsWith("=")) return text;
  const read = (_, expression) => new Function(...Object.keys(scope), `return (${expression});`)(...Object.values(scope));
  return text.slice(1).replace(/\{\{(.*?)\}\}/g, read);
};

async function perform({ type, parameters }, items) {
  if (type === "n8n-nodes-base.manualTrigger") return [{ json: {} }];
  if (type === "n8n-nodes-base.code") {
    const scope = globals(items, 0);
    return new AsyncFunction(...Object.keys(scope), parameters.jsCode)(...Object.values(scope));
  }
  if (type !== "n8n-nodes-base.httpRequest" || parameters.contentType !== "raw") throw new Error(`no such node: ${type}`);
  const answers = items.map(async (_, at) => {
    const scope = globals(items, at);
    const named = parameters.headerParameters.parameters.map(({ name, value }) => [name, field(value, scope)]);
    const headers = { ...Object.fromEntries(named), "content-type": parameters.rawContentType };
    const { method } = parameters;
    const answer = await fetch(field(parameters.url, scope), { method, headers, body: field(parameters.body, scope) });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return { json: await answer.json() };
  });
  return Promise.all(answers);
}

let name = workflow.nodes.find((node) => node.type === "n8n-nodes-base.manualTrigger").name;
let items = [];
while (name) {
  const node = workflow.nodes.find((node) => node.name === name);
  const before = items;
  items = given[name] = await perform(node, before);
  name = workflow.connections[name]?.main[0][0].node;
  if (!name) {
    const again = await perform(node, before);
    console.log(JSON.stringify({ retries: node.retryOnFail, first: items.map(run), again: again.map(run) }));
  }
}

function run({ json }) {
  return { run_id: json.run_id, status: json.status, result: json.result };
}
