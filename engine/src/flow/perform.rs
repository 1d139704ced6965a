//! One call of a tool, from the record that asks for it to its answer.
//!
//! The caller has committed that record. The input was checked when it was resolved; a dry call of
//! a tool without dry-run support never reaches the tool. A call that does not answer in time is
//! dropped, and since nobody knows what it did by then, it may have been sent.

use super::Registry;
use crate::flow::port::{CallContext, Cancel, Done, Tool};
use crate::port::Clock;
use chimera_core::error::Code;
use chimera_core::flow::call::{Answer, ToolError};
use chimera_core::flow::run::{Call, Head, Mode};
use chimera_core::flow::trace::{self, SpanId};
use chimera_core::limits;
use chimera_core::tool::{Reach, is_dry};
use futures::FutureExt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const LATE: &str = "it did not answer in time";

/// Makes the call and gives its answer.
pub(super) async fn execute_tool(
    registry: &Registry,
    clock: &dyn Clock,
    head: &Head,
    call: &Call,
    mut cancel: Cancel,
) -> Answer {
    let Some(tool) = registry.tool_of(&head.tenant, &call.tool) else {
        let message = format!("there is no tool {} in this process", call.tool);
        return Answer::Failed(ToolError::not_sent(Code::ToolUnavailable, message));
    };
    let spec = tool.spec();
    if is_dry(&call.input) && call.mode != Mode::Dry && !spec.metadata.dry_run_supported {
        return Answer::Output(spec.mock(&call.input));
    }
    let left = call.deadline.micros() - clock.steady().micros();
    let Some(time_left) = u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros) else {
        return Answer::Failed(ToolError::not_sent(Code::RequestTimeout, "its time was over before it was sent"));
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
    };
    let work = asked(tool, &ctx, call);
    tokio::pin!(work);
    let stop = async {
        cancel.cancelled().await;
        tokio::time::sleep(limits::CALL_STOP_GRACE).await;
    };
    if spec.effect == Reach::Pure
        && let Some(answer) = work.as_mut().now_or_never()
    {
        return answer;
    }
    // A process that stood still must not send what others have given up. Timers fire only when the runtime
    // looks at them, and it may run a task that was ready before that: so the clock is read before each poll.
    let late = || clock.steady() >= call.deadline;
    let in_time =
        std::future::poll_fn(
            |cx| {
                if late() { Poll::Ready(dropped(spec.effect, LATE)) } else { work.as_mut().poll(cx) }
            },
        );
    tokio::select! {
        biased;
        () = tokio::time::sleep(time_left) => dropped(spec.effect, LATE),
        () = stop => dropped(spec.effect, "it was told to stop and did not answer"),
        answer = in_time => answer,
    }
}

async fn asked(tool: &Arc<dyn Tool>, ctx: &CallContext, call: &Call) -> Answer {
    match &call.mode {
        Mode::Execute | Mode::Dry => match tool.execute(ctx, &call.input).await {
            Ok(output) => Answer::Output(output),
            Err(error) => Answer::Failed(error),
        },
        Mode::Check => match tool.check(ctx, &call.input).await {
            Ok(found) => Answer::Found(found),
            Err(error) => Answer::Failed(error),
        },
        Mode::Undo { output } => {
            let done = Done { input: (*call.input).clone(), output: (**output).clone() };
            match tool.rollback(ctx, &done).await {
                Ok(output) => Answer::Output(output),
                Err(error) => Answer::Failed(error),
            }
        }
    }
}

fn dropped(reach: Reach, why: &str) -> Answer {
    Answer::Failed(match reach {
        Reach::Pure => ToolError::not_sent(Code::RequestTimeout, why),
        Reach::Read | Reach::Write => ToolError::maybe_sent(Code::RequestTimeout, why),
    })
}
