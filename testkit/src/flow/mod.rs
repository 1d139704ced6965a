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
pub use bare::{StorelessRun, WorkCounts};
pub use bus::BroadcastBus;
pub use engine::{NullNotifier, World, engine, engine_with};
pub use outside::{ExternalSystem, Sent};
pub use patience::{until, within};
pub use puppet::{CallLog, RecordedCall, ScriptedTool, ConcurrencyProbe};
pub use spans::SpanCollector;
pub use stage::{SEAL, EngineSetup, EngineFixture, TENANT, asking, code_of, id_of, approval_link, stage};
pub use tool::{CallBehavior, BehaviorScript, ExternalTool};
pub use twin::RebuildCheck;

/// A permit for everything in a tenant.
#[must_use]
pub fn full_permit(tenant: &str, actor: &str) -> Permit {
    Permit::for_entry(Entry { scopes: vec!["*".to_owned()], ..Entry::default_for(actor, tenant) })
}
