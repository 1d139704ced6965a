"""The client against a real server, with a relay between them that fails."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time

import pytest
from chimera_client import ChimeraError, Client, Retry
from chimera_client.models import ActedDocument, AutonomyLevel, StepBody
from chimera_client.session import Tokens
from conftest import TOKEN_SECRET
from harness import Relay, Server, cut_after, drop_answer, refuse

SUMMARIZE: StepBody = {"tool": "local.summarize", "input": {"text": "One is. Two is."}}


def upload(name: str) -> StepBody:
    return {"tool": "s3_upload", "input": {"bucket": "notes", "key_template": name, "content": "Hello!"}}


def expired_token(actor: str) -> str:
    def part(document: bytes) -> str:
        return base64.urlsafe_b64encode(document).rstrip(b"=").decode()

    now = int(time.time())
    claims = {"sub": actor, "exp": now - 5, "iat": now - 3600, "aud": "chimera"}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
    return f"{signed}.{part(hmac.new(TOKEN_SECRET.encode(), signed.encode(), hashlib.sha256).digest())}"


def drafted(client: Client, name: str) -> ActedDocument:
    draft = client.act(steps=[upload(name)], autonomy_level="L1_Draft", wait=10)
    assert draft["status"] == "awaiting_approval"
    return draft


@pytest.mark.parametrize(
    ("level", "status"),
    [("L0_Ask", "awaiting_approval"), ("L1_Draft", "awaiting_approval"), ("L2_ExecuteNotify", "completed")],
)
def test_an_action_runs_as_freely_as_its_level(server: Server, level: AutonomyLevel, status: str) -> None:
    with server.client("admin") as client:
        acted = client.act(steps=[SUMMARIZE], autonomy_level=level, wait=10)
    assert (acted["autonomy_level"], acted["status"]) == (level, status)


def test_a_silent_run_is_awaited(server: Server) -> None:
    with server.client("admin") as client:
        acted = client.act(steps=[SUMMARIZE], autonomy_level="L3_ExecuteSilent")
        run = client.runs.wait(acted["run_id"])
    assert run["status"] == "completed" and run["result"]["s1"]["summary"] == "One is. Two is."


def test_a_draft_is_approved_done_and_undone(server: Server) -> None:
    place = server.folder / "data/buckets/notes/approved.txt"
    with server.client("admin") as client:
        draft = drafted(client, "approved.txt")
        decided = client.runs.approve(draft["run_id"], digest=draft["approvals"][0]["digest"], reason="fine")
        assert decided["approval_status"] == "approved"
        assert client.runs.wait(draft["run_id"])["status"] == "completed" and place.read_text() == "Hello!"
        client.runs.rollback(draft["run_id"])
        assert client.runs.wait(draft["run_id"])["status"] == "rolled_back" and not place.exists()


def test_an_edited_step_needs_an_approval_of_what_it_is_now(server: Server) -> None:
    with server.client("admin") as client:
        draft = client.act(steps=[upload("a.txt")], autonomy_level="L0_Ask", wait=10)
        [asked] = draft["approvals"]
        client.runs.edit(draft["run_id"], asked["node_id"] or "", input={**upload("b.txt")["input"]})
        asked_again = (it for it in client.runs.events(draft["run_id"]) if it["event_type"] == "approval.requested")
        now = [(next(asked_again)["data"] or {})["details"]["digest"] for _ in range(2)]
        assert now[0] == asked["digest"] != now[1]
        with pytest.raises(ChimeraError) as raised:
            client.runs.approve(draft["run_id"], digest=asked["digest"])
        assert raised.value.code == "STALE_APPROVAL"
        assert client.runs.reject(draft["run_id"], digest=now[1], reason="no")["approval_status"] == "denied"
        assert client.runs.wait(draft["run_id"])["status"] == "cancelled"


def test_a_cancelled_run_can_be_retried(server: Server) -> None:
    with server.client("admin") as client:
        draft = drafted(client, "cancelled.txt")
        client.runs.cancel(draft["run_id"], reason="changed my mind")
        assert client.runs.wait(draft["run_id"])["status"] == "cancelled"
        again = client.runs.retry(draft["run_id"])
        assert again["run_id"] != draft["run_id"]
        if "plan" in again:
            assert again["replay_of"] == draft["run_id"]
        client.runs.cancel(again["run_id"])


def test_a_workflow_is_checked_stored_started_and_shared(server: Server) -> None:
    node = {"id": "hello", "type": "skill", "fn": "local.echo", "inputs": {"message": "Hello ${inputs.name}"}}
    with server.client("admin") as client:
        found = next(client.workflows.list())
        document = client.workflows.get(found["workflow_id"])["document"] or {}
        assert client.workflows.check(found["workflow_id"], document)["nodes"] > 0
        assert not client.workflows.put(found["workflow_id"], document)["created"]
        assert client.workflows.share(found["workflow_id"])["shared"]
        assert not client.workflows.unshare(found["workflow_id"])["shared"]
        with pytest.raises(ChimeraError) as raised:
            client.workflows.check("hello", {"nodes": [node]})
        assert raised.value.status in (400, 422)


def test_a_list_continues_over_its_pages(server: Server) -> None:
    with server.client("admin") as client:
        for _ in range(3):
            client.act(steps=[SUMMARIZE], dry_run=True)
        every = [run["run_id"] for run in client.runs.list()]
        assert [run["run_id"] for run in client.runs.list(limit=2)] == every and len(every) > 2
        assert len(set(every)) == len(every)
        assert len(list(client.audit.list(limit=5, event_type="run.started"))) >= 3


def test_actors_and_their_keys_are_managed(server: Server) -> None:
    with server.client("admin") as client:
        made = client.actors.put("service_client", scopes=["local.summarize"], quota_per_minute=20)
        assert made["effective_scopes"] == ["local.summarize"]
        key = client.actors.create_key("service_client")["hmac_key"]
        with Client(server.url, "service_client", key) as other:
            assert other.act(steps=[SUMMARIZE], wait=10)["status"] == "completed"
        assert client.actors.get("service_client")["keys"] == 1
        client.actors.remove("service_client")
        assert all(actor["id"] != "service_client" for actor in client.actors.list())


def test_a_quota_that_takes_too_long_to_recover_is_an_error(server: Server) -> None:
    with server.client("admin") as client:
        client.actors.put("service_slow", scopes=["local.summarize"], quota_per_minute=1)
        key = client.actors.create_key("service_slow")["hmac_key"]
    retry = Retry(retry_after_seconds_max=0)
    with Client(server.url, "service_slow", key, retry=retry) as slow, pytest.raises(ChimeraError) as raised:
        for _ in range(3):
            slow.act(steps=[SUMMARIZE], dry_run=True)
    error = raised.value
    assert (error.code, error.status, error.retryable) == ("RATE_LIMITED", 429, True)
    assert error.retry_after is not None and error.retry_after > 0


def test_what_an_actor_may_not_do_says_so(server: Server) -> None:
    with server.client("user_ada") as client, pytest.raises(ChimeraError) as raised:
        client.act(steps=[upload("no.txt")])
    error = raised.value
    assert (error.code, error.status, error.retryable) == ("RBAC_FORBIDDEN", 403, False)
    assert error.detail == "the actor lacks the scope s3.upload" and error.trace_id and error.request_id


def test_a_name_that_has_to_be_encoded_is_signed_as_it_is_sent(server: Server) -> None:
    name = "weekly report/ü'(1)*~"
    with server.client("admin") as client, pytest.raises(ChimeraError) as raised:
        client.workflows.clear_cache(name, key="a/b&c=d +%")
    assert raised.value.code == "NOT_FOUND" and f"`{name}`" in str(raised.value)


def test_a_wrong_key_is_refused_once(server: Server, relay: Relay) -> None:
    with Client(relay.url, "admin", "0" * 64) as client, pytest.raises(ChimeraError) as raised:
        client.runs.list_page()
    assert raised.value.code == "SIGNATURE_INVALID" and len(relay.heads) == 1


def test_an_expired_token_is_replaced(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        client._session.tokens = Tokens(expired_token("admin"), None, float("inf"))
        client.runs.list_page()
    asked = [head.split(" ")[1] for head in relay.heads]
    assert asked == ["/runs", "/auth/token", "/runs"]


def test_a_revoked_session_is_replaced(server: Server) -> None:
    with server.client("admin") as client:
        assert client.auth.revoke_token()["revoked"]
        client.runs.list_page()


def test_a_token_is_refreshed_with_its_refresh_token(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        client.runs.list_page()
        assert client._session.tokens is not None
        client._session.tokens.renew_at = 0.0
        client.runs.list_page()
    assert [head.split(" ")[1] for head in relay.heads] == ["/auth/token", "/runs", "/auth/refresh", "/runs"]


def test_threads_sign_in_once(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        threads = [threading.Thread(target=client.runs.list_page) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum("/auth/token" in head for head in relay.heads) == 1


def test_an_answer_that_is_lost_after_the_commit_starts_no_second_run(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        client.server.health()
        relay.faults += [lambda head: None, drop_answer, cut_after(40)]
        acted = client.act(steps=[SUMMARIZE], correlation_id="lost")
        assert client.runs.wait(acted["run_id"])["status"] == "completed"
        sent = [json.loads(body) for body in relay.bodies if b"correlation_id" in body]
        assert len(sent) == 3 and len({body["idempotency_key"] for body in sent}) == 1
        started = client.audit.list(event_type="run.started", run_id=acted["run_id"])
        assert len(list(started)) == 1
        newest = next(client.runs.list())
        assert newest["run_id"] == acted["run_id"] and newest["created_at"]


def test_a_decision_whose_answer_is_lost_is_not_repeated(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        draft = drafted(client, "once.txt")
        relay.faults.append(drop_answer)
        with pytest.raises(ChimeraError) as raised:
            client.runs.approve(draft["run_id"])
        assert raised.value.code == "CONNECTION_LOST" and raised.value.is_uncertain
        assert sum("/approve" in head for head in relay.heads) == 1
        assert client.runs.wait(draft["run_id"])["status"] == "completed"


def test_refusals_that_pass_are_waited_for(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        draft = drafted(client, "later.txt")
        relay.faults += [refuse(429, "RATE_LIMITED", "0"), refuse(503, "OVERLOADED", "1")]
        began = time.monotonic()
        client.runs.cancel(draft["run_id"])
        assert time.monotonic() - began >= 1.0
    signatures = [line for head in relay.heads for line in head.split("\r\n") if line.startswith("Signature:")]
    assert len(signatures) == 3 and len(set(signatures)) == 3


def test_events_continue_after_the_connection_is_cut(server: Server, relay: Relay) -> None:
    with server.client("admin", relay) as client:
        draft = drafted(client, "cut.txt")
        # The first stream is cut within its second event, and the second one within its first.
        relay.faults += [cut_after(800), cut_after(100)]
        seen = []
        for event in client.runs.events(draft["run_id"]):
            seen.append(event)
            if event["event_type"] == "approval.requested":
                client.runs.approve(draft["run_id"])
        every = list(client.runs.events(draft["run_id"]))
    assert [event["run_seq"] for event in seen] == list(range(1, len(seen) + 1))
    assert seen == every and seen[-1]["event_type"] == "run.completed"
    streams = [head for head in relay.heads if "/events" in head]
    resumed = [line for head in streams for line in head.split("\r\n") if line.startswith("Last-Event-ID")]
    assert resumed[:3] == ["Last-Event-ID: 0", "Last-Event-ID: 1", "Last-Event-ID: 1"]


def test_events_start_after_the_one_that_is_known(server: Server) -> None:
    with server.client("admin") as client:
        acted = client.act(steps=[SUMMARIZE], autonomy_level="L2_ExecuteNotify", wait=10)
        every = list(client.runs.events(acted["run_id"]))
        assert list(client.runs.events(acted["run_id"], after=1)) == every[1:]


def test_the_events_of_a_run_that_does_not_exist_are_an_error(server: Server) -> None:
    with server.client("admin") as client, pytest.raises(ChimeraError) as raised:
        next(client.runs.events("01a1e72b-f87b-7e20-a832-1344d6896013"))
    assert raised.value.code == "NOT_FOUND"


def test_a_server_that_is_gone_is_an_error_with_its_cause(relay: Relay) -> None:
    relay.close()
    retry = Retry(attempts_max=2, base_seconds=0.001)
    with Client(relay.url, "admin", "k" * 64, retry=retry) as client, pytest.raises(ChimeraError) as raised:
        client.runs.list_page()
    error = raised.value
    assert (error.code, error.is_uncertain) == ("CONNECTION_LOST", False) and error.__cause__ is not None


def test_the_asyncio_client_does_the_same(server: Server, relay: Relay) -> None:
    async def tour() -> None:
        async with server.async_client("admin", relay) as client:
            pages = await asyncio.gather(*[client.runs.list_page(limit=1) for _ in range(3)])
            assert len(pages) == 3 and sum("/auth/token" in head for head in relay.heads) == 1
            relay.faults += [drop_answer]
            draft = await client.act(steps=[upload("async.txt")], autonomy_level="L1_Draft", wait=10)
            relay.faults += [cut_after(800)]
            seen = []
            async for event in client.runs.events(draft["run_id"]):
                seen.append(event["run_seq"])
                if event["event_type"] == "approval.requested":
                    await client.runs.approve(draft["run_id"])
            assert seen == list(range(1, len(seen) + 1))
            assert (await client.runs.wait(draft["run_id"]))["status"] == "completed"
            newest = await anext(client.runs.list(limit=1))
            assert newest["run_id"] == draft["run_id"]
            with pytest.raises(ChimeraError):
                await client.runs.get("01a1e72b-f87b-7e20-a832-1344d6896013")

    asyncio.run(tour())
