//! Deletes windows in which nothing counts any more.

use crate::error::EngineError;
use crate::flow::engine::EngineState;
use crate::rows;
use chimera_core::flow::reservation::{RESERVATIONS, ReservationExpiry, reservations};
use chimera_core::limits::RESERVATIONS_SWEPT_MAX;
use chimera_core::record::{Comparison, Condition, Direction, RowCount, Scope, Step, StoredRow, Tx, Value};

/// Deletes the rows of windows that have counted nothing for their length. A run that counts something meanwhile either
/// keeps its row, or finds none and writes a new one.
pub(in crate::flow) async fn sweep(inner: &EngineState) -> Result<(), EngineError> {
    let now = inner.parts.clock.steady();
    let select = ReservationExpiry::select(Scope::System)
        .filter(reservations::expires_at, Comparison::AtMost, now)
        .by(&[reservations::expires_at], Direction::Ascending)
        .take(RESERVATIONS_SWEPT_MAX);
    loop {
        let page = inner.parts.records.read(select.clone()).await?;
        let steps: Vec<Step> = rows::decodable::<ReservationExpiry>(page.rows).map(delete).collect();
        if steps.is_empty() {
            return Ok(());
        }
        inner.parts.records.commit(Tx { steps, ..Tx::default() }).await?;
        if page.next.is_none() {
            return Ok(());
        }
    }
}

fn delete(row: ReservationExpiry) -> Step {
    let is = |column, value: Value| Condition { column, compare: Comparison::Is, value };
    let conditions = vec![
        is(reservations::tenant_id, row.tenant_id.into()),
        is(reservations::subject, row.subject.into()),
        is(reservations::window_seconds, row.window_seconds.into()),
        is(reservations::expires_at, row.expires_at.into()),
    ];
    Step::Delete { table: &RESERVATIONS, conditions, rows: RowCount::AtMost(1) }
}
