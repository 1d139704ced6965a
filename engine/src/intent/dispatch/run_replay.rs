//! `run.replay`: replays a run with recorded outputs (`freeze`), or with its side effects suppressed (`shadow`).

use super::{DispatchRequest, decode, run_of};
use crate::access::Permit;
use crate::act;
use crate::error::EngineError;
use crate::intent::router::IntentRouter;
use chimera_core::flow::run::{Replay, ReplayMode};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct RunReplayArgs {
    run_id: String,
    from_node: Option<String>,
    mode: ModeWord,
}

/// A real retry is no replay without side effects.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ModeWord {
    Freeze,
    Shadow,
}

impl RunReplayArgs {
    fn replay(self) -> Result<Replay, EngineError> {
        let mode = match self.mode {
            ModeWord::Freeze => ReplayMode::Freeze,
            ModeWord::Shadow => ReplayMode::Shadow,
        };
        Ok(Replay { of: run_of(&self.run_id)?, mode, from: self.from_node })
    }
}

pub(super) async fn dispatch(request: &DispatchRequest<'_>) -> Result<Value, EngineError> {
    let replay = decode::<RunReplayArgs>(request.args())?.replay()?;
    let directory = request.router.actions.access().directory();
    let run = request.context.run_id.unwrap_or_else(|| directory.parts.random.row_id(directory.parts.clock.now()));
    let result = json!({"run_id": run, "replay_of": replay.of, "mode": replay.mode.as_str()});
    let permit = request.acceptance.permit_with(&result, Some(run))?;
    Box::pin(act::replay_as(&request.router.actions, &permit, replay, run)).await?;
    Ok(result)
}

pub(super) async fn preview(router: &IntentRouter, permit: &Permit, args: &Value) -> Result<(), EngineError> {
    let replay = decode::<RunReplayArgs>(args)?.replay()?;
    Box::pin(act::check_replay(&router.actions, permit, &replay)).await
}
