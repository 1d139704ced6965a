//! Parallel delivery: a receiver that hangs blocks nobody else, of any tenant; a receiver gets one message at a time,
//! oldest first.

use async_trait::async_trait;
use chimera_core::access::Level;
use chimera_core::flow::tables::NOTIFICATIONS;
use chimera_core::limits::{MESSAGES_SENT_AT_ONCE_MAX, MESSAGES_SENT_AT_ONCE_TENANT_MAX};
use chimera_core::record::Value as Cell;
use chimera_engine::flow::port::{DeliveryReceipt, Message, Notifier, ToolError};
use chimera_engine::flow::{self, StartRun};
use chimera_testkit::cells::Cells;
use chimera_testkit::flow::{EngineFixture, chain, stage};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

/// Sends slowly, and never returns for a receiver that hangs.
#[derive(Default)]
struct SlowNotifier {
    now: Mutex<BTreeMap<String, usize>>,
    begun: Mutex<Vec<(String, Uuid)>>,
    done: Mutex<Vec<String>>,
}

impl SlowNotifier {
    fn begun_for(&self, target: &str) -> Vec<Uuid> {
        self.begun.lock().unwrap().iter().filter(|(to, _)| to == target).map(|(_, id)| *id).collect()
    }
}

#[async_trait]
impl Notifier for SlowNotifier {
    fn check(&self, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }

    async fn send(&self, message: &Message) -> Result<DeliveryReceipt, ToolError> {
        let target = message.target.clone();
        let at_once = {
            let mut now = self.now.lock().unwrap();
            *now.entry(target.clone()).or_default() += 1;
            now.clone()
        };
        assert_eq!(at_once[&target], 1, "one at a time to {target}");
        assert!(at_once.values().sum::<usize>() <= MESSAGES_SENT_AT_ONCE_MAX);
        self.begun.lock().unwrap().push((target.clone(), message.id));
        if target.contains("hang") {
            std::future::pending::<()>().await;
        }
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        self.now.lock().unwrap().remove(&target);
        self.done.lock().unwrap().push(target);
        Ok(DeliveryReceipt::default())
    }
}

async fn tell(stage: &EngineFixture, target: &str) {
    let notify = Some(json!({"webhook": target}));
    let run = stage.start(StartRun { level: Level::ExecuteNotify, notify, ..StartRun::of("w", json!({})) }).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
}

async fn ready(slow: &Arc<SlowNotifier>) -> EngineFixture {
    let stage = stage(1).notifier(Arc::clone(slow) as Arc<dyn Notifier>).open().await;
    stage.apply(&chain("w", &[("a", "again")])).await;
    stage
}

/// Changes the tenant of messages.
fn given_to(stage: &EngineFixture, tenant: &str, of: impl Fn(&str) -> bool) {
    stage.records.tamper(&NOTIFICATIONS, |rows| {
        let (tenants, targets) = (NOTIFICATIONS.position("tenant_id"), NOTIFICATIONS.position("target"));
        for row in rows {
            if row.cells[targets.unwrap()].as_text().is_some_and(&of) {
                row.cells[tenants.unwrap()] = Cell::from(tenant);
            }
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_holds_up_nobody_else() {
    let slow = Arc::new(SlowNotifier::default());
    let stage = ready(&slow).await;
    for _ in 0..4 {
        tell(&stage, "https://hooks.example/hang").await;
    }
    let flow = stage.flow.clone();
    let loops = tokio::spawn(async move { flow::run_delivery(&flow).await });
    stage.pass(Duration::from_secs(3)).await;
    assert_eq!(slow.begun_for("https://hooks.example/hang").len(), 1);
    for _ in 0..3 {
        tell(&stage, "https://hooks.example/good").await;
        stage.pass(Duration::from_millis(1)).await;
    }
    stage.pass(Duration::from_secs(8)).await;
    assert_eq!(*slow.done.lock().unwrap(), ["https://hooks.example/good"; 3]);
    let mut rows = stage.rows(&NOTIFICATIONS);
    rows.retain(|row| row.text("target").ends_with("good"));
    rows.sort_by_key(|row| row.get("created_at").as_time());
    let oldest_first: Vec<Uuid> = rows.iter().map(|row| row.uuid("id")).collect();
    assert_eq!(slow.begun_for("https://hooks.example/good"), oldest_first);
    loops.abort();
}

/// Neither many receivers that hang nor a long queue for one of them can starve another tenant.
#[tokio::test(start_paused = true)]
async fn one_tenant_does_not_take_every_place() {
    let slow = Arc::new(SlowNotifier::default());
    let stage = ready(&slow).await;
    for n in 0..MESSAGES_SENT_AT_ONCE_MAX * 2 {
        tell(&stage, &format!("https://hooks.example/hang{n}")).await;
        tell(&stage, "https://hooks.example/hang").await;
    }
    given_to(&stage, "slowco", |target| target.contains("hang"));
    tell(&stage, "https://hooks.example/good").await;
    let flow = stage.flow.clone();
    let loops = tokio::spawn(async move { flow::run_delivery(&flow).await });
    stage.pass(Duration::from_secs(5)).await;
    assert_eq!(*slow.done.lock().unwrap(), ["https://hooks.example/good"]);
    assert_eq!(slow.now.lock().unwrap().len(), MESSAGES_SENT_AT_ONCE_TENANT_MAX);
    loops.abort();
}
