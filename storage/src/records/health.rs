//! What commits and reads of this process ran into, for readiness checks.
//!
//! A successful probe proves little: the page it touches may be intact while others are not. So every failure is kept
//! until something disproves it. A failed commit is cleared by a commit that needs as much of the store, a failed
//! read by a read of the same relation. Damage is cleared when the damaged relations were checked completely and
//! found intact, which is retried from time to time.

use super::failed_commits::{FailedCommits, Unproven};
use super::usage::TableOps;
use chimera_core::limits;
use chimera_core::record::{Select, Table, Tx};
use chimera_engine::port::{CommitError, ReadError, Receipt, Unavailable};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The recorded failures. While there are none, a successful commit or read costs one atomic load.
#[derive(Default)]
pub(super) struct Health {
    troubled: AtomicBool,
    /// A probe is in progress.
    probing: AtomicBool,
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    commits: FailedCommits,
    reads: BTreeMap<&'static str, (Select, Unavailable)>,
    damaged: BTreeMap<&'static str, Damage>,
    look: Option<DamageRecheck>,
}

struct Damage {
    table: &'static Table,
    why: Unavailable,
    /// A commit that meets damage does not say in which of its tables.
    certain: bool,
}

/// When damage is checked again.
struct DamageRecheck {
    pause: Duration,
    at: Instant,
    under_way: bool,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the outcome of a commit. A damage error gets the possible tables added.
    pub(super) fn record_commit(&self, answer: Result<Receipt, CommitError>, tx: &Tx) -> Result<Receipt, CommitError> {
        match answer {
            Err(CommitError::Unavailable(why)) => {
                let mut state = self.state();
                let reason = if why.outage.is_damage() {
                    let tables: BTreeMap<_, _> = TableOps::of(tx).tables().map(|table| (table.name, table)).collect();
                    tables.values().for_each(|table| state.damage(table, &why, false));
                    located(&why, tables.into_keys(), false)
                } else {
                    why.clone()
                };
                state.commits.add(why, tx);
                self.troubled.store(true, Ordering::Relaxed);
                Err(reason.into())
            }
            Ok(receipt) if self.troubled.load(Ordering::Relaxed) => {
                let mut state = self.state();
                state.commits.committed(tx);
                self.troubled.store(state.is_troubled(), Ordering::Relaxed);
                Ok(receipt)
            }
            answer => answer,
        }
    }

    /// Records the outcome of a read. A damage error gets the table added.
    pub(super) fn read<T>(&self, select: &Select, answer: Result<T, ReadError>) -> Result<T, ReadError> {
        let name = select.table.name;
        match answer {
            Err(ReadError::Unavailable(why)) => {
                let mut state = self.state();
                state.reads.insert(name, (select.clone(), why.clone()));
                self.troubled.store(true, Ordering::Relaxed);
                if !why.outage.is_damage() {
                    return Err(why.into());
                }
                state.damage(select.table, &why, true);
                Err(located(&why, [name].into_iter(), true).into())
            }
            Ok(page) if self.troubled.load(Ordering::Relaxed) => {
                let mut state = self.state();
                state.reads.remove(name);
                self.troubled.store(state.is_troubled(), Ordering::Relaxed);
                Ok(page)
            }
            answer => answer,
        }
    }

    /// Failed reads that were not retried: the readiness check retries them.
    pub(super) fn failed_reads(&self) -> Vec<Select> {
        if !self.troubled.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let reads = &self.state().reads;
        reads.values().take(limits::READINESS_READS_MAX).map(|(select, _)| select.clone().take(1)).collect()
    }

    /// What a probe has to prove before the store is ready again.
    pub(super) fn unproven(&self) -> Option<Unproven> {
        if !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        self.state().commits.unproven()
    }

    /// Starts a probe unless one is in progress. The caller that gets `true` must probe, and report the end.
    pub(super) fn try_begin_probe(&self) -> bool {
        !self.probing.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_probe(&self) {
        self.probing.store(false, Ordering::Release);
    }

    /// Clears what a probe has proven.
    pub(super) fn probed(&self, shown: &Unproven) {
        let mut state = self.state();
        state.commits.probed(shown);
        self.troubled.store(state.is_troubled(), Ordering::Relaxed);
    }

    /// Why the store is not ready, judging by recorded failures.
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        if !self.troubled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let state = self.state();
        let read = state.reads.values().next().map(|(_, why)| why);
        let met = state.met_damage().or_else(|| state.commits.first().or(read).cloned());
        met.map_or(Ok(()), Err)
    }

    /// Recorded damage that is not cleared.
    pub(super) fn damage(&self) -> Option<Unavailable> {
        if !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        self.state().met_damage()
    }

    /// The damaged relations, if they are due for a check; the caller must check them.
    pub(super) fn due_recheck(&self) -> Option<Vec<&'static Table>> {
        if !self.troubled.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        let look = state.look.as_mut().filter(|look| !look.under_way && look.at <= Instant::now())?;
        look.under_way = true;
        Some(state.damaged.values().map(|damage| damage.table).collect())
    }

    /// Records the result of the check: these relations are intact.
    pub(super) fn finish_recheck(&self, whole: &[&'static Table]) {
        let mut state = self.state();
        for table in whole {
            state.damaged.remove(table.name);
        }
        state.look = match (state.damaged.is_empty(), state.look.take()) {
            (true, _) | (_, None) => None,
            (false, Some(look)) => {
                let pause = (look.pause * 2).min(limits::DAMAGE_CHECK_PAUSE_MAX);
                Some(DamageRecheck { pause, at: Instant::now() + pause, under_way: false })
            }
        };
        self.troubled.store(state.is_troubled(), Ordering::Relaxed);
    }
}

