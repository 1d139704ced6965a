//! What each tenant may use of the shared setup.

use chimera_core::access::Guest;
use std::sync::Arc;

/// Distinguishes the default tenant from the others.
///
/// **Current.** A change to a tenant is visible to the next call.
/// **Closed.** An unknown tenant is a guest with whom nothing is shared.
pub trait Tenancy: Send + Sync {
    /// What is shared with a tenant; `None` for the default tenant, which owns everything.
    fn guest(&self, tenant: &str) -> Option<Arc<Guest>>;

    /// The id of the tenant with this slug, if there is one besides the default one.
    fn id_of_slug(&self, _slug: &str) -> Option<String> {
        None
    }

    /// Whether there are tenants besides the default one. If so, each gets a share of common resources.
    fn is_shared(&self) -> bool;
}

/// For processes without actors: every tenant is the default one.
pub struct OneTenant;

impl Tenancy for OneTenant {
    fn guest(&self, _tenant: &str) -> Option<Arc<Guest>> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}
