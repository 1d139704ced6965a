//! A flow engine for tests: tools that record their calls, a simulated outside, and the engine on any store.

mod air;
mod bare;
mod bus;
mod engine;
mod outside;
mod patience;
mod puppet;
mod spans;
mod stage;
mod tool;
mod twin;

use chimera_core::access::Entry;
use chimera_engine::access::Permit;

pub use air::{Air, chain, workflow};
pub use bare::{Bare, Work};
pub use bus::HintBus;
pub use engine::{Nobody, World, engine, engine_with};
pub use outside::{Outside, Sent};
pub use patience::{until, within};
pub use puppet::{Asked, Made, Puppet, Watch};
pub use spans::Listener;
pub use stage::{SEAL, Setup, Stage, TENANT, asking, code_of, id_of, link_in, stage};
pub use tool::{Behave, Script, Scripted};
pub use twin::Twin;

/// A permit for everything in a tenant.
#[must_use]
pub fn somebody(tenant: &str, actor: &str) -> Permit {
    Permit::for_entry(Entry { scopes: vec!["*".to_owned()], ..Entry::default_for(actor, tenant) })
}
