//! Which tenant is which, for what is set up once for all of them.

use chimera_core::access::Guest;
use std::sync::Arc;

/// Tells the default tenant from the others.
///
/// **Current.** What was changed about a tenant counts with the next question.
/// **Closed.** A tenant that nobody knows is a guest with whom nothing is shared.
pub trait Tenancy: Send + Sync {
    /// What is shared with a tenant; none: it is the default one, and everything is its own.
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>>;

    /// Whether there are tenants besides the default one. Then each has a share of what all use.
    fn is_shared(&self) -> bool;
}

/// The tenancy of a process in which nobody acts: every tenant is the default one.
pub struct OneTenant;

impl Tenancy for OneTenant {
    fn guest(&self, _tenant: &str) -> Option<Arc<Guest>> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}
