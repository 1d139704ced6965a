//! Records as data: tables, transactions and queries.
//!
//! A `Tx` never holds SQL. Each store translates it into its own dialect, the memory store of the simulator
//! interprets it, and all of them give the same result.

mod cursor;
mod declare;
pub(crate) mod decode;
mod fault;
mod query;
mod table;
mod tx;
mod value;

pub use cursor::{Cursor, InvalidCursor};
pub(crate) use declare::{part, scoped_table, table};
pub use decode::{CellType, RowError, StoredRow};
pub use fault::{DamagedRows, Unstorable};
pub use query::{Comparison, Condition, CountQuery, Direction, Page, PageBuilder, Row, RowGroup, Scope, Select};
pub use table::{Column, ColumnType, Table};
pub use tx::{Conflict, Insert, InvalidTx, RowCount, RowKey, STATE_VERSION, Step, Touch, Tx, Update};
pub(crate) use value::escapes_nul;
pub use value::{Cell, Decimal, Json, JsonError, Value};
