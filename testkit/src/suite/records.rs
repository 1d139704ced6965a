//! The contract of `chimera_engine::port::Records`, one function per statement.
//!
//! Each function uses its own rows, so all can run on one store. They panic on the first violation.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite is a test")]

use crate::build::{self, NOON, entry, run, run_update, signal, step};
use crate::seeded::Seeded;
use crate::suite::{count, pages, unpolled_reads, views};
use chimera_core::access::tables::{APPROVAL_LINKS, ApprovalLinkRow, approval_links};
use chimera_core::flow::tables::{
    APPROVAL_REQUESTS, RUN_SIGNALS, RUNS, RunVersion, SignalBrief, approval_requests, run_signals, runs,
};
use chimera_core::ledger::tables::{
    AUDIT_LOG_ENTRIES, IDEMPOTENCY_RECORDS, LEDGER_LANES, LaneRow, LinkRow, audit_log_entries, idempotency_records,
};
use chimera_core::ledger::{ChainHead, Digest32, extend};
use chimera_core::record::{
    Comparison, Condition, Conflict, Direction, Insert, InvalidTx, Json, Page, Row, RowCount, Scope, Select, Step,
    StoredRow, Tx, Update, Value,
};
use chimera_core::swarm::tables::{PLANS, TASKS, TRENDS, objectives, plans, tasks, trends};
use chimera_engine::port::{CommitError, Random, ReadError, Records};
use futures::future::join_all;
use uuid::Uuid;

/// Runs the whole suite. `seed` keeps the rows of two runs on one database apart.
pub async fn all(store: &dyn Records, seed: u64) {
    let s = Seeded::new(seed);
    a_change_is_atomic(store, &s).await;
    a_conflict_names_what_clashed(store, &s).await;
    a_loser_is_told_of_its_own_loss_and_not_of_what_follows_from_it(store, &s).await;
    one_loser_among_many_fails_alone(store, &s).await;
    changes_of_one_affinity_keep_their_order(store, &s).await;
    the_ordered_part_runs_as_written(store, &s).await;
    every_entry_has_its_place_in_an_unbroken_chain(store, &s).await;
    an_idempotency_record_commits_with_what_it_guards(store, &s).await;
    what_may_be_used_once_is_used_by_one_of_many(store, &s).await;
    every_kind_of_value_comes_back_as_it_went_in(store, &s).await;
    pages_are_complete_bounded_and_ordered(store, &s).await;
    pages::a_page_is_bounded_in_bytes(store, &s).await;
    unpolled_reads::reads_that_nobody_looks_at_hold_up_nobody(store).await;
    count::rows_are_counted_by_a_value_up_to_a_bound(store, &s).await;
    a_tenant_sees_only_its_own_rows(store, &s).await;
    what_no_store_can_hold_is_refused(store, &s).await;
    views::a_scoped_row_is_shown_whole_and_to_its_tenant_only(store, &s).await;
    it_says_that_it_is_ready(store).await;
}

async fn one(store: &dyn Records, select: Select) -> Option<Row> {
    store.read(select).await.expect("a read").rows.pop()
}

async fn run_row(store: &dyn Records, id: Uuid) -> Option<Row> {
    one(store, Select::from(&RUNS, Scope::System).with(runs::id, id)).await
}

async fn commit(store: &dyn Records, tx: Tx) -> Result<(), CommitError> {
    store.commit(tx).await.map(drop)
}

/// A `Tx` commits whole, with its ledger entries, or not at all.
pub async fn a_change_is_atomic(store: &dyn Records, s: &Seeded) {
    let (kept, lost) = (run(s), run(s));
    commit(store, kept.tx().unwrap()).await.expect("a fresh row commits");
    let subject = s.opaque_id();
    let mut sealed = entry(s, "acme", "atomic").unwrap();
    sealed.entry.subject_id = subject.clone();
    let both =
        Tx { inserts: vec![lost.insert().unwrap(), kept.insert().unwrap()], entries: vec![sealed], ..Tx::default() };
    assert!(matches!(commit(store, both).await, Err(CommitError::Conflict(Conflict::Exists(_)))));
    assert!(run_row(store, lost.id).await.is_none(), "part of a rejected transaction was kept");
    let entries = Select::from(&AUDIT_LOG_ENTRIES, Scope::System).with(audit_log_entries::subject_id, subject.as_str());
    assert!(one(store, entries).await.is_none(), "the entry of a rejected transaction was kept");
}

