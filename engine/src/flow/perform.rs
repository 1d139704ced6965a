//! Executes one tool call.
//!
//! The caller has committed the record of the call (a first turn makes pure calls that answer at once before that), and
//! the input was validated when it was resolved. A dry call of a tool without dry-run support never reaches the tool. A
//! call that exceeds its deadline is dropped; since its effect is unknown then, it counts as maybe sent.

use super::{FlowPorts, definitions};
use crate::flow::port::{CallContext, CallLog, CancelToken, CompletedCall, LoggedCall, Tool};
use chimera_core::error::Code;
use chimera_core::flow::call::{CallOutcome, ToolError};
use chimera_core::flow::run::{Call, CallMode, RunHead};
use chimera_core::flow::trace::{self, SpanId};
use chimera_core::limits;
use chimera_core::tool::{EffectKind, is_dry_run};
use futures::FutureExt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const LATE: &str = "the call timed out";

pub(super) async fn execute_tool(
    parts: &FlowPorts,
    head: &RunHead,
    call: &Call,
    mut cancel: CancelToken,
) -> CallOutcome {
    let clock = &*parts.clock;
    let tool = match definitions::tool_for_call(parts, &head.tenant, &call.tool).await {
        Ok(tool) => tool,
        Err(error) => return CallOutcome::Failed(error),
    };
    let spec = tool.spec();
    if is_dry_run(&call.input) && call.mode != CallMode::DryRun && !spec.metadata.dry_run_supported {
        return CallOutcome::Output(spec.mock_response(&call.input));
    }
    let left = call.deadline.micros() - clock.steady().micros();
    let Some(time_left) = u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros) else {
        return CallOutcome::Failed(ToolError::not_sent(
            Code::RequestTimeout,
            "the deadline passed before the call was sent",
        ));
    };
    let ctx = CallContext {
        tenant: head.tenant.clone(),
        actor: head.actor.clone(),
        run_id: head.id,
        step_id: call.step,
        effect_id: call.effect,
        idempotency_key: call.key.clone(),
        attempt: call.attempt,
        deadline: call.deadline,
        time_left,
        traceparent: trace::traceparent(head.id, SpanId::call(call.id)),
        cancel: cancel.clone(),
        log: CallLog::open(&parts.call_log, || LoggedCall {
            tenant: head.tenant.clone(),
            run_id: head.id,
            step_id: call.step,
            call_id: call.id,
            tool: Arc::clone(spec),
            attempt: call.attempt,
        }),
    };
    let work = invoke(&tool, &ctx, call);
    tokio::pin!(work);
    let stop = async {
        cancel.cancelled().await;
        tokio::time::sleep(limits::CALL_STOP_GRACE).await;
    };
    if spec.effect == EffectKind::Pure
        && let Some(answer) = work.as_mut().now_or_never()
    {
        return answer;
    }
    // A suspended process must not send what other nodes have given up on. Timers fire only when the runtime checks
    // them, and a ready task may run before that, so the clock is read before each poll.
    let late = || clock.steady() >= call.deadline;
    let in_time = std::future::poll_fn(|cx| {
        if late() { Poll::Ready(dropped_answer(spec.effect, LATE)) } else { work.as_mut().poll(cx) }
    });
    tokio::select! {
        biased;
        () = tokio::time::sleep(time_left) => dropped_answer(spec.effect, LATE),
        () = stop => dropped_answer(spec.effect, "the call was cancelled and did not return in time"),
        answer = in_time => answer,
    }
}

async fn invoke(tool: &Arc<dyn Tool>, ctx: &CallContext, call: &Call) -> CallOutcome {
    match &call.mode {
        CallMode::Execute | CallMode::DryRun => match tool.execute(ctx, &call.input).await {
            Ok(output) => CallOutcome::Output(output),
            Err(error) => CallOutcome::Failed(error),
        },
        CallMode::Check => match tool.check(ctx, &call.input).await {
            Ok(found) => CallOutcome::Checked(found),
            Err(error) => CallOutcome::Failed(error),
        },
        CallMode::Undo { output } => {
            let done = CompletedCall { input: (*call.input).clone(), output: (**output).clone() };
            match tool.rollback(ctx, &done).await {
                Ok(output) => CallOutcome::Output(output),
                Err(error) => CallOutcome::Failed(error),
            }
        }
    }
}

fn dropped_answer(reach: EffectKind, why: &str) -> CallOutcome {
    CallOutcome::Failed(match reach {
        EffectKind::Pure => ToolError::not_sent(Code::RequestTimeout, why),
        EffectKind::Read | EffectKind::Write => ToolError::maybe_sent(Code::RequestTimeout, why),
    })
}
