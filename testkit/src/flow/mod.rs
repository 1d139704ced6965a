//! A flow engine for tests: tools that record their calls, a simulated outside, and the engine on any store.

mod bus;
mod declared_tools;
mod engine;
mod engine_fixture;
mod external_system;
mod external_tool;
mod rebuild_check;
mod scripted_tool;
mod spans;
mod storeless_run;
mod timeout;
mod workflow_builder;

use chimera_core::access::ActorEntry;
use chimera_engine::access::Permit;

pub use bus::BroadcastBus;
pub use declared_tools::{DeclaredCall, ScriptedSource};
pub use engine::{NullNotifier, World, engine, engine_with};
pub use engine_fixture::{
    EngineFixture, EngineSetup, SEAL, TENANT, approval_link, asking, code_of, id_of, shown, stage,
};
pub use external_system::{ExternalSystem, Sent};
pub use external_tool::{BehaviorScript, CallBehavior, ExternalTool, ExternalToolKind};
pub use rebuild_check::RebuildCheck;
pub use scripted_tool::{CallLog, ConcurrencyProbe, RecordedCall, ScriptedTool};
pub use spans::SpanCollector;
pub use storeless_run::{StorelessRun, WorkCounts};
pub use timeout::{until, within};
pub use workflow_builder::{Air, chain, workflow};

/// A permit for everything in a tenant.
#[must_use]
pub fn full_permit(tenant: &str, actor: &str) -> Permit {
    Permit::for_entry(ActorEntry { scopes: vec!["*".to_owned()], ..ActorEntry::default_for(actor, tenant) })
}
