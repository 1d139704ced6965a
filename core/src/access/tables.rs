//! The access room's tables.

use crate::record::Table;

/// The room's tables.
pub static ALL: &[&Table] = &[];
