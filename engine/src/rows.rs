//! Reading all rows of a query, page by page.

use crate::error::EngineError;
use crate::port::Records;
use chimera_core::error::Code;
use chimera_core::limits;
use chimera_core::record::{Row, Select};

/// All rows of a query. More than `rows_max` rows, or more bytes than may be held in memory, are an error: a caller
/// that went on with some of the rows would take the missing ones for events that never happened.
pub(crate) async fn all(records: &dyn Records, select: Select, rows_max: usize) -> Result<Vec<Row>, EngineError> {
    let table = select.table.name;
    let (mut rows, mut bytes, mut select) = (Vec::new(), 0_usize, select.take(limits::PAGE_ROWS_MAX));
    loop {
        let page = records.read(select.clone()).await?;
        bytes = page.rows.iter().map(Row::bytes).fold(bytes, usize::saturating_add);
        rows.extend(page.rows);
        if rows.len() > rows_max {
            return Err(too_much(&format!("{rows_max} rows of {table}")));
        }
        if bytes > limits::ROWS_HELD_BYTES_MAX {
            return Err(too_much(&format!("{} bytes of {table}", limits::ROWS_HELD_BYTES_MAX)));
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

/// Calls `look` for every row of a query. Holds one page in memory at a time.
pub(crate) async fn for_each(
    records: &dyn Records,
    select: Select,
    mut look: impl FnMut(Row),
) -> Result<(), EngineError> {
    let mut select = select.take(limits::PAGE_ROWS_MAX);
    loop {
        let page = records.read(select.clone()).await?;
        page.rows.into_iter().for_each(&mut look);
        match page.next {
            Some(next) => select.after = Some(next),
            None => return Ok(()),
        }
    }
}
