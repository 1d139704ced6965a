//! The execution log.

pub(crate) mod execution_list;
