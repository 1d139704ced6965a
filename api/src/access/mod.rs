//! Who calls: the bearer token and the actor that a request names.

mod bearer;

pub(crate) use bearer::Caller;
