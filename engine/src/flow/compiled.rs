//! The cache of compiled workflows, bounded by their number and by the memory that they take.
//!
//! When it is full, the tenant that holds the most gives up what it has not used for the longest time.

use super::lookup::FoundWorkflow;
use chimera_core::limits::{WORKFLOW_MEMORY_FACTOR, WORKFLOWS_CACHED_MAX, WORKFLOWS_KEPT_BYTES_MAX};
use std::collections::BTreeMap;

/// Tenant, workflow and version.
pub(super) type VersionKey = (String, String, i64);

#[derive(Default)]
pub(super) struct Compiled {
    entries: BTreeMap<VersionKey, CachedGraph>,
    bytes: usize,
    /// Sequence number of uses.
    uses: u64,
}

struct CachedGraph {
    found: FoundWorkflow,
    bytes: usize,
    used: u64,
}

impl Compiled {
    /// A version, if it was compiled with this set of tools.
    pub(super) fn get(&mut self, key: &VersionKey, generation: u64) -> Option<FoundWorkflow> {
        self.uses += 1;
        let entry = self.entries.get_mut(key).filter(|entry| entry.found.generation == generation)?;
        entry.used = self.uses;
        Some(entry.found.clone())
    }

    /// Caches a version whose document has so many bytes.
    pub(super) fn keep(&mut self, key: VersionKey, found: FoundWorkflow, document_bytes: usize) {
        let patterns = found.graph.pattern_bytes();
        let bytes = document_bytes.saturating_mul(WORKFLOW_MEMORY_FACTOR).saturating_add(patterns);
        self.remove(&key);
        while self.entries.len() >= WORKFLOWS_CACHED_MAX || self.bytes.saturating_add(bytes) > WORKFLOWS_KEPT_BYTES_MAX
        {
            let Some(key) = self.least_needed() else { break };
            self.remove(&key);
        }
        self.uses += 1;
        self.bytes += bytes;
        self.entries.insert(key, CachedGraph { found, bytes, used: self.uses });
    }

    fn remove(&mut self, key: &VersionKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    fn least_needed(&self) -> Option<VersionKey> {
        let mut held: BTreeMap<&str, usize> = BTreeMap::new();
        for ((tenant, ..), entry) in &self.entries {
            *held.entry(tenant).or_default() += entry.bytes;
        }
        let (most, _) = held.into_iter().max_by_key(|(_, bytes)| *bytes)?;
        let of_tenant = self.entries.iter().filter(|((tenant, ..), _)| tenant == most);
        of_tenant.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::lookup::Origin;
    use super::*;
    use crate::flow::{ToolCatalog, ToolRegistry};
    use chimera_core::flow::air;
    use serde_json::json;
    use std::sync::Arc;

    fn found(pattern: &str, count: usize) -> FoundWorkflow {
        let patterns: Vec<_> = (0..count).map(|n| json!({"pattern": format!("{pattern}{n}")})).collect();
        let document = json!({
            "air_version": "1.0", "workflow_id": "a", "inputs": {"anyOf": patterns},
            "nodes": [{"id": "a", "type": "hitl"}]
        });
        let document = air::parse(&document.to_string()).unwrap();
        let graph = Arc::new(air::compile(document, &ToolCatalog::running(&ToolRegistry::default())).unwrap());
        FoundWorkflow { version: 1, graph, origin: Origin::Copy { is_shared: false }, generation: 0 }
    }

    fn key(tenant: &str, n: i64) -> VersionKey {
        (tenant.to_owned(), "a".to_owned(), n)
    }

    #[test]
    fn patterns_that_take_much_memory_leave_room_for_fewer_workflows() {
        let (mut compiled, heavy) = (Compiled::default(), found("\\p{L}{5}", 8));
        compiled.keep(key("acme", 0), found("a", 1), 100);
        for n in 0..1_000 {
            compiled.keep(key("bob", n), heavy.clone(), 100);
        }
        let bytes = heavy.graph.input_schema.as_ref().unwrap().pattern_bytes();
        assert!(
            compiled.bytes <= WORKFLOWS_KEPT_BYTES_MAX && compiled.entries.len() <= WORKFLOWS_KEPT_BYTES_MAX / bytes
        );
        assert!(compiled.get(&key("bob", 999), 0).is_some() && compiled.get(&key("bob", 0), 0).is_none());
        assert!(compiled.get(&key("acme", 0), 0).is_some(), "whoever holds little keeps it");
    }

    #[test]
    fn as_many_small_workflows_are_kept_as_before() {
        let (mut compiled, small) = (Compiled::default(), found("a", 1));
        for n in 0..2_000 {
            compiled.keep(key("bob", n), small.clone(), 100);
            assert!(n == 0 || compiled.get(&key("bob", 0), 0).is_some(), "what is used stays");
        }
        let bytes: usize = compiled.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!((compiled.entries.len(), compiled.bytes), (WORKFLOWS_CACHED_MAX, bytes));
    }
}
