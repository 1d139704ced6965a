//! Reading the rows of a query, page by page.
//!
//! `list`, `find` and `each` decode what they read, and fail when a row can't be decoded. Background loops use
//! `decodable`: one damaged row must not stop the work on the others.

use crate::error::EngineError;
use crate::port::Records;
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_core::record::{Row, Select, StoredRow};

/// All rows of a query, decoded. More than `rows_max` rows, or more bytes than may be held in memory, are an error: a
/// caller that went on with some of the rows would take the missing ones for events that never happened.
pub(crate) async fn list<R: StoredRow>(
    records: &dyn Records,
    select: Select,
    rows_max: usize,
) -> Result<Vec<R>, EngineError> {
    let table = select.table.name;
    let (mut rows, mut bytes, mut select) = (Vec::new(), 0_usize, select.take(limits::PAGE_ROWS_MAX));
    loop {
        let page = records.read(select.clone()).await?;
        bytes = page.rows.iter().map(Row::bytes).fold(bytes, usize::saturating_add);
        if rows.len() + page.rows.len() > rows_max {
            return Err(too_much(&format!("{rows_max} rows of {table}")));
        }
        if bytes > limits::ROWS_HELD_BYTES_MAX {
            return Err(too_much(&format!("{} bytes of {table}", limits::ROWS_HELD_BYTES_MAX)));
        }
        rows.reserve(page.rows.len());
        for row in page.rows {
            rows.push(R::decode(row)?);
        }
        match page.next {
            Some(next) => select.after = Some(next),
            None => return Ok(rows),
        }
    }
}

fn too_much(what: &str) -> EngineError {
    EngineError::refused(Code::PayloadTooLarge, format!("this would read more than {what}, which is the limit"))
}

/// Calls `look` for every page of a query, and holds one in memory at a time.
pub(crate) async fn pages(
    records: &dyn Records,
    select: Select,
    mut look: impl FnMut(Vec<Row>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut select = select.take(limits::PAGE_ROWS_MAX);
    loop {
        let page = records.read(select.clone()).await?;
        look(page.rows)?;
        match page.next {
            Some(next) => select.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The first row of a query.
pub(crate) async fn find<R: StoredRow>(records: &dyn Records, select: Select) -> Result<Option<R>, EngineError> {
    let row = records.read(select.take(1)).await?.rows.into_iter().next();
    Ok(row.map(R::decode).transpose()?)
}

/// Calls `look` for every row of a query.
pub(crate) async fn each<R: StoredRow>(
    records: &dyn Records,
    select: Select,
    mut look: impl FnMut(R) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    pages(records, select, |rows| rows.into_iter().try_for_each(|row| look(R::decode(row)?))).await
}

/// The number of rows of a query.
pub(crate) async fn count(records: &dyn Records, select: Select) -> Result<usize, EngineError> {
    let mut count = 0;
    pages(records, select, |rows| {
        count += rows.len();
        Ok(())
    })
    .await?;
    Ok(count)
}

/// The rows that can be decoded. Logs and counts the others.
pub(crate) fn decodable<R: StoredRow>(rows: Vec<Row>) -> impl Iterator<Item = R> {
    rows.into_iter().filter_map(|row| R::decode(row).inspect_err(log_skipped).ok())
}

/// Logs and counts a row, or a document in one, that is skipped.
pub(crate) fn log_skipped(error: &impl std::fmt::Display) {
    metrics::counter!("chimera_rows_unreadable_total").increment(1);
    tracing::error!(%error, "a stored row can't be read and is skipped");
}
