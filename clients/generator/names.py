"""Where each operation of the OpenAPI document is found in the clients.

A resource is an attribute of the client (`client.runs`), and `""` is the client itself. An operation that is missing
here, or named twice, stops the generator.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Method:
    """A method of a resource, and how it differs from its operation."""

    operation: str
    # The name of a body that has no members of its own.
    body: str = "body"
    # Members that the client fills in.
    defaults: dict[str, str] = field(default_factory=dict)
    # What the summary of the operation leaves out.
    note: str = ""


ACT_NOTE = (
    "Exactly one of `goal`, `workflow_id` and `steps` is required. Without an `idempotency_key` the client makes one, "
    "so that a retry starts nothing twice."
)
CALL_NOTE = (
    "The answer is the result, or a `StartedDocument` if the run takes longer. A lost connection is not retried, "
    "because the request has no idempotency key; `act` with `workflow_id` has one."
)

RESOURCES: dict[str, dict[str, Method]] = {
    "": {"act": Method("act", note=ACT_NOTE)},
    "runs": {
        "list": Method("list_runs"),
        "get": Method("get_run"),
        "steps": Method("list_steps"),
        "executions": Method("list_executions"),
        "approve": Method("approve_run", defaults={"decision": "approve"}),
        "reject": Method("reject_run"),
        "edit": Method("edit_step"),
        "resolve": Method("resolve_step"),
        "cancel": Method("cancel_run"),
        "pause": Method("pause_run"),
        "resume": Method("resume_run"),
        "retry": Method("retry_run"),
        "replay": Method("replay_run"),
        "rollback": Method("roll_back_run"),
        "mark": Method("mark_run"),
        "patch": Method("patch_run"),
        "revert_patch": Method("revert_patch"),
    },
    "workflows": {
        "list": Method("list_workflows"),
        "get": Method("get_workflow"),
        "put": Method("apply_workflow", body="document"),
        "check": Method("check_workflow", body="document"),
        "call": Method("call_workflow", body="inputs", note=CALL_NOTE),
        "share": Method("share_workflow"),
        "unshare": Method("unshare_workflow"),
        "clear_cache": Method("clear_workflow_cache"),
    },
    "schedules": {
        "list": Method("list_schedules"),
        "get": Method("get_schedule"),
        "create": Method("create_schedule"),
        "replace": Method("replace_schedule"),
        "remove": Method("remove_schedule"),
        "next": Method("list_next_ticks"),
        "pause": Method("pause_schedule"),
        "resume": Method("resume_schedule"),
        "run": Method("run_schedule"),
    },
    "events": {
        "publish": Method("publish_event"),
        "list": Method("list_events"),
    },
    "tools": {
        "list": Method("list_tools"),
        "problems": Method("list_tool_problems"),
        "reload": Method("reload_tools"),
        "calls": Method("list_tool_calls"),
        "doubts": Method("list_doubts"),
    },
    "work": {
        "list": Method("list_work"),
        "claim": Method("claim_work"),
        "renew": Method("renew_work"),
        "complete": Method("complete_work"),
        "fail": Method("fail_work"),
    },
    "actors": {
        "list": Method("list_actors"),
        "get": Method("get_actor"),
        "put": Method("put_actor"),
        "remove": Method("remove_actor"),
        "create_key": Method("create_actor_key"),
        "list_signing_keys": Method("list_signing_keys"),
        "add_signing_key": Method("add_signing_key"),
        "rotate_signing_key": Method("rotate_signing_key"),
        "revoke_signing_key": Method("revoke_signing_key"),
    },
    "tenants": {
        "list": Method("list_tenants"),
        "get": Method("get_tenant"),
        "create": Method("create_tenant"),
        "update": Method("update_tenant"),
    },
    "intents": {
        "submit": Method("submit_intent", body="envelope"),
        "validate": Method("validate_intent", body="envelope"),
        "catalog": Method("list_intents"),
        "schema": Method("get_schema"),
    },
    "audit": {"list": Method("list_audit_entries")},
    "inbox": {"list": Method("list_inbox")},
    "artifacts": {"download": Method("download_artifact")},
    "links": {"open": Method("open_approval_link"), "decide": Method("decide_by_link")},
    "auth": {
        "create_token": Method("create_token"),
        "refresh_token": Method("refresh_token"),
        "revoke_token": Method("revoke_token"),
        "token_keys": Method("get_token_keys"),
        "intent_keys": Method("get_intent_keys"),
    },
    "server": {
        "health": Method("get_health"),
        "readiness": Method("get_readiness"),
        "metrics": Method("get_metrics"),
        "openapi": Method("get_openapi"),
        "docs": Method("get_docs"),
        "error_page": Method("get_error_page"),
        "webhook_keys": Method("get_webhook_keys"),
    },
}

# Written by hand in each client: an iterator that reconnects.
BY_HAND = {"stream_run_events"}

# What `{id}` in a path is called.
IDS = {"runs": "run_id", "workflows": "workflow_id", "actors": "actor"}

# One line about each resource.
ABOUT = {
    "": "Requests that start a run.",
    "runs": "Runs: what was asked for, decided and done.",
    "workflows": "Workflow documents and their versions.",
    "schedules": "Schedules: workflows that are started by the clock.",
    "events": "Events that runs wait for.",
    "tools": "Tools and their calls.",
    "work": "Calls of tools that workers execute.",
    "actors": "The registry of actors and their keys.",
    "tenants": "Tenants, for operators.",
    "intents": "Signed intents: envelopes that the Router checks and carries out.",
    "audit": "The ledger.",
    "inbox": "Notifications that have no other channel.",
    "artifacts": "Downloads over signed links.",
    "links": "Approval links that were sent to people.",
    "auth": "Tokens. The client signs in by itself; these are for other uses.",
    "server": "Health, metrics and documentation.",
}
