//! Pages of large rows: bounded in bytes, and complete.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a suite is a test")]

use crate::build::{run, signal};
use crate::seeded::Seeded;
use chimera_core::flow::tables::{RUN_SIGNALS, SignalBrief, run_signals};
use chimera_core::limits::PAGE_BYTES_MAX;
use chimera_core::record::{Direction, Insert, Json, Page, Row, Scope, Select, StoredRow, Tx};
use chimera_engine::port::Records;
use uuid::Uuid;

/// So many equal rows fill a page.
const ROWS_PER_PAGE: usize = 8;
/// The index of the row that is larger than a page may be.
const LARGEST: usize = 5;
/// Page limits: fewer rows and more rows than there are.
const ASKED: [usize; 2] = [20, 1_000];

/// A page ends early when the next row would make it too large. A row over the limit is a page of its own. Following the
/// cursors returns every row once and in order.
pub async fn a_page_is_bounded_in_bytes(store: &dyn Records, s: &Seeded) {
    let owner = run(s);
    let (mut inserts, mut ids) = (Vec::new(), Vec::new());
    for n in 0..ROWS_PER_PAGE * 2 {
        let bytes = if n == LARGEST { PAGE_BYTES_MAX + 1 } else { PAGE_BYTES_MAX / ROWS_PER_PAGE - 4_096 };
        let insert = large(signal(s, owner.id, "large").unwrap(), bytes);
        ids.push(insert.value(run_signals::id).as_uuid().unwrap());
        inserts.push(insert);
    }
    for part in inserts.chunks(4) {
        store.commit(Tx { inserts: part.to_vec(), ..Tx::default() }).await.expect("large rows commit");
    }
    ids.sort_unstable();
    let base = Select::from(&RUN_SIGNALS, Scope::System).with(run_signals::run_id, owner.id);
    for (direction, asked) in
        [Direction::Ascending, Direction::Descending].into_iter().flat_map(|way| ASKED.map(|asked| (way, asked)))
    {
        let mut seen = in_pages(store, base.clone().by(&[], direction).take(asked)).await;
        if direction == Direction::Descending {
            seen.reverse();
        }
        assert_eq!(seen, ids, "{direction:?}, {asked} at a time");
    }
    let (rows, more) = store.first(base.clone(), ids.len()).await.expect("the first rows");
    assert_eq!((rows.iter().map(id).collect::<Vec<_>>(), more), (ids.clone(), false));
    let (rows, more) = store.first(base.clone(), ids.len() - 1).await.expect("the first rows");
    assert_eq!((rows.len(), more), (ids.len() - 1, true));
    let bare = SignalBrief::select(Scope::System).with(run_signals::run_id, owner.id).take(ids.len());
    let bare = store.read(bare).await.expect("a page");
    assert_eq!((bare.rows.len(), bare.next), (ids.len(), None), "columns that are not fetched do not count");
    for row in bare.rows {
        assert!(row.get(run_signals::payload).is_null());
        assert_eq!(SignalBrief::decode(row).expect("a row that can be read").kind, "large");
    }
}

fn id(row: &Row) -> Uuid {
    SignalBrief::peek(row).expect("a row that can be read").id
}

fn large(mut insert: Insert, bytes: usize) -> Insert {
    let at = RUN_SIGNALS.position(run_signals::payload).unwrap();
    let payload = Json::encode(&"x".repeat(bytes)).unwrap();
    insert.cells.iter_mut().filter(|(column, _)| *column == at).for_each(|(_, cell)| *cell = payload.clone().into());
    insert
}

/// The ids of all rows, page by page; each page is as large as it may be.
async fn in_pages(store: &dyn Records, mut select: Select) -> Vec<Uuid> {
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let Page { rows, next } = store.read(select.clone()).await.expect("a page");
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        assert!(!rows.is_empty(), "an empty page with a cursor");
        assert!(rows.len() == 1 || bytes <= PAGE_BYTES_MAX, "{} rows of {bytes} bytes", rows.len());
        pages += 1;
        seen.extend(rows.iter().map(id));
        let Some(next) = next else { break };
        select = select.continue_at(&next.encode()).expect("its own cursor");
    }
    assert!(
        (3..=4).contains(&pages),
        "{pages} pages: the largest row is one, what is before and behind it is two or three"
    );
    seen
}
