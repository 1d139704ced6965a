//! What the access room needs from outside, and what it tells other rooms about tenants. The doc comments are the
//! contracts; one suite in `testkit` checks every implementation against them.

mod counters;
mod tenancy;

pub use counters::{ClaimOutcome, CounterError, Counters};
pub use tenancy::{OneTenant, Tenancy};
