//! Tools that need nothing outside this process.

mod echo;
mod markdown_to_pdf;
mod summarize;

use crate::cpu_pool::CpuPool;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::LOCAL_TOOLS_AT_ONCE_MAX;
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::Tool;
use std::sync::Arc;

/// All local tools; PDFs are stored in, and images taken from, `blobs`.
pub fn local_tools(blobs: TenantBlobs) -> Result<Vec<Arc<dyn Tool>>, InvalidSchema> {
    let aside = CpuPool::new(LOCAL_TOOLS_AT_ONCE_MAX);
    Ok(vec![
        Arc::new(echo::Echo::new()?),
        Arc::new(summarize::Summarize::new(aside.clone())?),
        Arc::new(markdown_to_pdf::MarkdownToPdf::new(blobs, aside)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::access::Claimant;
    use chimera_core::time::Timestamp;
    use chimera_engine::flow::port::{CallContext, CallLog, CancelToken};
    use serde_json::json;
    use std::sync::mpsc;
    use std::time::Duration;
    use uuid::Uuid;

    fn call(n: u128) -> CallContext {
        CallContext {
            tenant: "bob".into(),
            actor: "ann".into(),
            run_id: Uuid::from_u128(n),
            step_id: Uuid::from_u128(n),
            effect_id: Uuid::from_u128(n),
            idempotency_key: n.to_string(),
            attempt: 1,
            deadline: Timestamp::from_micros(0),
            time_left: Duration::from_secs(60),
            traceparent: String::new(),
            log: CallLog::none(),
            cancel: CancelToken::pair().1,
        }
    }

    #[tokio::test]
    async fn so_many_calls_compute_at_a_time_and_the_others_wait() {
        let aside = CpuPool::new(LOCAL_TOOLS_AT_ONCE_MAX);
        let (release, held) = mpsc::sync_channel::<()>(0);
        let held = Arc::new(std::sync::Mutex::new(held));
        let begin = |_| {
            let (aside, held) = (aside.clone(), Arc::clone(&held));
            let work = move || held.lock().unwrap().recv().is_ok();
            tokio::spawn(async move { aside.work(&Claimant::new("acme", ""), true, work).await })
        };
        let works: Vec<_> = (0..=LOCAL_TOOLS_AT_ONCE_MAX).map(begin).collect();
        while aside.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        let (tool, input) = (summarize::Summarize::new(aside.clone()).unwrap(), json!({"text": "One. Two."}));
        let calls = [call(1), call(2), call(3)];
        let mut calls: Vec<_> = calls.iter().map(|ctx| tool.execute(ctx, &input)).collect();
        for call in &mut calls {
            assert!(futures::poll!(call.as_mut()).is_pending());
        }
        assert_eq!(aside.waiting(), 4);
        drop(release);
        for call in calls {
            assert_eq!(call.await.unwrap()["sentences_in_text"], 2);
        }
        for work in works {
            assert_eq!(work.await.unwrap(), Some(false));
        }
    }
}
