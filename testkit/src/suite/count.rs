//! The contract of `Records::count`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite is a test")]

use crate::build::{NOON, run};
use crate::seeded::Seeded;
use chimera_core::flow::run::RunStatus;
use chimera_core::flow::tables::{RUNS, runs};
use chimera_core::record::{CountQuery, RowGroup, Scope, Select};
use chimera_engine::port::{Random, ReadError, Records};

/// Rows are counted by the value of a column, with the oldest time of each group, up to `rows_max`.
pub async fn rows_are_counted_by_a_value_up_to_a_bound(store: &dyn Records, s: &Seeded) {
    let tenant = s.opaque_id();
    for status in ["running", "failed", "running"] {
        store.commit(run(s).of(&tenant).status(status).tx().unwrap()).await.expect("a fresh row commits");
    }
    let count =
        |select: Select, rows_max: usize| CountQuery { select, by: runs::status, oldest: runs::created_at, rows_max };
    let own = || Select::from(&RUNS, Scope::Tenant(tenant.clone()));
    let mut counted = store.count(count(own(), 10)).await.expect("a count");
    counted.sort_by(|one, other| one.value.cmp(&other.value));
    let of = |value: &str, rows| RowGroup { value: value.to_owned(), rows, oldest: Some(NOON) };
    assert_eq!(counted, [of("failed", 1), of("running", 2)]);
    let few = store.count(count(own(), 2)).await.expect("a count");
    assert_eq!(few.iter().map(|counted| counted.rows).sum::<u64>(), 2, "no more than wanted is looked at");
    let none = store.count(count(own().with(runs::status, RunStatus::Completed), 10)).await.expect("a count");
    assert_eq!(none, [], "a value that no row has is left out");
    let unset = CountQuery { oldest: runs::completed_at, ..count(own().with(runs::status, RunStatus::Failed), 10) };
    assert_eq!(store.count(unset).await.expect("a count")[0].oldest, None);
    let unknown = CountQuery { by: "colour", ..count(own(), 10) };
    assert!(matches!(store.count(unknown).await, Err(ReadError::Invalid { .. })));
}
