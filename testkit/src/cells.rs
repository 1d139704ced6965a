//! Cells of a row by the names of their columns.
//!
//! For assertions on a few cells: a test that reads more of a row decodes it.

use chimera_core::record::Row;
use uuid::Uuid;

/// Reads cells. A cell that is null, or of another type, reads as the type's default.
pub trait Cells {
    fn text(&self, column: &str) -> &str;
    fn int(&self, column: &str) -> i64;
    fn uuid(&self, column: &str) -> Uuid;
}

impl Cells for Row {
    fn text(&self, column: &str) -> &str {
        self.get(column).as_text().unwrap_or_default()
    }

    fn int(&self, column: &str) -> i64 {
        self.get(column).as_int().unwrap_or_default()
    }

    fn uuid(&self, column: &str) -> Uuid {
        self.get(column).as_uuid().unwrap_or_default()
    }
}
