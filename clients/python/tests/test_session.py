"""What is sent, and when it is sent again, without a server: the outcomes are scripted."""

import json
from typing import Any

import pytest
from chimera_client import ChimeraError, Retry
from chimera_client.call import Call
from chimera_client.session import ConnectionLost, Lock, Pause, Reply, Send, Session, Tokens, decoded

GET = Call[Any]("get_run", "GET", "/runs/{id}", "token", "json", path={"id": "r"})
APPROVE = Call[Any](
    "approve_run", "POST", "/runs/{id}/approve", "token_and_message", "json", path={"id": "r"}, members={}
)
LOST = ConnectionLost("reset", was_sent=True)
REFUSED = ConnectionLost("refused", was_sent=False)
ISSUED = {"access_token": "new", "refresh_token": "next", "expires_in": 3600, "token_type": "Bearer", "scopes": []}


ISSUED_TOKENS = Tokens("old", "refresh", 0.0)


class NoLock:
    def release(self) -> None:
        pass


def act(**members: object) -> Call[Any]:
    return Call[Any]("act", "POST", "/act", "token_and_body", "json", members={"goal": "g"} | members, keyed=True)


def session(renew_at: float = float("inf"), retry: Retry | None = None) -> Session:
    return Session(
        "user_ada", "a-key-of-sixteen-characters", NoLock(), retry or Retry(), tokens=Tokens("old", "refresh", renew_at)
    )


def ok(document: object = {}) -> Reply:
    return Reply(200, {}, json.dumps(document, separators=(",", ":")).encode())


def problem(status: int, code: str, retryable: bool = False, **headers: str) -> Reply:
    error = {"code": code, "message": "m", "error_type": "resource_error", "retryable": retryable, "details": {"a": 1}}
    found = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, found, json.dumps({"detail": "why", "error": error, "trace_id": "trace"}).encode())


def run(of: Session, call: Call[Any], *outcomes: Reply | Exception) -> tuple[list[Send], list[float], Reply]:
    """The requests and pauses of a call whose requests have these outcomes, and its answer."""
    left, sent, pauses = list(outcomes), [], []
    steps = of.exchange(call)
    try:
        effect = next(steps)
        while True:
            outcome: Reply | Exception | None = None
            if isinstance(effect, Send):
                sent.append(effect)
                outcome = left.pop(0)
            elif isinstance(effect, Pause):
                pauses.append(effect.seconds)
            else:
                assert isinstance(effect, Lock)
            effect = steps.throw(outcome) if isinstance(outcome, Exception) else steps.send(outcome)
    except StopIteration as done:
        assert not left
        return sent, pauses, done.value


def bodies(sent: list[Send]) -> list[dict[str, Any]]:
    return [json.loads(send.body or b"null") for send in sent]


def test_an_act_has_one_idempotency_key_in_all_attempts() -> None:
    sent, _, _ = run(session(), act(), LOST, problem(503, "OVERLOADED", True), ok())
    keys = {body["idempotency_key"] for body in bodies(sent)}
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert {body["on_duplicate"] for body in bodies(sent)} == {"return"}


def test_a_key_of_the_caller_conflicts_until_an_answer_was_lost() -> None:
    sent, _, _ = run(session(), act(idempotency_key="mine"), problem(429, "RATE_LIMITED", True), LOST, ok())
    assert [body.get("on_duplicate") for body in bodies(sent)] == [None, None, "return"]
    assert {body["idempotency_key"] for body in bodies(sent)} == {"mine"}


def test_after_a_lost_answer_the_run_of_a_different_request_is_still_a_conflict() -> None:
    with pytest.raises(ChimeraError) as raised:
        run(session(), act(idempotency_key="mine"), LOST, ok({"request_differs": True}))
    assert raised.value.code == "CONFLICT_IDEMPOTENCY"


def test_every_attempt_has_a_signature_of_its_own() -> None:
    sent, _, _ = run(session(), APPROVE, problem(503, "OVERLOADED", True), ok())
    assert len({send.headers["Signature"] for send in sent}) == 2
    assert len({send.headers["Signature-Input"] for send in sent}) == 2


def test_what_may_have_happened_is_not_sent_again_without_a_key() -> None:
    for outcome in (LOST, problem(503, "REQUEST_TIMEOUT", True), Reply(502, {}, b"<html>")):
        with pytest.raises(ChimeraError) as raised:
            run(session(), APPROVE, outcome)
        assert raised.value.is_uncertain


def test_what_never_left_the_machine_is_sent_again() -> None:
    sent, _, _ = run(session(), APPROVE, REFUSED, ok())
    assert len(sent) == 2


def test_a_read_is_sent_again_after_any_loss() -> None:
    sent, _, _ = run(session(), GET, LOST, problem(503, "REQUEST_TIMEOUT", True), Reply(502, {}, b"<html>"), ok())
    assert len(sent) == 4