/// A conflict says which row or key, and whether it is taken, changed or missing.
pub async fn a_conflict_names_what_clashed(store: &dyn Records, s: &Seeded) {
    let key = s.opaque_id();
    let first = run(s).keyed(&key);
    commit(store, first.tx().unwrap()).await.expect("a fresh row commits");

    let Err(CommitError::Conflict(Conflict::Exists(by_id))) = commit(store, first.tx().unwrap()).await else {
        panic!("the same row twice")
    };
    assert_eq!((by_id.table, by_id.columns, by_id.values), ("runs", RUNS.key, vec![first.id.into()]));

    let Err(CommitError::Conflict(Conflict::Exists(by_key))) = commit(store, run(s).keyed(&key).tx().unwrap()).await
    else {
        panic!("the same key twice")
    };
    assert_eq!((by_key.columns, by_key.values), ([runs::idempotency_key].as_slice(), vec![key.into()]));

    let stale = Tx { updates: vec![run_update(first.id, 7, "running").unwrap()], ..Tx::default() };
    let stale = commit(store, stale).await;
    assert!(matches!(stale, Err(CommitError::Conflict(Conflict::Stale(k))) if k.values == [first.id.into()]));

    let nobody = s.row_id(NOON);
    let missing = Tx { updates: vec![run_update(nobody, 1, "running").unwrap()], ..Tx::default() };
    let missing = commit(store, missing).await;
    assert!(matches!(missing, Err(CommitError::Conflict(Conflict::Missing(k))) if k.values == [nobody.into()]));
}

/// A rejected row is also missing for its children. The conflict names the cause, not the missing parent.
pub async fn a_loser_is_told_of_its_own_loss_and_not_of_what_follows_from_it(store: &dyn Records, s: &Seeded) {
    let key = s.opaque_id();
    let with_step = |row: &build::RunBuilder| {
        let inserts = vec![row.insert().unwrap(), step(s, row.id).unwrap()];
        Tx { inserts, entries: vec![entry(s, "acme", "begun").unwrap()], ..Tx::default() }
    };
    commit(store, with_step(&run(s).keyed(&key))).await.expect("a fresh row and its child commit");
    let (second, beside) = (run(s).keyed(&key), run(s));
    let answers = join_all([with_step(&beside), with_step(&second)].map(|tx| commit(store, tx))).await;
    assert_eq!(answers[0], Ok(()), "the conflict was attributed to another transaction");
    let Err(CommitError::Conflict(Conflict::Exists(taken))) = &answers[1] else { panic!("{:?}", answers[1]) };
    assert_eq!((taken.columns, &taken.values), ([runs::idempotency_key].as_slice(), &vec![key.into()]));
    assert!(run_row(store, second.id).await.is_none() && run_row(store, beside.id).await.is_some());
}

/// A `Tx` that conflicts does not affect others in its batch.
pub async fn one_loser_among_many_fails_alone(store: &dyn Records, s: &Seeded) {
    let taken = run(s);
    commit(store, taken.tx().unwrap()).await.expect("a fresh row commits");
    let good: Vec<_> = (0..63).map(|_| run(s)).collect();
    let mut txs: Vec<Tx> = good.iter().map(|r| r.tx().unwrap()).collect();
    txs.insert(31, taken.tx().unwrap());
    let answers = join_all(txs.into_iter().map(|tx| store.commit(tx))).await;
    let failed: Vec<usize> = answers.iter().enumerate().filter(|(_, a)| a.is_err()).map(|(n, _)| n).collect();
    assert_eq!(failed, [31]);
    for row in good {
        assert!(run_row(store, row.id).await.is_some(), "an acknowledged row is gone");
    }
}

/// `Tx`s of one affinity commit in the order in which they were submitted.
pub async fn changes_of_one_affinity_keep_their_order(store: &dyn Records, s: &Seeded) {
    let row = run(s);
    commit(store, row.tx().unwrap()).await.expect("a fresh row commits");
    let change = |version| Tx { updates: vec![run_update(row.id, version, "running").unwrap()], ..Tx::default() };
    let answers = join_all((1..=20).map(|version| store.commit(change(version)))).await;
    assert!(answers.iter().all(Result::is_ok), "an update overtook another: {answers:?}");
    assert_eq!(version(run_row(store, row.id).await.expect("the row")), 21);
}

