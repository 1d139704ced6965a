//! Where the embedded store begins to look: what a run costs must not grow with everybody else's.

use chimera_storage::migrate;
use rusqlite::Connection;

/// The places that a query visits, in their order.
fn plan(query: &str) -> Vec<String> {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::sqlite(&mut connection).unwrap();
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
