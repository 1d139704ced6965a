//! Records as data: what a table is, what a transaction does, what a read asks for.
//!
//! A `Tx` never holds SQL. Stores turn it into statements of their dialect, the memory store of
//! the simulator interprets it, and all of them give the same answer.

mod cursor;
mod fault;
mod query;
mod scoped;
mod table;
mod tx;
mod value;

pub use cursor::{Cursor, InvalidCursor};
pub use fault::{Damaged, Unstorable};
pub use query::{Compare, Condition, Count, Counted, Direction, Gathered, Page, Row, Scope, Select};
pub(crate) use scoped::scoped;
pub use table::{Column, Kind, Table};
pub use tx::{Conflict, Insert, InvalidTx, RowCount, RowKey, Step, Touch, Tx, Update};
pub(crate) use value::escapes_nul;
pub use value::{Cell, Json, JsonError, Value};
