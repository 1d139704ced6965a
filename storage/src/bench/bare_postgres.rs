//! The upper bound on PostgreSQL: the same multi-row statements, pipelined, one connection per lane.

use super::workload::{BareLoad, BenchError, PreparedBatches, Workload};
use crate::records::postgres::{cells, connect::Server};
use cells::PgColumn;
use chimera_core::ledger::tables::AUDIT_LOG_ENTRIES;
use chimera_core::ledger::{ChainHead, ChainLink};
use chimera_core::record::{Insert, Row, Table, Value};
use futures::future::{join_all, try_join_all};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

const UPDATE: &str = "UPDATE runs AS t SET status = v.s, state_version = v.n, run_seq = v.q \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::uuid[], $5::bigint[]) AS v(s, n, q, id, old) \
     WHERE t.id = v.id AND t.state_version = v.old";
const ADVANCE: &str = "UPDATE ledger_lanes SET head_seq = $2, head_hash = $3, lease_until = now() + interval '15 s' \
     WHERE lane = $1";
const ADD_LANE: &str = "INSERT INTO ledger_lanes (lane, epoch, head_seq, head_hash, lease_until) \
     VALUES ($1, 1, 0, decode(repeat('00', 32), 'hex'), now() + interval '1 hour') ON CONFLICT DO NOTHING";

/// Commits prepared steps on each of `lanes` connections. `start` is called when the work begins.
pub async fn bare_postgres(
    url: &str,
    workload: &Workload,
    lanes: usize,
    load: BareLoad,
    start: impl FnOnce(),
) -> Result<usize, BenchError> {
    let server = Server::parse(url)?;
    let mut sessions = Vec::new();
    for lane in 0..lanes {
        // Far from the lane numbers that the store assigns, and distinct for each batch size.
        let lane = i64::try_from(load.batch * 1_000_000 + lane).unwrap_or_default();
        let client = server.connect_lane().await.map_err(crate::records::OpenError::Unavailable)?;
        let prepared = PreparedBatches::new(workload, lane, load)?;
        client.execute(ADD_LANE, &[&lane]).await?;
        let runs: Vec<&Insert> = prepared.runs.iter().map(|tx| &tx.inserts[0]).collect();
        let text = client.prepare(&text(runs[0].table, &positions(runs[0]))).await?;
        let params = columns(&runs);
        client.execute(&text, &borrowed(&params)).await?;
        sessions.push((lane, client, prepared));
    }
    start();
    try_join_all(sessions.iter().map(|(lane, client, prepared)| commit_all(*lane, client, prepared))).await?;
    Ok(lanes * load.batch * load.batches)
}

async fn commit_all(lane: i64, client: &Client, prepared: &PreparedBatches) -> Result<(), BenchError> {
    let Some(sample) = prepared.batches.first().and_then(|(steps, _)| steps.first()) else { return Ok(()) };
    let mut rows = vec![client.prepare(UPDATE).await?];
    for insert in &sample.inserts {
        rows.push(client.prepare(&text(insert.table, &positions(insert))).await?);
    }
    let all: Vec<usize> = (0..AUDIT_LOG_ENTRIES.columns.len()).collect();
    rows.push(client.prepare(&text(&AUDIT_LOG_ENTRIES, &all)).await?);
    let statements = LaneStatements { lane, rows, advance: client.prepare(ADVANCE).await? };
    for (steps, links) in &prepared.batches {
        let rows: Vec<Row> = steps.iter().zip(links).map(|(tx, link)| tx.entries[0].row(lane, link)).collect();
        let updates = |n: usize| match n {
            0..3 => PgColumn(steps.iter().map(|tx| &tx.updates[0].set[n].1).collect()),
            3 => PgColumn(steps.iter().map(|tx| &tx.updates[0].key[0]).collect()),
            _ => PgColumn(steps.iter().map(|tx| &tx.updates[0].expect[0].1).collect()),
        };
        let mut params: Vec<Vec<PgColumn<'_>>> = vec![(0..5).map(updates).collect()];
        for n in 0..sample.inserts.len() {
            params.push(columns(&steps.iter().map(|tx| &tx.inserts[n]).collect::<Vec<_>>()));
        }
        params.push(all.iter().map(|at| PgColumn(rows.iter().map(|row| &row.cells[*at]).collect())).collect());
        let Some(head) = links.last().map(ChainLink::head) else { continue };
        flight(client, &statements, &params, head).await?;
    }
    Ok(())
}

/// The prepared statements of one lane.
struct LaneStatements {
    lane: i64,
    /// Those that write the rows of a batch, in this order.
    rows: Vec<Statement>,
    advance: Statement,
}

async fn flight(
    client: &Client,
    statements: &LaneStatements,
    params: &[Vec<PgColumn<'_>>],
    head: ChainHead,
) -> Result<(), BenchError> {
    let borrowed: Vec<_> = params.iter().map(|params| borrowed(params)).collect();
    let hash = head.hash.0.as_slice();
    let place: [&(dyn ToSql + Sync); 3] = [&statements.lane, &head.seq, &hash];
    let begin = client.batch_execute("BEGIN");
    let advanced = client.execute(&statements.advance, &place);
    let work = join_all(statements.rows.iter().zip(&borrowed).map(|(text, params)| client.execute(text, params)));
    let (begun, advanced, answers) = tokio::join!(biased; begin, advanced, work);
    begun?;
    advanced?;
    answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(client.batch_execute("COMMIT").await?)
}

fn positions(insert: &Insert) -> Vec<usize> {
    insert.cells.iter().map(|(at, _)| *at).collect()
}

fn columns<'a>(rows: &[&'a Insert]) -> Vec<PgColumn<'a>> {
    let column = |n: usize| rows.iter().map(|row| &row.cells[n].1).collect::<Vec<&Value>>();
    (0..rows[0].cells.len()).map(|n| PgColumn(column(n))).collect()
}

fn borrowed<'a>(params: &'a [PgColumn<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    params.iter().map(|param| param as &(dyn ToSql + Sync)).collect()
}

fn text(table: &Table, positions: &[usize]) -> String {
    let columns: Vec<_> = positions.iter().map(|at| &table.columns[*at]).collect();
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let arrays = columns.iter().enumerate().map(|(n, c)| format!("${}::{}", n + 1, cells::array_type(c.kind)));
    let arrays: Vec<_> = arrays.collect();
    format!("INSERT INTO {} ({}) SELECT * FROM unnest({})", table.name, names.join(", "), arrays.join(", "))
}
