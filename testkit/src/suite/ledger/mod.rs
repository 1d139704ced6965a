//! The contract of the ledger on a record store, one function per statement.
//!
//! Every topic starts with an empty store. If several nodes may share the data, the tests use two nodes
//! at once.

mod audit;
mod checkpoints;
mod exports;
mod feed;
mod idempotency;

use crate::ledger_fixture::LedgerFixture;
use async_trait::async_trait;
use chimera_core::ledger::tables::EntryRow;
use chimera_core::record::{Row, Scope, Select, StoredRow};
use chimera_engine::port::Records;
use std::sync::Arc;

/// The data of one store, which survives its nodes.
#[async_trait]
pub trait Site: Send + Sync {
    /// Starts a node. Unless the site is shared, the previous node was stopped and dropped.
    async fn start(&self) -> Arc<dyn Records>;

    /// Whether several nodes may run at once.
    fn is_shared(&self) -> bool;
}

/// Two nodes (the same one twice if the site is not shared), and the fixtures.
pub(crate) struct LedgerNodes {
    pub(crate) one: Arc<dyn Records>,
    pub(crate) two: Arc<dyn Records>,
    pub(crate) world: Arc<LedgerFixture>,
}

impl LedgerNodes {
    async fn start(site: &dyn Site) -> Self {
        let one = site.start().await;
        let two = if site.is_shared() { site.start().await } else { Arc::clone(&one) };
        Self { one, two, world: Arc::new(LedgerFixture::new(1)) }
    }

    /// The nodes in rotation, without end.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<dyn Records>> {
        [&self.one, &self.two].into_iter().cycle()
    }

    /// Spawns concurrent writers on all nodes and lanes with `commits` commits each, every third with two entries.
    pub(crate) fn writers(&self, writers: u64, commits: u64) -> Vec<tokio::task::JoinHandle<()>> {
        let spawn = |(n, node): (u64, &Arc<dyn Records>)| {
            let (node, world) = (Arc::clone(node), Arc::clone(&self.world));
            tokio::spawn(async move {
                for commit in 0..commits {
                    let entries = if commit % 3 == 0 { 2 } else { 1 };
                    world.write(&*node, n / 2 + commit, "acme", entries).await;
                }
            })
        };
        (0..writers).zip(self.nodes()).map(spawn).collect()
    }

    async fn close(self) {
        self.one.close().await;
        self.two.close().await;
    }
}

/// Waits for tasks and propagates their panics.
pub(crate) async fn join_workers(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// Every row of a query, all pages.
pub(crate) async fn all_rows(records: &dyn Records, mut select: Select) -> Vec<Row> {
    let mut rows = Vec::new();
    loop {
        let page = records.read(select.clone()).await.unwrap();
        rows.extend(page.rows);
        let Some(next) = page.next else { return rows };
        select.after = Some(next);
    }
}

/// Every entry, lane after lane.
pub(crate) async fn entries(records: &dyn Records) -> Vec<EntryRow> {
    list(records, EntryRow::select(Scope::System).take(1_000)).await
}

/// The rows of a query, decoded.
pub(crate) async fn list<R: StoredRow>(records: &dyn Records, select: Select) -> Vec<R> {
    all_rows(records, select).await.into_iter().map(|row| R::decode(row).unwrap()).collect()
}

/// Checkpoints and verification in place.
pub async fn checkpoints(site: &dyn Site) {
    let stage = LedgerNodes::start(site).await;
    checkpoints::without_anything_new_there_is_no_checkpoint(&stage).await;
    checkpoints::a_checkpoint_has_the_right_root_of_every_lane(&stage).await;
    checkpoints::of_makers_at_once_one_wins(&stage).await;
    checkpoints::a_ledger_that_grows_is_covered_and_verifies(&stage).await;
    stage.close().await;
}

/// Proofs and exports, verified without the store.
pub async fn exports(site: &dyn Site) {
    let stage = LedgerNodes::start(site).await;
    exports::what_no_checkpoint_covers_can_not_be_proven(&stage).await;
    exports::a_covered_entry_has_a_proof_for_its_own_tenant_only(&stage).await;
    exports::a_whole_export_holds_everything_and_verifies(&stage).await;
    exports::a_tenants_export_holds_only_its_entries_and_verifies(&stage).await;
    exports::a_flipped_bit_in_an_export_is_found(&stage).await;
    exports::an_export_of_a_ledger_that_grows_verifies(&stage).await;
    stage.close().await;
}

/// The feed, on running nodes and across their restarts.
pub async fn feed(site: &dyn Site) {
    feed::a_consumer_goes_on_where_it_stopped_and_finds_new_lanes(site).await;
    let stage = LedgerNodes::start(site).await;
    feed::no_entry_is_missed_or_repeated_while_writers_write(&stage).await;
    feed::of_two_processes_under_one_name_one_is_told_to_stop(&stage).await;
    feed::a_cursor_moves_with_the_consumers_own_change_or_not_at_all(&stage).await;
    stage.close().await;
}

/// Requests under idempotency keys.
pub async fn idempotency(site: &dyn Site) {
    let stage = LedgerNodes::start(site).await;
    idempotency::of_eight_at_once_one_is_the_first(&stage).await;
    idempotency::a_finished_request_is_answered_from_its_record(&stage).await;
    idempotency::an_expired_record_is_taken_over_once(&stage).await;
    idempotency::a_record_and_its_change_stand_or_fall_together(&stage).await;
    idempotency::owners_do_not_see_each_others_records(&stage).await;
    stage.close().await;
}

/// The audit writer.
pub async fn audit(site: &dyn Site) {
    let stage = LedgerNodes::start(site).await;
    audit::a_decision_leaves_a_row_an_entry_and_a_scope(&stage).await;
    audit::a_decision_is_seen_by_its_tenant_only(&stage).await;
    audit::a_persons_action_names_the_person_and_the_subject(&stage).await;
    audit::an_act_that_loses_leaves_no_half_entry(&stage).await;
    stage.close().await;
}

pub use audit::without_its_audit_row_an_act_does_not_happen;
