//! Claims, settles and releases a lane.

use super::super::hold::head;
use super::failure::{left_out, unavailable};
use chimera_core::ledger::tables::LEDGER_LANES;
use chimera_core::limits;
use chimera_engine::commit::{Batch, Lane, Resolution};
use chimera_engine::port::Unavailable;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

const TAKE_FREE: &str = "UPDATE ledger_lanes SET epoch = epoch + 1, node = $1, \
     lease_until = now() + make_interval(secs => $2) \
     WHERE lane = (SELECT lane FROM ledger_lanes WHERE lease_until < now() \
                   ORDER BY lane LIMIT 1 FOR UPDATE SKIP LOCKED) \
     RETURNING lane, epoch, head_seq, head_hash";

const ADD: &str = "INSERT INTO ledger_lanes (lane, epoch, head_seq, head_hash, lease_until, node) \
     SELECT coalesce(max(lane), 0) + 1, 1, 0, decode(repeat('00', 32), 'hex'), \
            now() + make_interval(secs => $2), $1 FROM ledger_lanes HAVING count(*) < $3 \
     ON CONFLICT DO NOTHING RETURNING lane, epoch, head_seq, head_hash";

const TAKE_ANEW: &str = "UPDATE ledger_lanes SET epoch = epoch + 1, lease_until = now() + make_interval(secs => $3) \
     WHERE lane = $1 AND epoch = $2 RETURNING lane, epoch, head_seq, head_hash, last_batch_id";

const EPOCH: &str = "SELECT epoch FROM ledger_lanes WHERE lane = $1";

const RELEASE: &str = "UPDATE ledger_lanes SET lease_until = '-infinity' WHERE lane = $1 AND epoch = $2";

/// Claims the lane that this task had before if nobody took it over, else one with an expired lease, else adds one.
pub(super) async fn claim(
    client: &Client,
    node: &str,
    lease_seconds: f64,
    mine: Option<Lane>,
) -> Result<Lane, Unavailable> {
    if let Some(mine) = mine
        && let Some(row) = reclaim(client, mine, lease_seconds).await?
    {
        return lane(&row);
    }
    let lanes_max = i64::try_from(limits::LANES_MAX).unwrap_or(i64::MAX);
    for _ in 0..limits::LANE_ADD_TRIES_MAX {
        let free = client.query_opt(TAKE_FREE, &[&node, &lease_seconds]).await.map_err(|e| unavailable(&e))?;
        if let Some(row) = free {
            return lane(&row);
        }
        let added = client.query_opt(ADD, &[&node, &lease_seconds, &lanes_max]).await.map_err(|e| unavailable(&e))?;
        if let Some(row) = added {
            return lane(&row);
        }
        // Another node added the same number at the same time, or the maximum is reached.
    }
    Err(super::connect::passing("every lane is taken; one becomes free when a lease expires"))
}

/// Claims a lane again if nobody took it over. If its epoch is unchanged, the update was silently dropped.
async fn reclaim(client: &Client, mine: Lane, lease_seconds: f64) -> Result<Option<Row>, Unavailable> {
    let taken = client.query_opt(TAKE_ANEW, &[&mine.id, &mine.epoch, &lease_seconds]).await;
    let taken = taken.map_err(|e| unavailable(&e))?;
    let epoch: Option<i64> = match &taken {
        Some(row) => Some(row.get(1)),
        None => client.query_opt(EPOCH, &[&mine.id]).await.map_err(|e| unavailable(&e))?.map(|row| row.get(0)),
    };
    if epoch == Some(mine.epoch) { Err(left_out(LEDGER_LANES.name)) } else { Ok(taken) }
}

/// Claims the batch's lane again and checks whether the batch is in it. Waits for the old transaction to end, because
/// both lock the lane's row.
pub(super) async fn settle(client: &Client, batch: &Batch, lease_seconds: f64) -> Result<Resolution, Unavailable> {
    let Some(row) = reclaim(client, batch.lane, lease_seconds).await? else {
        return Ok(Resolution::Fenced { durable: durable(client, batch).await? });
    };
    let last: Option<Uuid> = row.get(4);
    let lane = lane(&row)?;
    Ok(if last == Some(batch.id) { Resolution::Committed(lane) } else { Resolution::NotCommitted(lane) })
}

/// Whether the ledger holds the batch's first entry; a batch without entries leaves no trace.
async fn durable(client: &Client, batch: &Batch) -> Result<Option<bool>, Unavailable> {
    let (links, _) = batch.chain(|_| true);
    let Some(first) = links.first() else { return Ok(None) };
    let text = "SELECT 1 FROM audit_log_entries WHERE lane = $1 AND seq = $2 AND hash = $3";
    let hash = first.hash.0.as_slice();
    let found = client.query_opt(text, &[&batch.lane.id, &first.seq, &hash]).await;
    Ok(Some(found.map_err(|e| unavailable(&e))?.is_some()))
}

/// Ends the lease now, so that another node need not wait for it.
pub(super) async fn release(client: &Client, lane: Lane) {
    // The process is stopping: a lease that could not be released expires by itself.
    let _ = client.execute(RELEASE, &[&lane.id, &lane.epoch]).await;
}

fn lane(row: &Row) -> Result<Lane, Unavailable> {
    let id = row.get(0);
    Ok(Lane { id, epoch: row.get(1), head: head(id, row.get(2), row.get(3))? })
}
