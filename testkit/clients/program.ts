// A small program against the generated TypeScript types. It is type-checked, not run.

import type { components, operations, paths } from "./chimera";

type Answer<Operation extends keyof operations, Status extends keyof operations[Operation]["responses"]> =
    operations[Operation]["responses"][Status] extends { content: { "application/json": infer Body } } ? Body : never;

async function get<Operation extends keyof operations>(
    path: keyof paths,
    _: Operation,
): Promise<200 extends keyof operations[Operation]["responses"] ? Answer<Operation, 200> : never> {
    const answer = await fetch(path);
    return await answer.json();
}

async function listings(): Promise<string[]> {
    const runs = await get("/runs", "list_runs");
    const workflows = await get("/workflows", "list_workflows");
    const statuses: components["schemas"]["RunStatus"][] = runs.items.map((run) => run.status);
    const ids: string[] = workflows.items.map((workflow) => `${workflow.workflow_id} v${workflow.version}`);
    const cursor: string | null = runs.next_cursor;
    return [...statuses, ...ids, cursor ?? "the end"];
}

async function waiting(): Promise<string[]> {
    const run = await get("/runs/{id}", "get_run");
    const calls = run.approvals.flatMap((approval) => approval.review.calls.map((call) => call.what));
    const points = run.risk === null ? 0 : run.risk.reasons.reduce((sum, reason) => sum + reason.points, 0);
    const steps = run.plan.steps.map((step) => `${step.step_id} ${step.tool ?? step.type ?? ""}`);
    const undone = run.rollback?.undone.map((line) => line.node) ?? [];
    return [...calls, ...steps, ...undone, points.toFixed()];
}

async function steps(): Promise<number> {
    const page = await get("/runs/{id}/steps", "list_steps");
    const ended = page.steps.filter((step) => step.status === "completed" || step.status === "skipped");
    return ended.reduce((sum, step) => sum + step.tool_calls.length, 0);
}

const decision: components["schemas"]["DecisionBody"] = { decision: "approve", digest: null };
// @ts-expect-error: the words of a decision are known
const misspelled: components["schemas"]["DecisionBody"] = { decision: "aprove" };
// @ts-expect-error: a run has no member of this name
type Unknown = Answer<"get_run", 200>["outputs_of_the_run"];

export { decision, listings, misspelled, steps, waiting };
export type { Unknown };
