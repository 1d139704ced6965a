//! Query plans of the embedded store: the cost of a run must not grow with other runs.

use crate::migrate::migrated_sqlite;

/// The tables and indexes that a query visits, in order.
fn plan(query: &str) -> Vec<String> {
    let connection = migrated_sqlite();
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
    let steps = statement.query_map([b"run"], |row| row.get(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

#[test]
fn the_approvals_of_a_run_are_found_by_the_run() {
    for scope in ["", "tenant_id = 'acme' AND "] {
        let query = format!("SELECT * FROM scoped_approvals WHERE {scope}run_id = ?1 ORDER BY approval_request_id");
        let plan = plan(&query);
        assert!(plan[0].contains("idx_approval_details_run"), "{plan:?}");
    }
}

#[test]
fn the_events_of_a_run_are_found_by_their_number() {
    let query = "SELECT * FROM audit_log_entries WHERE tenant_id = 'acme' AND run_id = ?1 AND run_seq > 4 \
                 AND run_seq <= 9 ORDER BY lane, seq";
    let plan = plan(query);
    assert!(plan[0].contains("idx_audit_log_entries_run (run_id=? AND run_seq>? AND run_seq<?)"), "{plan:?}");
}

/// An index that is a prefix of another one costs writes and answers nothing. A unique index is a constraint of its
/// own.
#[test]
fn no_index_begins_another() {
    let connection = migrated_sqlite();
    let indexes = "SELECT t.name, i.name, i.\"unique\", group_concat(c.name || iif(c.desc, ' DESC', ''))
        FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_xinfo(i.name) c
        WHERE t.type = 'table' AND NOT i.partial AND c.key GROUP BY t.name, i.name";
    let mut statement = connection.prepare(indexes).unwrap();
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?, row.get::<_, String>(3)?))
    });
    let indexes: Vec<_> = rows.unwrap().map(Result::unwrap).collect();
    assert!(indexes.iter().any(|(.., columns)| columns == "trace_id"));
    for (table, name, unique, columns) in &indexes {
        let longer = |other: &&(String, String, bool, String)| {
            other.0 == *table && other.1 != *name && format!("{},", other.3).starts_with(&format!("{columns},"))
        };
        let covered = indexes.iter().find(longer).filter(|other| !unique || other.3 == *columns);
        assert!(covered.is_none(), "{name} ({columns}) beside {covered:?}");
    }
}

/// What wakes a parked run, and what the keeper looks for every second, must cost the same with a million parked runs.
#[test]
fn parked_runs_and_work_items_are_found_by_an_index() {
    for (query, index) in [
        // Waking a run: its row, its signals, its steps, its work items.
        ("SELECT * FROM runs WHERE id = ?1 ORDER BY id LIMIT 2", "sqlite_autoindex_runs_1 (id=?)"),
        ("SELECT * FROM run_signals WHERE run_id = ?1 ORDER BY run_id, id LIMIT 101", "PRIMARY KEY (run_id=?)"),
        ("SELECT * FROM steps WHERE run_id = ?1 ORDER BY position, id LIMIT 1001", "idx_steps_run (run_id=?)"),
        ("SELECT * FROM work_items WHERE run_id = ?1 ORDER BY id LIMIT 1001", "idx_work_items_run (run_id=?)"),
        // The keeper: due runs, and expired leases.
        (
            "SELECT id FROM runs WHERE owner_lane IS NULL AND next_deadline <= ?1 ORDER BY next_deadline, id \
             LIMIT 1001",
            "idx_runs_next_deadline (next_deadline<?)",
        ),
        (
            "SELECT * FROM work_items WHERE state = 'claimed' AND lease_until <= ?1 ORDER BY lease_until, id LIMIT \
             1001",
            "idx_work_items_lease (state=? AND lease_until<?)",
        ),
        ("SELECT * FROM runs WHERE owner_lane = ?1 ORDER BY id LIMIT 1001", "(owner_lane=?"),
        // A claim, a repeated claim, a report, and the list.
        (
            "SELECT * FROM work_items WHERE tenant_id = 'acme' AND queue = ?1 AND state = 'queued' AND deadline > 5 \
             ORDER BY priority, id LIMIT 2",
            "idx_work_items_claim (tenant_id=? AND queue=? AND state=?)",
        ),
        (
            "SELECT * FROM work_items WHERE tenant_id = 'acme' AND claim_digest = ?1 AND state = 'claimed' ORDER BY id \
             LIMIT 1001",
            "idx_work_items_claim_digest (tenant_id=? AND claim_digest=? AND state=?)",
        ),
        (
            "SELECT * FROM work_items WHERE tenant_id = 'acme' AND id = ?1 LIMIT 2",
            "sqlite_autoindex_work_items_1 (id=?)",
        ),
        (
            "SELECT * FROM work_items WHERE tenant_id = 'acme' AND state = ?1 ORDER BY id LIMIT 101",
            "idx_work_items_open (tenant_id=? AND state=?)",
        ),
    ] {
        let plan = plan(query);
        assert!(plan[0].contains(index), "{query}: {plan:?}");
        assert!(plan.iter().all(|step| !step.starts_with("SCAN")), "{query}: {plan:?}");
    }
}

#[test]
fn the_execution_records_of_a_run_are_found_by_its_trace() {
    let query =
        "SELECT * FROM scoped_agent_executions WHERE tenant_id = 'acme' AND trace_id = ?1 ORDER BY execution_id";
    let plan = plan(query);
    assert!(plan[0].contains("idx_record_scopes_executions (tenant_id=? AND trace_id=?)"), "{plan:?}");
}

/// Publishing, a run that begins to wait, and what the keeper deletes must not depend on how many events are kept.
#[test]
fn events_and_those_who_wait_for_them_are_found_by_an_index() {
    let channel = "tenant_id = 'acme' AND event_name = ?1 AND event_key = 'k'";
    for (query, index) in [
        (
            format!("SELECT id FROM external_events WHERE {channel} AND expires_at > 5 ORDER BY id LIMIT 101"),
            "idx_external_events_channel (tenant_id=? AND event_name=? AND event_key=?)",
        ),
        (
            format!("SELECT * FROM event_waits WHERE {channel} ORDER BY step_id LIMIT 1001"),
            "idx_event_waits_channel (tenant_id=? AND event_name=? AND event_key=?)",
        ),
        (
            format!("SELECT * FROM event_channels WHERE {channel} LIMIT 2"),
            "sqlite_autoindex_event_channels_1 (tenant_id=? AND event_name=? AND event_key=?)",
        ),
        (
            "SELECT id FROM external_events WHERE expires_at <= ?1 ORDER BY expires_at, id LIMIT 501".to_owned(),
            "idx_external_events_expires_at (expires_at<?)",
        ),
        (
            "SELECT * FROM event_channels WHERE updated_at <= ?1 ORDER BY updated_at, tenant_id, event_name, event_key \
             LIMIT 501"
                .to_owned(),
            "idx_event_channels_updated_at (updated_at<?)",
        ),
    ] {
        let plan = plan(&query);
        assert!(plan[0].contains(index), "{query}: {plan:?}");
        assert!(plan.iter().all(|step| !step.starts_with("SCAN")), "{query}: {plan:?}");
    }
}