/// Steps run in order after the bulk part, each with the row count it must touch.
pub async fn the_ordered_part_runs_as_written(store: &dyn Records, s: &Seeded) {
    let row = run(s);
    let is = |column, value| Condition { column, compare: Comparison::Is, value };
    let mine = || vec![is(run_signals::run_id, row.id.into())];
    let steps = |deleted| {
        vec![
            Step::Lock { table: &RUNS, conditions: vec![is(runs::id, row.id.into())], rows: RowCount::Exactly(1) },
            Step::Update {
                table: &RUN_SIGNALS,
                conditions: mine(),
                set: vec![(RUN_SIGNALS.position(run_signals::kind).unwrap(), "seen".into())],
                rows: RowCount::AtMost(5),
            },
            Step::Delete {
                table: &RUN_SIGNALS,
                conditions: [mine(), vec![is(run_signals::kind, "seen".into())]].concat(),
                rows: RowCount::Exactly(deleted),
            },
            Step::Insert(signal(s, row.id, "after").unwrap()),
        ]
    };
    let bulk = || vec![signal(s, row.id, "a").unwrap(), signal(s, row.id, "b").unwrap()];
    commit(store, row.tx().unwrap()).await.expect("a fresh row commits");

    let wrong = Tx { inserts: bulk(), steps: steps(3), ..Tx::default() };
    let expected = Conflict::Rows { step: 2, table: "run_signals", touched: 2 };
    assert_eq!(commit(store, wrong).await, Err(CommitError::Conflict(expected)));

    let right = Tx { inserts: bulk(), steps: steps(2), ..Tx::default() };
    commit(store, right).await.expect("counts that hold commit");
    let left = SignalBrief::select(Scope::System).with(run_signals::run_id, row.id);
    let left = store.read(left).await.expect("a read");
    assert_eq!(decoded::<SignalBrief>(left.rows).map(|row| row.kind).collect::<Vec<_>>(), ["after"]);
}

/// Entries are numbered without gaps, and each hash follows from the previous one.
pub async fn every_entry_has_its_place_in_an_unbroken_chain(store: &dyn Records, s: &Seeded) {
    let tx = |n: usize| Tx { entries: (0..n).map(|_| entry(s, "acme", "chained").unwrap()).collect(), ..Tx::default() };
    let answers = join_all([3, 1, 2].map(|n| store.commit(tx(n)))).await;
    let receipts: Vec<_> = answers.into_iter().map(|answer| answer.expect("entries commit")).collect();
    for (receipt, n) in receipts.iter().zip([3, 1, 2]) {
        let first = receipt.first_seq.expect("a number");
        let mut query =
            Select::from(&AUDIT_LOG_ENTRIES, Scope::System).with(audit_log_entries::lane, receipt.lane).take(n);
        query = query.filter(audit_log_entries::seq, Comparison::AtLeast, first);
        assert_eq!(store.read(query).await.expect("a read").rows.len(), n, "entries are missing");
    }
    verify_chains(store).await;
}

fn decoded<R: StoredRow>(rows: Vec<Row>) -> impl Iterator<Item = R> {
    rows.into_iter().map(|row| R::decode(row).expect("a row that can be read"))
}

fn version(run: Row) -> i64 {
    RunVersion::decode(run).expect("a row that can be read").state_version
}

