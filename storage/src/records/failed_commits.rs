//! Failed commits, and what proves that they would work now.
//!
//! Small changes succeed while larger ones fail: the page of a lane's row has room on a full disk, and a lane is
//! renewed without privileges on any other table. So a failed commit is kept with what it needed and how much it
//! wrote, until a commit or a probe has done the same.
//!
//! | what failed       | is over after                                                                   |
//! |-------------------|---------------------------------------------------------------------------------|
//! | passing           | any commit                                                                      |
//! | full, faulty disk | a commit that wrote as much, or a probe that did                                |
//! | unusable          | commits that used the same tables in the same ways, or a probe that tried       |
//! | damaged           | any commit; the damage itself is kept elsewhere                                 |

use super::is_probe;
use super::usage::TableOps;
use chimera_core::limits;
use chimera_core::record::{Insert, Step, Tx, Value};
use chimera_engine::port::{Outage, Unavailable};
use std::sync::Arc;

/// What a change needs of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct TxFootprint {
    uses: TableOps,
    bytes: u64,
}

impl TxFootprint {
    pub(super) fn of(tx: &Tx) -> Self {
        let (uses, mut bytes) = (TableOps::of(tx), 0);
        let row = |insert: &Insert| size_of_cells(insert.cells.iter().map(|(_, value)| value));
        for insert in &tx.inserts {
            bytes += row(insert);
        }
        for update in &tx.updates {
            bytes += size_of_cells(update.set.iter().map(|(_, value)| value));
        }
        for step in &tx.steps {
            bytes += match step {
                Step::Insert(insert) => row(insert),
                Step::Update { set, .. } => size_of_cells(set.iter().map(|(_, value)| value)),
                Step::Lock { .. } | Step::Delete { .. } => 0,
            };
        }
        bytes += tx.entries.iter().map(|sealed| sealed.data_json.len() as u64 + ROW_BYTES).sum::<u64>();
        Self { uses, bytes }
    }
}

/// The approximate size of a row or a number, besides texts.
const ROW_BYTES: u64 = 64;
const NUMBER_BYTES: u64 = 8;

fn size_of_cells<'a>(cells: impl Iterator<Item = &'a Value>) -> u64 {
    let size = |value: &Value| match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Time(_) => NUMBER_BYTES,
        Value::Uuid(_) => 2 * NUMBER_BYTES,
        Value::Decimal(text) | Value::Text(text) => text.len() as u64,
        Value::Json(json) => json.as_str().len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::Uuids(all) => all.len() as u64 * 2 * NUMBER_BYTES,
        Value::Texts(all) => all.iter().map(|text| text.len() as u64).sum(),
    };
    ROW_BYTES + cells.map(size).sum::<u64>()
}

/// Failed commits that nothing has disproved, one for each kind of outage.
#[derive(Default)]
pub(super) struct FailedCommits {
    failed: Vec<FailedKind>,
    /// Changes that a probe repeats, because planning does not show what is wrong.
    trials: Vec<RetriedChange>,
    /// The total number of failures.
    count: u64,
}

struct RetriedChange {
    tx: Arc<Tx>,
    /// The sequence number of its failure.
    at: u64,
}

struct FailedKind {
    why: Unavailable,
    /// The needs that are not proven yet.
    needs: TxFootprint,
    /// The sequence number of the last failure of this kind.
    last: u64,
}

/// What a probe has to prove.
#[derive(Clone, Debug, Default)]
pub(super) struct Unproven {
    /// Uses that must be possible.
    uses: TableOps,
    /// Bytes for which there must be space.
    room: Option<u64>,
    /// Changes that must succeed if repeated now.
    trials: Vec<Arc<Tx>>,
    /// Failures after this one are unknown to the probe.
    until: u64,
}

