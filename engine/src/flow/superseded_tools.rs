//! Definitions of declared tools that new runs do not use any more, for the runs that began with them.

use crate::flow::port::Tool;
use chimera_core::limits::TOOL_DEFINITIONS_KEPT_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One definition of one tool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DefinitionKey {
    /// The tenant who owns the tool.
    pub(super) owner: String,
    pub(super) name: String,
    pub(super) version: String,
}

/// Bounded: whatever was not used for the longest time gives way, and is read from the store when it is needed again.
#[derive(Default)]
pub(super) struct SupersededTools {
    entries: BTreeMap<DefinitionKey, (Arc<dyn Tool>, u64)>,
    /// Sequence number of uses.
    uses: u64,
}

impl SupersededTools {
    pub(super) fn get(&mut self, key: &DefinitionKey) -> Option<Arc<dyn Tool>> {
        self.uses += 1;
        let (tool, used) = self.entries.get_mut(key)?;
        *used = self.uses;
        Some(Arc::clone(tool))
    }

    pub(super) fn keep(&mut self, key: DefinitionKey, tool: Arc<dyn Tool>) {
        self.uses += 1;
        self.entries.insert(key, (tool, self.uses));
        while self.entries.len() > TOOL_DEFINITIONS_KEPT_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.entries.remove(&oldest);
        }
    }
}
