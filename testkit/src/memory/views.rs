//! The views: rows of one table joined with their scope, as the migrations define them.

use super::tables::Tables;
use chimera_core::record::{Row, Table, Value};

/// The rows of a view; none for a table.
pub(super) fn rows(tables: &Tables, view: &'static Table) -> Option<Vec<Row>> {
    match view.name {
        "scoped_approvals" => Some(approvals(tables, view)),
        "swarm_decisions_in_force" => Some(in_force(tables, view)),
        name => Some(scoped(tables, view, name.strip_prefix("scoped_")?)),
    }
}

/// Each row of `base` joined with its scope. A row without a scope is not visible.
fn scoped(tables: &Tables, view: &'static Table, base: &str) -> Vec<Row> {
    let kind = base.trim_end_matches('s');
    let of = |row: &Row| {
        let same = |scope: &&Row| {
            scope.get("record_kind").as_text() == Some(kind) && scope.get("record_id") == row.get(view.key[0])
        };
        let scope = tables.stored("record_scopes").find(same)?;
        let columns = ["tenant_id", "campaign_id", "task_id", "trace_id"];
        let cells = row.cells.iter().chain(columns.map(|column| scope.get(column)));
        Some(Row { table: view, cells: cells.cloned().collect() })
    };
    tables.stored(base).filter_map(of).collect()
}

fn approvals(tables: &Tables, view: &'static Table) -> Vec<Row> {
    let of = |mut row: Row| {
        let same = |details: &&Row| ["approval_request_id", "tenant_id"].iter().all(|c| details.get(c) == row.get(c));
        let details = tables.stored("approval_details").find(same)?;
        row.cells.extend(details.cells.iter().skip(2).cloned());
        Some(row)
    };
    scoped(tables, view, "approval_requests").into_iter().filter_map(of).collect()
}

fn in_force(tables: &Tables, view: &'static Table) -> Vec<Row> {
    let decisions = || tables.stored("swarm_judge_decisions");
    let overruled = |row: &Row| {
        decisions().any(|later| {
            ["tenant_id", "worker_result_id"].iter().all(|column| later.get(column) == row.get(column))
                && *later.get("supersedes_round") != Value::Null
                && later.get("supersedes_round") == row.get("round")
        })
    };
    let kept = decisions().filter(|row| !overruled(row));
    kept.map(|row| Row { table: view, cells: row.cells.clone() }).collect()
}