impl Unproven {
    /// Uses that must be possible, if any failed: everything that a server does, so that the next change does not
    /// fail where the last one did not get to.
    pub(super) fn uses(&self) -> Option<TableOps> {
        if self.uses.is_empty() {
            return None;
        }
        let mut all = TableOps::all();
        all.extend(self.uses.clone());
        Some(all)
    }

    /// Changes that must succeed if repeated now, with their ledger entries.
    pub(super) fn trials(&self) -> impl Iterator<Item = &Tx> {
        self.trials.iter().map(|tx| &**tx)
    }

    /// Bytes for which there must be space, if there was none.
    pub(super) fn room(&self) -> Option<u64> {
        self.room.map(|bytes| bytes.clamp(limits::PROBE_BYTES_MIN, limits::PROBE_BYTES_MAX))
    }
}

impl FailedCommits {
    pub(super) fn first(&self) -> Option<&Unavailable> {
        self.failed.first().map(|failed| &failed.why)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.failed.is_empty() && self.trials.is_empty()
    }

    /// Records a failure with what its transaction needed.
    pub(super) fn add(&mut self, why: Unavailable, tx: &Tx) {
        self.count += 1;
        if why.outage == Outage::Unusable {
            self.try_again(tx);
        }
        let TxFootprint { uses, bytes } = TxFootprint::of(tx);
        let same = |failed: &&mut FailedKind| failed.why.outage == why.outage;
        let Some(known) = self.failed.iter_mut().find(same) else {
            return self.failed.push(FailedKind { why, needs: TxFootprint { uses, bytes }, last: self.count });
        };
        known.needs.uses.extend(uses);
        known.needs.bytes = known.needs.bytes.max(bytes);
        (known.why, known.last) = (why, self.count);
    }

    fn try_again(&mut self, tx: &Tx) {
        if is_probe(tx) {
            return;
        }
        let uses = TableOps::of(tx);
        self.trials.retain(|trial| !TableOps::of(&trial.tx).is_within(&uses));
        if self.trials.len() >= limits::PROBE_CHANGES_MAX {
            self.trials.remove(0);
        }
        self.trials.push(RetriedChange { tx: Arc::new(tx.clone()), at: self.count });
    }

    /// Records a commit that succeeded.
    pub(super) fn committed(&mut self, tx: &Tx) {
        let done = TxFootprint::of(tx);
        // A probe's appends prove nothing about other changes.
        self.trials.retain(|trial| is_probe(tx) || !TableOps::of(&trial.tx).is_within(&done.uses));
        self.failed.retain_mut(|failed| match failed.why.outage {
            Outage::Transient | Outage::Damaged => false,
            Outage::Full | Outage::DiskError => failed.needs.bytes > done.bytes,
            Outage::Unusable => {
                failed.needs.uses.remove_all(&done.uses);
                !failed.needs.uses.is_empty()
            }
        });
    }

    /// What a probe has to prove before all failures are cleared.
    pub(super) fn unproven(&self) -> Option<Unproven> {
        let trials: Vec<Arc<Tx>> = self.trials.iter().map(|trial| Arc::clone(&trial.tx)).collect();
        let mut unproven = Unproven { until: self.count, trials, ..Unproven::default() };
        for FailedKind { why, needs, .. } in &self.failed {
            match why.outage {
                Outage::Transient | Outage::Damaged => {}
                Outage::Full | Outage::DiskError => unproven.room = unproven.room.max(Some(needs.bytes)),
                Outage::Unusable => unproven.uses.extend(needs.uses.clone()),
            }
        }
        let is_any = unproven.room.is_some() || !unproven.uses.is_empty() || !unproven.trials.is_empty();
        is_any.then_some(unproven)
    }

