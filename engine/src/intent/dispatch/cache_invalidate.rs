//! `cache.invalidate`: deletes cached outputs of the tenant, and says how many.

use super::{DispatchRequest, decode};
use crate::access::Permit;
use crate::error::EngineError;
use crate::flow::{self, CacheKeys, CacheSelection};
use crate::intent::router::IntentRouter;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct CacheInvalidateArgs {
    scope: String,
    workflow_id: Option<String>,
    key: Option<String>,
    prefix: Option<String>,
}

impl CacheInvalidateArgs {
    fn selection(&self) -> CacheSelection<'_> {
        let keys = match (self.key.as_deref(), self.prefix.as_deref()) {
            (Some(key), _) => CacheKeys::One(key),
            (None, Some(prefix)) => CacheKeys::Prefix(prefix),
            (None, None) => CacheKeys::All,
        };
        CacheSelection { workflow: self.workflow_id.as_deref(), keys }
    }
}

pub(super) async fn dispatch(request: &DispatchRequest<'_>) -> Result<Value, EngineError> {
    let args: CacheInvalidateArgs = decode(request.args())?;
    let answer = |count: u64| json!({"scope": args.scope, "invalidated": count});
    let permit_for = |count: u64| request.acceptance.permit_with(&answer(count), None);
    let flow = request.router.actions.flow();
    flow::invalidate_cache(flow, request.acceptance.permit(), &args.selection(), &permit_for).await.map(answer)
}

pub(super) async fn preview(router: &IntentRouter, permit: &Permit, args: &Value) -> Result<(), EngineError> {
    let args: CacheInvalidateArgs = decode(args)?;
    flow::count_cached(router.actions.flow(), permit, &args.selection()).await.map(drop)
}