/// Walks every lane from its first entry to the head in its row.
pub async fn verify_chains(store: &dyn Records) -> usize {
    let lanes = store.read(Select::from(&LEDGER_LANES, Scope::System).take(1_000)).await.map_or(Vec::new(), |p| p.rows);
    let mut heads: std::collections::BTreeMap<i64, ChainHead> = std::collections::BTreeMap::new();
    let mut query = Select::from(&AUDIT_LOG_ENTRIES, Scope::System).take(1_000);
    let mut entries = 0;
    loop {
        let page = store.read(query.clone()).await.expect("a read");
        for row in decoded::<LinkRow>(page.rows) {
            let lane = row.lane;
            let head = heads.entry(lane).or_insert(ChainHead::EMPTY);
            let link = extend(lane, *head, row.content_digest);
            assert_eq!((row.seq, row.prev_hash), (link.seq, link.prev_hash), "a gap in lane {lane}");
            assert_eq!(row.hash, link.hash, "a broken link in lane {lane}");
            *head = link.head();
            entries += 1;
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    for row in decoded::<LaneRow>(lanes) {
        let head = heads.get(&row.lane).copied().unwrap_or(ChainHead::EMPTY);
        assert_eq!(row.head_seq, head.seq, "the lane's row and its entries disagree");
        assert_eq!(row.head_hash, head.hash);
    }
    entries
}

/// The record and the change commit together. The second of two requests conflicts and changes nothing.
pub async fn an_idempotency_record_commits_with_what_it_guards(store: &dyn Records, s: &Seeded) {
    let key = s.opaque_id();
    let record = || {
        let cells = vec![
            (idempotency_records::owner, "acme/user_1".into()),
            (idempotency_records::key, key.as_str().into()),
            (idempotency_records::fingerprint, vec![7_u8; 32].into()),
            (idempotency_records::state, "in_flight".into()),
            (idempotency_records::created_at, NOON.into()),
            (idempotency_records::expires_at, NOON.plus_seconds(60).into()),
            (idempotency_records::state_version, Value::Int(1)),
        ];
        Insert::new(&IDEMPOTENCY_RECORDS, cells).unwrap()
    };
    let runs: Vec<_> = (0..8).map(|_| run(s)).collect();
    let tx = |row: &build::RunBuilder| Tx { inserts: vec![record(), row.insert().unwrap()], ..Tx::default() };
    let answers = join_all(runs.iter().map(|row| store.commit(tx(row)))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "two requests used one key");
    for (row, answer) in runs.iter().zip(answers) {
        assert_eq!(run_row(store, row.id).await.is_some(), answer.is_ok());
    }
}

/// Of many concurrent updates that expect an empty column, exactly one succeeds, also with a binary key and
/// through different lanes.
pub async fn what_may_be_used_once_is_used_by_one_of_many(store: &dyn Records, s: &Seeded) {
    let mut digest = [0; 32];
    s.fill(&mut digest);
    let key = || Value::Bytes(digest.to_vec());
    let cells = vec![
        (approval_links::token_digest, key()),
        (approval_links::tenant_id, "acme".into()),
        (approval_links::run_id, s.row_id(NOON).into()),
        (approval_links::approval_id, s.row_id(NOON).into()),
        (approval_links::actor, "user_ann".into()),
        (approval_links::expires_at, NOON.into()),
    ];
    let row = Insert::new(&APPROVAL_LINKS, cells).unwrap();
    commit(store, Tx { inserts: vec![row], ..Tx::default() }).await.expect("a fresh row commits");
    let uses = (0..8).map(|affinity| {
        let unused = vec![(approval_links::used_at, Value::Null)];
        let used =
            Update::new(&APPROVAL_LINKS, vec![key()], unused, vec![(approval_links::used_at, NOON.into())]).unwrap();
        commit(store, Tx { updates: vec![used], affinity, ..Tx::default() })
    });
    let used = join_all(uses).await;
    assert_eq!(used.iter().filter(|used| used.is_ok()).count(), 1);
    assert!(
        used.iter()
            .filter_map(|used| used.as_ref().err())
            .all(|error| matches!(error, CommitError::Conflict(Conflict::Stale(_))))
    );
    let found = one(
        store,
        Select::from(&APPROVAL_LINKS, Scope::Tenant("acme".into())).with(approval_links::token_digest, key()),
    )
    .await;
    let found = ApprovalLinkRow::decode(found.expect("the row")).expect("a row that can be read");
    assert_eq!(found.used_at, Some(NOON));
}

/// Values keep their type and content, including null and unusual characters.
pub async fn every_kind_of_value_comes_back_as_it_went_in(store: &dyn Records, s: &Seeded) {
    let (objective, plan, task) = (s.row_id(NOON), s.row_id(NOON), s.row_id(NOON));
    let doc = |text: &str| Value::Json(Json::parse(text).unwrap());
    let odd = "é \u{1F600} ' \" \\ { } , NULL \n";
    let rows = vec![
        Insert::new(
            &chimera_core::swarm::tables::OBJECTIVES,
            vec![
                (objectives::objective_id, objective.into()),
                (objectives::objective_type, "content_creation".into()),
                (objectives::objective_data, doc(r#"{"a":[1,2.5,"\u00e9"],"b":null}"#)),
                (objectives::status, "pending".into()),
                (objectives::created_at, NOON.into()),
                (objectives::updated_at, NOON.into()),
                (objectives::spec_version, "1.0.0".into()),
            ],
        ),
        Insert::new(
            &PLANS,
            vec![
                (plans::plan_id, plan.into()),
                (plans::objective_id, objective.into()),
                (plans::plan_data, doc("{}")),
                (plans::status, "pending".into()),
                (plans::created_at, NOON.into()),
                (plans::updated_at, NOON.into()),
                (plans::spec_version, "1.0.0".into()),
            ],
        ),
        Insert::new(
            &TASKS,
            vec![
                (tasks::task_id, task.into()),
                (tasks::plan_id, plan.into()),
                (tasks::task_type, "trend_fetch".into()),
                (tasks::required_skill, odd.into()),
                (tasks::input_parameters, doc(r#"{"deep":{"deeper":[[]]}}"#)),
                (tasks::success_criteria, doc("[]")),
                (tasks::depends_on, vec![objective, plan].into()),
                (tasks::status, "pending".into()),
                (tasks::priority, Value::Int(1)),
                (tasks::created_at, NOON.into()),
            ],
        ),
        Insert::new(
            &TRENDS,
            vec![
                (trends::trend_id, task.into()),
                (trends::title, odd.into()),
                (trends::source, "manual".into()),
                (trends::relevance_score, Value::Decimal("0.85".to_owned())),
                (trends::observed_at, chimera_core::time::Timestamp::from_micros(-1).into()),
                (trends::created_at, NOON.into()),
                (trends::updated_at, NOON.into()),
            ],
        ),
        Insert::new(
            &APPROVAL_REQUESTS,
            vec![
                (approval_requests::approval_request_id, task.into()),
                (approval_requests::action_type, "content_publication".into()),
                (approval_requests::action_data, doc("0.1")),
                (approval_requests::requester_agent_id, plan.into()),
                (approval_requests::workflow_type, "single".into()),
                (approval_requests::status, "pending".into()),
                (approval_requests::policy_references, vec![odd.to_owned(), String::new()].into()),
                (approval_requests::created_at, NOON.into()),
            ],
        ),
    ];
    let rows: Vec<Insert> = rows.into_iter().map(Result::unwrap).collect();
    commit(store, Tx { inserts: rows.clone(), ..Tx::default() }).await.expect("every kind commits");
    for insert in rows {
        let id = insert.value(insert.table.key[0]).clone();
        let row = one(store, Select::from(insert.table, Scope::System).with(insert.table.key[0], id)).await.unwrap();
        for column in insert.table.columns {
            assert_eq!(row.get(column.name), insert.value(column.name), "{}.{}", insert.table.name, column.name);
        }
    }
}

/// Pages have no gaps or repeats, in either direction.
pub async fn pages_are_complete_bounded_and_ordered(store: &dyn Records, s: &Seeded) {
    let owner = run(s);
    let kinds = ["a", "b", "c"];
    let inserts: Vec<_> = (0..25).map(|n| signal(s, owner.id, kinds[n % 3]).unwrap()).collect();
    let mut ids: Vec<Uuid> = inserts.iter().map(|insert| insert.value(run_signals::id).as_uuid().unwrap()).collect();
    ids.sort_unstable();
    commit(store, Tx { inserts, ..Tx::default() }).await.expect("signals commit");
    let base = Select::from(&RUN_SIGNALS, Scope::System).with(run_signals::run_id, owner.id);

    for direction in [Direction::Ascending, Direction::Descending] {
        let mut seen = Vec::new();
        let mut query = base.clone().by(&[], direction).take(7);
        loop {
            let Page { rows, next } = store.read(query.clone()).await.expect("a page");
            assert!(rows.len() <= 7, "a page is too long");
            seen.extend(decoded::<SignalBrief>(rows).map(|row| row.id));
            let Some(next) = next else { break };
            query = query.continue_at(&next.encode()).expect("its own cursor");
        }
        if direction == Direction::Descending {
            seen.reverse();
        }
        assert_eq!(seen, ids);
    }

    let by_kind = base.clone().by(&[run_signals::kind], Direction::Ascending).take(1_000);
    let listed: Vec<_> =
        decoded::<SignalBrief>(store.read(by_kind).await.expect("a page").rows).map(|row| row.kind).collect();
    assert!(listed.is_sorted() && listed.len() == 25);
    let not_b = base.clone().filter(run_signals::kind, Comparison::IsNot, "b").take(100);
    assert_eq!(store.read(not_b).await.expect("a page").rows.len(), 17);
    let some =
        |kinds: &[&str]| base.clone().one_of(run_signals::kind, kinds.iter().map(|kind| (*kind).to_owned()).collect());
    assert_eq!(store.read(some(&["b", "x"]).take(100)).await.expect("a page").rows.len(), 8);
    assert!(store.read(some(&[])).await.expect("a page").rows.is_empty());
    let late = base.filter(run_signals::created_at, Comparison::Above, NOON);
    assert!(store.read(late).await.expect("a page").rows.is_empty());

    let unknown = Select::from(&RUNS, Scope::System).with("no_such_column", 1);
    assert!(matches!(store.read(unknown).await, Err(ReadError::Invalid { table: "runs", .. })));
}

/// Every query is restricted to its tenant.
pub async fn a_tenant_sees_only_its_own_rows(store: &dyn Records, s: &Seeded) {
    let (ours, theirs) = (s.opaque_id(), s.opaque_id());
    let (mine, other) = (run(s).of(&ours), run(s).of(&theirs));
    let tx = Tx { inserts: vec![mine.insert().unwrap(), other.insert().unwrap()], ..Tx::default() };
    commit(store, tx).await.expect("two tenants commit");
    let seen = store.read(Select::from(&RUNS, Scope::Tenant(ours.clone()))).await.expect("a page").rows;
    assert_eq!(decoded::<RunVersion>(seen).map(|row| row.id).collect::<Vec<_>>(), [mine.id]);
    let by_id = Select::from(&RUNS, Scope::Tenant(ours.clone())).with(runs::id, other.id);
    assert!(one(store, by_id).await.is_none(), "another tenant's row by its id");
    let untenanted = Select::from(&IDEMPOTENCY_RECORDS, Scope::Tenant(ours));
    assert!(matches!(store.read(untenanted).await, Err(ReadError::Invalid { .. })));
}

/// Invalid values are refused before anything is written, and the error names the column.
pub async fn what_no_store_can_hold_is_refused(store: &dyn Records, s: &Seeded) {
    let row = run(s);
    let with = |column: &'static str, value: Value| {
        let mut insert = row.insert().unwrap();
        let at = RUNS.position(column).unwrap();
        insert.cells.retain(|(position, _)| *position != at);
        insert.cells.push((at, value));
        insert.cells.sort_by_key(|(position, _)| *position);
        Tx { inserts: vec![insert], ..Tx::default() }
    };
    let refused = |answer: Result<(), CommitError>| match answer {
        Err(CommitError::Invalid(why)) => why,
        other => panic!("not refused: {other:?}"),
    };
    let (table, column) = (RUNS.name, runs::status);
    assert_eq!(refused(commit(store, with(column, "a\0b".into())).await), InvalidTx::Nul { table, column });
    assert_eq!(refused(commit(store, with(column, Value::Int(1))).await), InvalidTx::WrongType { table, column });
    assert_eq!(refused(commit(store, with(column, Value::Null)).await), InvalidTx::MissingValue { table, column });
    let (table, column) = (RUNS.name, runs::priority);
    assert_eq!(refused(commit(store, with(column, Value::Int(1 << 40))).await), InvalidTx::WrongType { table, column });
    let twice = Tx {
        inserts: vec![row.insert().unwrap()],
        updates: vec![Update::versioned(&RUNS, vec![row.id.into()], 1, vec![]).unwrap()],
        ..Tx::default()
    };
    assert_eq!(refused(commit(store, twice).await), InvalidTx::DuplicateRow { table: "runs" });
    let unchained = entry(s, "acme", "unchained").unwrap().row(1, &extend(1, ChainHead::EMPTY, Digest32::ZERO));
    let unchained = Insert { table: &AUDIT_LOG_ENTRIES, cells: unchained.cells.into_iter().enumerate().collect() };
    let unchained = Tx { inserts: vec![unchained], ..Tx::default() };
    let reserved = InvalidTx::Reserved { table: "audit_log_entries" };
    assert_eq!(refused(commit(store, unchained).await), reserved, "an entry that bypasses the committer");
    let unlocked = Step::Delete { table: &LEDGER_LANES, conditions: vec![], rows: RowCount::AtMost(9) };
    let reserved = InvalidTx::Reserved { table: "ledger_lanes" };
    assert_eq!(refused(commit(store, Tx { steps: vec![unlocked], ..Tx::default() }).await), reserved);
    assert!(run_row(store, row.id).await.is_none());
}

/// A working store is ready.
pub async fn it_says_that_it_is_ready(store: &dyn Records) {
    assert_eq!(store.ready().await, Ok(()));
}
