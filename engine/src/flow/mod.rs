//! The flow room in motion: tools, runs and what keeps them going.

mod ask;
mod calls;
mod decide;
mod drive;
mod edit;
mod entrance;
mod error;
mod feed;
pub mod gate;
mod keeper;
mod link;
mod load;
mod node;
mod notify;
mod patch;
mod perform;
mod places;
pub mod policy;
mod registry;
mod restore;
mod seal;
mod shelf;
mod show;
mod spans;
mod start;
mod tell;
mod workflows;

pub use ask::{Asking, OfRun};
pub use calls::CallFilter;
pub use decide::{Decide, Decided, Decision};
pub use error::FlowError;
pub use feed::Feed;
pub use keeper::Keeper;
pub use link::Opened;
pub use node::{Ended, Flow, Parts, Standing};
pub use patch::Proposed;
pub use places::Places;
pub use registry::{Registry, Twice};
pub use restore::{RestoredRun, Resume, Survey};
pub use show::Filter;
pub use start::{Again, StartRun, Started};
pub use tell::Settle;
pub use workflows::{Applied, Tools, Workflows};

pub(crate) use load::all as all_rows;
pub(crate) use workflows::PLAN_PREFIX;
