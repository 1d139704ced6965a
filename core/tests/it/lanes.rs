//! A small in-memory ledger: lanes, entries and checkpoints as a store would hold them.

use chimera_core::audit::export::{ExportHeader, Exporter};
use chimera_core::audit::proof;
use chimera_core::ledger::checkpoint::{Checkpoint, LaneState, SignedCheckpoint, Signer};
use chimera_core::ledger::merkle::{leaf_hash, root};
use chimera_core::ledger::{ActorType, ChainHead, Digest32, Entry, StoredEntry, SubjectType};
use chimera_core::time::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;

/// A signer with a fixed key.
pub(crate) fn signer() -> Signer {
    Signer::from_seed(&[7; 32])
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) lanes: BTreeMap<i64, Vec<StoredEntry>>,
    pub(crate) checkpoints: Vec<SignedCheckpoint>,
    written: u8,
}

impl Ledger {
    pub(crate) fn write(&mut self, lane: i64, tenant: &str) {
        self.written += 1;
        let n = self.written;
        let entry = Entry {
            id: format!("entry-{n}"),
            tenant_id: tenant.into(),
            subject_type: SubjectType::Task,
            subject_id: format!("task-{n}"),
            event_type: "task.created".into(),
            actor_type: ActorType::Human,
            actor_id: Some("ann".into()),
            timestamp: Timestamp::from_micros(1_770_000_000_000_000 + i64::from(n)),
            data: json!({"note": "größer", "n": n, "ratio": 0.25, "seq": 99}),
            run_id: Some(uuid::Uuid::from_u128(u128::from(n))),
            run_seq: Some(1),
            trace_id: None,
        };
        let entries = self.lanes.entry(lane).or_default();
        let head = entries.last().map_or(ChainHead::EMPTY, |entry| entry.link.head());
        entries.push(StoredEntry::after(lane, head, entry.seal([n; 16]).unwrap()));
    }

    pub(crate) fn leaves(&self, lane: i64) -> Vec<Digest32> {
        self.lanes[&lane].iter().map(|entry| leaf_hash(&entry.link.hash.0)).collect()
    }

    pub(crate) fn checkpoint(&mut self) {
        let lanes = self.lanes.iter().map(|(lane, entries)| LaneState {
            lane: *lane,
            head: entries.last().unwrap().link.head(),
            root: root(&self.leaves(*lane)),
        });
        let checkpoint = Checkpoint {
            origin: "test.example/ledger".into(),
            seq: self.checkpoints.len() as i64 + 1,
            created_at: Timestamp::from_micros(1_770_000_001_000_000),
            previous: self.checkpoints.last().map(SignedCheckpoint::digest),
            lanes: lanes.collect(),
        };
        self.checkpoints.push(checkpoint.sign(&signer()));
    }

    fn header(tenant: Option<&str>) -> ExportHeader {
        let created_at = Timestamp::from_micros(1_770_000_002_000_000);
        ExportHeader { created_at, tenant: tenant.map(str::to_owned), keys: vec![signer().public_key()] }
    }

    pub(crate) fn export_all(&self, sign: bool) -> String {
        let (mut exporter, mut out) = Exporter::begin(Self::header(None));
        let mut done: BTreeMap<i64, usize> = BTreeMap::new();
        for signed in &self.checkpoints {
            for state in &signed.checkpoint.lanes {
                let upto = usize::try_from(state.head.seq).unwrap();
                let from = done.insert(state.lane, upto).unwrap_or(0);
                for entry in &self.lanes[&state.lane][from..upto] {
                    out += &exporter.entry(entry.clone(), None);
                }
            }
            out += &exporter.checkpoint(signed.clone());
        }
        for (lane, entries) in &self.lanes {
            for entry in &entries[done.get(lane).copied().unwrap_or(0)..] {
                out += &exporter.entry(entry.clone(), None);
            }
        }
        out + &exporter.finish(sign.then_some(&signer()))
    }

    pub(crate) fn export_tenant(&self, tenant: &str, sign: bool) -> String {
        let (mut exporter, mut out) = Exporter::begin(Self::header(Some(tenant)));
        let signed = self.checkpoints.last().unwrap();
        out += &exporter.checkpoint(signed.clone());
        for state in &signed.checkpoint.lanes {
            let size = u64::try_from(state.head.seq).unwrap();
            let leaves = self.leaves(state.lane);
            for (index, entry) in (0..size).zip(&self.lanes[&state.lane]) {
                if entry.sealed.entry.tenant_id == tenant {
                    let nodes = |id: chimera_core::ledger::merkle::TreeNodeId| {
                        leaves.get(usize::try_from(id.idx).ok()?).copied()
                    };
                    let proof = proof::inclusion(index, size, &nodes).unwrap();
                    out += &exporter.entry(entry.clone(), Some(proof));
                }
            }
        }
        out + &exporter.finish(sign.then_some(&signer()))
    }
}

/// Two lanes, two tenants, two checkpoints, and an entry after the last one.
pub(crate) fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.write(1, "acme");
    ledger.write(2, "zeta");
    ledger.checkpoint();
    ledger.write(1, "zeta");
    ledger.write(1, "acme");
    ledger.checkpoint();
    ledger.write(2, "acme");
    ledger
}
