"""A small program against the generated Python client. It is type-checked, not run."""

import datetime
import uuid

from chimera_client import AuthenticatedClient
from chimera_client.api.access import create_token, list_actors
from chimera_client.api.audit import list_audit_entries
from chimera_client.api.flow import approve_run, get_run, list_runs, list_steps, list_tool_calls, list_workflows
from chimera_client.models import (
    ActorPage,
    CallPage,
    DecidedDocument,
    DecisionBody,
    DecisionWord,
    EntryPage,
    ProblemDocument,
    RunDocument,
    RunPage,
    RunStatus,
    SignInBody,
    StepList,
    TokenDocument,
    WorkflowPage,
)


def sign_in(client: AuthenticatedClient) -> str:
    body = SignInBody(actor="user_ann", issued_at=1795080600, nonce="6b1f0c2d")
    answer = create_token.sync(client=client, body=body)
    assert isinstance(answer, TokenDocument)
    return answer.access_token


def waiting(client: AuthenticatedClient) -> list[uuid.UUID]:
    answer = list_runs.sync(client=client, status=RunStatus.AWAITING_APPROVAL)
    if isinstance(answer, ProblemDocument):
        raise RuntimeError(f"{answer.error.code}: {answer.error.message}")
    assert isinstance(answer, RunPage)
    return [run.run_id for run in answer.items]


def approve(client: AuthenticatedClient, run: uuid.UUID) -> int:
    shown = get_run.sync(run, client=client)
    assert isinstance(shown, RunDocument)
    started: datetime.datetime | None = shown.created_at
    print(started, shown.plan.digest, [step.step_id for step in shown.plan.steps])
    for approval in shown.approvals:
        print(approval.review.subject.value, [call.what for call in approval.review.calls])
        body = DecisionBody(decision=DecisionWord.APPROVE, digest=approval.digest)
        decided = approve_run.sync(run, client=client, body=body)
        assert isinstance(decided, DecidedDocument)
        print(decided.approval_status.value)
    steps = list_steps.sync(run, client=client)
    assert isinstance(steps, StepList)
    return sum(len(step.tool_calls) for step in steps.steps)


def listings(client: AuthenticatedClient) -> None:
    workflows = list_workflows.sync(client=client)
    assert isinstance(workflows, WorkflowPage)
    print([workflow.workflow_id for workflow in workflows.items], workflows.next_cursor)
    calls = list_tool_calls.sync(client=client)
    assert isinstance(calls, CallPage)
    print([(call.tool_name, call.outcome) for call in calls.items])
    actors = list_actors.sync(client=client)
    assert isinstance(actors, ActorPage)
    print([(actor.id, actor.kind.value) for actor in actors.items])
    entries = list_audit_entries.sync(client=client)
    assert isinstance(entries, EntryPage)
    print([(entry.lane, entry.seq, entry.hash_) for entry in entries.items])
