//! The ticks that are being decided, and which schedules may join them.
//!
//! Each is a task of its own with a time limit, so a slow one holds up nobody: neither the search for due schedules nor
//! the ticks of others. A free slot goes to the tenant with the fewest ticks under way, and no tenant holds more than
//! three times what it leaves free.

use super::{Schedules, tick};
use crate::error::EngineError;
use chimera_core::access::Pool;
use chimera_core::act::tables::{ScheduleRow, schedules};
use chimera_core::error::{Code, ErrorBody};
use chimera_core::limits::{
    SCHEDULE_FAILED_MAX, SCHEDULE_SCAN_INTERVAL, SCHEDULE_TICK_TIME_MAX, SCHEDULE_TICKS_AT_ONCE_MAX,
};
use chimera_core::record::{Comparison, Select};
use chimera_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use uuid::Uuid;

#[derive(Default)]
pub(super) struct Ticks {
    under_way: JoinSet<(Uuid, Result<(), EngineError>)>,
    /// The schedules of these ticks, with their tenants.
    tenants: BTreeMap<Uuid, String>,
    /// Schedules that could not be looked at, and until when they are left alone.
    failed: BTreeMap<Uuid, Timestamp>,
}

impl Ticks {
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Whether nothing more may start now.
    pub(super) fn is_full(&self) -> bool {
        self.tenants.len() >= SCHEDULE_TICKS_AT_ONCE_MAX || self.failed.len() >= SCHEDULE_FAILED_MAX
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Looks again at schedules that were left alone long enough.
    pub(super) fn forgive(&mut self, steady: Timestamp) {
        self.failed.retain(|_, until| *until > steady);
    }

    /// Restricts a query to schedules that may start now.
    pub(super) fn exclude_busy(&self, select: Select, shared: bool) -> Select {
        let skipped = self.tenants.keys().chain(self.failed.keys());
        let select = skipped.fold(select, |select, id| select.filter(schedules::id, Comparison::IsNot, *id));
        let mut full: Vec<&str> = self.tenants.values().map(String::as_str).collect();
        full.sort_unstable();
        full.dedup();
        full.retain(|tenant| !self.has_share(tenant, shared));
        full.into_iter().fold(select, |select, tenant| select.filter(schedules::tenant_id, Comparison::IsNot, tenant))
    }

    /// Takes the next schedule to look at from `rows`, which are in order.
    pub(super) fn take_next(&self, rows: &mut Vec<ScheduleRow>, shared: bool) -> Option<ScheduleRow> {
        rows.retain(|row| !self.tenants.contains_key(&row.id) && self.has_share(&row.tenant_id, shared));
        let next = rows.iter().enumerate().min_by_key(|(_, row)| self.count(&row.tenant_id));
        next.map(|(at, _)| at).filter(|_| !self.is_full()).map(|at| rows.remove(at))
    }

    pub(super) fn begin(&mut self, scheduler: &Arc<Schedules>, row: ScheduleRow) {
        self.tenants.insert(row.id, row.tenant_id.clone());
        let scheduler = Arc::clone(scheduler);
        self.under_way.spawn(async move {
            let (id, name, later) = (row.id, row.name.clone(), row.clone());
            let looked = match tokio::time::timeout(SCHEDULE_TICK_TIME_MAX, tick::look_at(&scheduler, row)).await {
                Ok(looked) => looked,
                Err(_) => {
                    let seconds = SCHEDULE_TICK_TIME_MAX.as_secs();
                    let message = format!("the tick could not be decided within {seconds} seconds; it is tried again");
                    tick::defer(&scheduler, &later, &ErrorBody::new(Code::Overloaded, message)).await
                }
            };
            if let Err(error) = &looked {
                tracing::warn!(schedule = %id, name, error = %error, "a schedule could not be looked at");
            }
            (id, looked)
        });
    }

    /// Waits for a tick to end; `None` if there is none.
    pub(super) async fn next_ended(&mut self, scheduler: &Schedules) -> Option<()> {
        let (id, looked) = match self.under_way.join_next().await? {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(error = %error, "a tick ended unexpectedly");
                // Nobody knows which one it was: all that have ended are looked at again.
                if self.under_way.is_empty() {
                    self.tenants.clear();
                }
                return Some(());
            }
        };
        self.tenants.remove(&id);
        if looked.is_err() {
            let pause = i64::try_from(SCHEDULE_SCAN_INTERVAL.as_secs()).unwrap_or(i64::MAX);
            let steady = scheduler.actions.access.directory.parts.clock.steady();
            self.failed.insert(id, steady.plus_seconds(pause));
        }
        Some(())
    }

    fn count(&self, tenant: &str) -> usize {
        self.tenants.values().filter(|of| *of == tenant).count()
    }

    fn has_share(&self, tenant: &str, shared: bool) -> bool {
        let pool = Pool { total: SCHEDULE_TICKS_AT_ONCE_MAX, taken: self.tenants.len(), held: self.count(tenant) };
        pool.has_share(1, shared)
    }
}