impl HealthState {
    fn is_troubled(&self) -> bool {
        !self.commits.is_empty() || !self.reads.is_empty() || !self.damaged.is_empty()
    }

    /// All damage in one message.
    fn met_damage(&self) -> Option<Unavailable> {
        let why = &self.damaged.values().next()?.why;
        let certain = self.damaged.values().all(|damage| damage.certain) || self.damaged.len() == 1;
        Some(located(why, self.damaged.keys().copied(), certain))
    }

    fn damage(&mut self, table: &'static Table, why: &Unavailable, certain: bool) {
        let known = self.damaged.entry(table.name).or_insert_with(|| Damage { table, why: why.clone(), certain });
        known.certain |= certain;
        self.look.get_or_insert_with(|| DamageRecheck {
            pause: limits::DAMAGE_CHECK_PAUSE_FIRST,
            at: Instant::now() + limits::DAMAGE_CHECK_PAUSE_FIRST,
            under_way: false,
        });
    }
}

/// The same damage, with its tables.
fn located(why: &Unavailable, tables: impl Iterator<Item = &'static str>, certain: bool) -> Unavailable {
    let words = if certain { ": " } else { ", in one of: " };
    let tables = tables.collect::<Vec<_>>().join(", ");
    Unavailable::new(why.outage, format!("{}{words}{tables}", why.reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::flow::tables::{RUNS, STEPS};
    use chimera_core::ledger::tables::LEDGER_LANES;
    use chimera_core::record::{Page, Scope};
    use chimera_engine::port::Outage;

    const DONE: Receipt = Receipt { lane: 1, epoch: 1, first_seq: None, head_seq: 0 };

    fn failed(outage: Outage) -> Unavailable {
        Unavailable::new(outage, "it fails")
    }

    fn of(table: &'static Table) -> Select {
        Select::from(table, Scope::System)
    }

    fn page() -> Result<Page, ReadError> {
        Ok(of(&RUNS).page(Vec::new()))
    }

    #[test]
    fn a_failed_commit_is_over_when_one_that_needs_as_much_succeeds_but_damage_is_not() {
        for (outage, over) in
            [(Outage::Transient, true), (Outage::Full, true), (Outage::DiskError, true), (Outage::Damaged, false)]
        {
            let health = Health::default();
            assert!(health.record_commit(Err(failed(outage).into()), &Tx::default()).is_err());
            assert_eq!(health.check().map_err(|why| why.outage), Err(outage));
            assert_eq!(health.damage().is_some(), outage.is_damage());
            health.record_commit(Ok(DONE), &Tx::default()).unwrap();
            assert_eq!(health.check().is_ok(), over, "{outage:?}");
        }
    }

    #[test]
    fn a_failed_read_is_over_when_one_of_the_same_relation_succeeds() {
        let health = Health::default();
        health.read::<Page>(&of(&RUNS), Err(failed(Outage::Transient).into())).unwrap_err();
        health.record_commit(Ok(DONE), &Tx::default()).unwrap();
        health.read(&of(&STEPS), page()).unwrap();
        assert_eq!(health.check(), Err(failed(Outage::Transient)), "commits and other reads prove nothing");
        assert_eq!(health.failed_reads(), [of(&RUNS).take(1)]);
        health.read(&of(&RUNS), page()).unwrap();
        assert_eq!((health.check(), health.failed_reads()), (Ok(()), Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn damage_is_looked_at_now_and_then_and_is_over_when_all_of_it_is_whole() {
        let health = Health::default();
        let named = Unavailable::new(Outage::Damaged, "it fails: runs");
        assert_eq!(health.read::<Page>(&of(&RUNS), Err(failed(Outage::Damaged).into())), Err(named.clone().into()));
        health.read(&of(&RUNS), page()).unwrap();
        assert_eq!(health.check(), Err(named), "another page of it may be whole");
        assert!(health.due_recheck().is_none(), "not at once");
        tokio::time::advance(limits::DAMAGE_CHECK_PAUSE_FIRST).await;
        let tables = health.due_recheck().unwrap();
        assert_eq!(tables, [&RUNS]);
        assert!(health.due_recheck().is_none(), "one looks at a time");
        health.finish_recheck(&[]);
        tokio::time::advance(limits::DAMAGE_CHECK_PAUSE_FIRST).await;
        assert!(health.due_recheck().is_none(), "less and less often");
        tokio::time::advance(limits::DAMAGE_CHECK_PAUSE_FIRST).await;
        assert!(health.due_recheck().is_some());
        health.finish_recheck(&tables);
        assert_eq!(health.check(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_commit_that_meets_damage_names_every_table_it_touched_until_a_look_has_found_it() {
        let health = Health::default();
        let answer = health.record_commit(Err(failed(Outage::Damaged).into()), &Tx::default());
        let words = "it fails, in one of: audit_log_entries, ledger_lanes";
        assert_eq!(answer, Err(Unavailable::new(Outage::Damaged, words).into()));
        tokio::time::advance(limits::DAMAGE_CHECK_PAUSE_FIRST).await;
        health.due_recheck().unwrap();
        health.finish_recheck(&[&LEDGER_LANES]);
        assert_eq!(health.damage().unwrap().reason, "it fails: audit_log_entries");
    }
}