def test_an_act_whose_outcome_the_server_lost_is_sent_again() -> None:
    sent, _, _ = run(session(), act(), problem(503, "OUTCOME_UNKNOWN"), ok())
    assert len(sent) == 2


def test_what_the_server_calls_final_is_raised_with_all_that_it_says() -> None:
    with pytest.raises(ChimeraError) as raised:
        run(session(), GET, problem(409, "INVALID_TRANSITION", x_request_id="r-1"))
    error = raised.value
    assert (error.code, error.status, error.retryable, error.detail) == ("INVALID_TRANSITION", 409, False, "why")
    assert (error.trace_id, error.request_id, error.details) == ("trace", "r-1", {"a": 1})


def test_an_answer_that_is_not_the_servers_is_an_error() -> None:
    with pytest.raises(ChimeraError) as raised:
        run(session(), GET, Reply(302, {"location": "http://elsewhere"}))
    assert (raised.value.code, raised.value.status) == ("HTTP_ERROR", 302)
    with pytest.raises(ChimeraError) as raised:
        decoded(GET, Reply(200, {}, b"<html>"))
    assert (raised.value.code, raised.value.status) == ("HTTP_ERROR", 200)


def test_the_pauses_grow_and_are_bounded_like_the_attempts() -> None:
    retry = Retry(attempts_max=4, base_seconds=1.0, pause_seconds_max=3.0)
    for failed, bound in ((1, 2.0), (2, 3.0), (3, 3.0)):
        pauses = [retry.pause(failed, ChimeraError("X", "x")) for _ in range(50)]
        assert all(pause is not None and 0.0 <= pause <= bound for pause in pauses)
        assert len(set(pauses)) > 1
    with pytest.raises(ChimeraError):
        run(session(retry=retry), GET, *[LOST] * 4)


def test_retry_after_is_honoured_and_a_long_one_ends_the_attempts() -> None:
    _, pauses, _ = run(session(), GET, problem(429, "RATE_LIMITED", True, retry_after="17"), ok())
    assert pauses == [17.0]
    with pytest.raises(ChimeraError) as raised:
        run(session(), GET, problem(429, "RATE_LIMITED", True, retry_after="3600"))
    assert raised.value.retry_after == 3600.0


def test_a_token_is_refreshed_before_it_expires() -> None:
    of = session(renew_at=0.0)
    sent, _, _ = run(of, GET, ok(ISSUED), ok())
    assert [send.target for send in sent] == ["/auth/refresh", "/runs/r"]
    assert bodies(sent)[0] == {"refresh_token": "refresh"} and sent[1].headers["Authorization"] == "Bearer new"
    assert of.tokens is not None and of.tokens.refresh == "next"


def test_a_refused_token_is_renewed_once() -> None:
    sent, _, _ = run(session(), GET, problem(401, "UNAUTHENTICATED"), ok(ISSUED), ok())
    assert [send.target for send in sent] == ["/runs/r", "/auth/refresh", "/runs/r"]
    with pytest.raises(ChimeraError):
        run(session(), GET, problem(401, "UNAUTHENTICATED"), ok(ISSUED), problem(401, "UNAUTHENTICATED"))


def test_a_refused_refresh_token_is_replaced_by_a_new_sign_in() -> None:
    sent, _, _ = run(session(renew_at=0.0), GET, problem(401, "UNAUTHENTICATED"), LOST, ok(ISSUED), ok())
    assert [send.target for send in sent] == ["/auth/refresh", "/auth/token", "/auth/token", "/runs/r"]
    first, second = bodies(sent)[1:3]
    assert first["actor"] == "user_ada" and first["nonce"] != second["nonce"]


def test_a_client_without_a_key_reads_and_does_not_sign() -> None:
    of = Session(None, None, NoLock(), tokens=Tokens("only", None, float("inf")))
    run(of, GET, ok())
    with pytest.raises(ChimeraError) as raised:
        run(of, APPROVE)
    assert raised.value.code == "NO_KEY"


def test_nothing_that_is_logged_shows_a_secret() -> None:
    of = session()
    steps = of.exchange(act(goal="a-secret-goal"))
    shown = f"{of!r} {next(steps)!r} {act(goal='a-secret-goal')!r} {ISSUED_TOKENS!r}"
    for secret in ("a-key-of-sixteen-characters", "old", "refresh'", "a-secret-goal", "Bearer"):
        assert secret not in shown


def test_a_target_is_encoded_as_it_is_signed() -> None:
    call = Call[Any](
        "x", "GET", "/a/{id}", "none", "json", path={"id": "b/c d?"}, query={"q": "1&2", "on": True, "none": None}
    )
    assert call.target == "/a/b%2Fc%20d%3F?q=1%262&on=true"
    for value in ("", ".", ".."):
        with pytest.raises(ValueError, match="part of a path"):
            assert Call[Any]("x", "GET", "/a/{id}", "none", "json", path={"id": value}).target