    /// Clears the failures that a probe has disproved.
    pub(super) fn probed(&mut self, shown: &Unproven) {
        self.trials.retain(|trial| trial.at > shown.until);
        self.failed.retain(|failed| {
            let looked_at = match failed.why.outage {
                Outage::Transient | Outage::Damaged => false,
                Outage::Full | Outage::DiskError => shown.room.is_some(),
                Outage::Unusable => !shown.uses.is_empty(),
            };
            !looked_at || failed.last > shown.until
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::usage::TableOp;
    use super::*;
    use chimera_core::flow::tables::{RUNS, STEPS};
    use chimera_core::record::{Condition, RowCount, Table};

    fn insert(table: &'static Table, bytes: usize) -> Tx {
        let cells = vec![(0, Value::Bytes(vec![0; bytes]))];
        Tx { inserts: vec![Insert { table, cells }], ..Tx::default() }
    }

    fn delete(table: &'static Table) -> Tx {
        let step = Step::Delete { table, conditions: Vec::<Condition>::new(), rows: RowCount::AtMost(1) };
        Tx { steps: vec![step], ..Tx::default() }
    }

    fn after(outage: Outage, tx: &Tx) -> FailedCommits {
        let mut failed = FailedCommits::default();
        failed.add(Unavailable::new(outage, "it fails"), tx);
        failed
    }

    #[test]
    fn a_commit_without_room_is_over_when_one_wrote_as_much_and_not_before() {
        for outage in [Outage::Full, Outage::DiskError] {
            let mut failed = after(outage, &insert(&RUNS, 5_000));
            failed.committed(&Tx::default());
            failed.committed(&insert(&STEPS, 4_000));
            assert!(!failed.is_empty(), "{outage:?}");
            failed.committed(&insert(&STEPS, 5_000));
            assert!(failed.is_empty(), "{outage:?}");
        }
    }

    #[test]
    fn the_largest_of_several_that_found_no_room_counts() {
        let mut failed = after(Outage::Full, &insert(&RUNS, 5_000));
        failed.add(Unavailable::new(Outage::Full, "it fails"), &insert(&RUNS, 10));
        failed.committed(&insert(&RUNS, 4_000));
        assert!(failed.unproven().unwrap().room.unwrap() > 5_000);
    }

    #[test]
    fn a_commit_that_lacked_a_table_or_a_right_is_over_when_the_same_uses_worked() {
        let mut failed = after(Outage::Unusable, &insert(&STEPS, 1));
        for other in [Tx::default(), insert(&RUNS, 9_000), delete(&STEPS)] {
            failed.committed(&other);
            assert!(!failed.is_empty(), "a renewed lane, another table, and another right prove nothing: {other:?}");
        }
        failed.committed(&insert(&STEPS, 0));
        assert!(failed.is_empty());
    }

    #[test]
    fn what_several_needed_may_be_proven_one_by_one() {
        let mut failed = after(Outage::Unusable, &insert(&STEPS, 1));
        failed.add(Unavailable::new(Outage::Unusable, "it fails"), &delete(&RUNS));
        failed.committed(&insert(&STEPS, 1));
        assert!(!failed.is_empty());
        failed.committed(&delete(&RUNS));
        assert!(failed.is_empty());
    }

    #[test]
    fn what_passes_is_over_with_any_commit_and_needs_no_probe() {
        let mut failed = after(Outage::Transient, &insert(&RUNS, 5_000));
        assert!(failed.unproven().is_none());
        failed.committed(&Tx::default());
        assert!(failed.is_empty());
    }

    #[test]
    fn a_probe_ends_what_had_failed_before_it_began() {
        let mut failed = after(Outage::Full, &insert(&RUNS, 5_000));
        failed.add(Unavailable::new(Outage::Unusable, "it fails"), &insert(&STEPS, 1));
        let begun = failed.unproven().unwrap();
        assert!(begun.room.is_some() && begun.uses.contains(&STEPS, TableOp::Insert));
        failed.add(Unavailable::new(Outage::Unusable, "it fails"), &insert(&RUNS, 1));
        failed.probed(&begun);
        assert_eq!(failed.first().map(|why| why.outage), Some(Outage::Unusable), "it failed since");
        failed.probed(&failed.unproven().unwrap());
        assert!(failed.is_empty());
    }
}
