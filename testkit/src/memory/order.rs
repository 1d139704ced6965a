//! The order of values, as both databases sort them.

use chimera_core::record::{Comparison, Condition, Row, Value};
use std::cmp::Ordering;

/// A key, or any list of columns that rows are sorted by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SortKey(pub(super) Vec<Value>);

impl Eq for SortKey {}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        pairs.map(|(a, b)| order(a, b)).find(|o| o.is_ne()).unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

/// Whether a row meets every condition.
pub(super) fn matches(row: &Row, conditions: &[Condition]) -> bool {
    conditions.iter().all(|Condition { column, compare, value }| {
        let cell = row.get(column);
        match compare {
            Comparison::Is => cell == value,
            Comparison::IsNot => cell != value,
            _ if cell.is_null() || value.is_null() => false,
            Comparison::Above => order(cell, value).is_gt(),
            Comparison::AtLeast => order(cell, value).is_ge(),
            Comparison::Below => order(cell, value).is_lt(),
            Comparison::AtMost => order(cell, value).is_le(),
            Comparison::OneOf => match (cell, value) {
                (Value::Text(cell), Value::Texts(texts)) => texts.contains(cell),
                _ => false,
            },
        }
    })
}
