//! The head of a run: what is fixed when it is requested.

use super::close::names_or_null;
use super::patches::pins::{request_of_row, with_pins};
use super::requesters::merge_names;
use crate::access::{Actor, Claimant, Level};
use crate::flow::air::Graph;
use crate::flow::pins::Pins;
use crate::ledger::ActorType;
use crate::record::{DamagedRows, Json, Row, Unstorable, Value as Cell};
use crate::time::Timestamp;
use crate::words::words;
use crate::{id, limits};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

words! {
    /// What started a run.
    Source {
        /// A request to act.
        Act = "act",
        /// A signed intent.
        Intent = "intent",
        /// A plan of the swarm.
        Swarm = "swarm",
        /// A workflow started by name, or by a parent run.
        Workflow = "workflow",
        /// A replay of another run.
        Replay = "replay",
    }
}

words! {
    /// How a run is replayed. See `replay`.
    ReplayMode {
        /// Recorded outputs only: no tool is called.
        Freeze = "freeze",
        /// Pure and reading tools run, writing ones return their recording. Differences are reported.
        Shadow = "shadow",
        /// Runs again from a node on, with its own effects.
        Retry = "retry",
    }
}

/// The workflow that a run follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowRef {
    pub id: String,
    /// `None` for a plan that was made for this run alone.
    pub version: Option<i64>,
}

/// The run that is replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    pub of: Uuid,
    pub mode: ReplayMode,
    /// The node to start from. `None`: from the beginning.
    pub from: Option<String>,
}

/// The immutable part of a run. Only `co_requesters` grows.
#[derive(Clone, Debug, PartialEq)]
pub struct RunHead {
    /// Time-ordered.
    pub id: Uuid,
    pub tenant: String,
    /// The requester.
    pub actor: String,
    /// The requester's kind at the time of the request.
    pub actor_kind: ActorType,
    /// Everyone who counts as a requester besides the actor: the authors of its workflow, the requesters of the run
    /// that it replays, and whoever patched in the node that started it. See `requesters`.
    pub co_requesters: Vec<String>,
    pub level: Level,
    /// One is most urgent, ten least.
    pub priority: i32,
    /// Only report what it would do.
    pub dry_run: bool,
    pub source: Source,
    pub workflow: WorkflowRef,
    /// The versions of nested workflows that it was admitted with. Runs stored before this was recorded have
    /// none.
    pub pins: Arc<Pins>,
    /// The parent run and its step.
    pub parent: Option<(Uuid, Uuid)>,
    /// The number of its ancestors.
    pub depth: u32,
    pub replay: Option<Replay>,
    pub inputs: Arc<Value>,
    /// The original request.
    pub request: Arc<Value>,
    /// The risk score at admission.
    pub risk: Option<Arc<Value>>,
    pub idempotency_key: Option<String>,
    /// The caller's id for it.
    pub correlation_id: Option<String>,
    /// Who is notified when it ends.
    pub notify: Option<Value>,
    pub created_at: Timestamp,
    pub timeout_at: Option<Timestamp>,
}

impl RunHead {
    /// The tenant and actor that its work counts for.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        Claimant::new(&self.tenant, &self.actor)
    }

    /// The requester, as named in the ledger.
    #[must_use]
    pub fn requester(&self) -> Actor {
        Actor::new(self.actor.as_str(), self.actor_kind)
    }

    /// The co-requesters of a run of `actor`: the authors of its workflow and of its child workflows.
    #[must_use]
    pub fn co_requesters_from(actor: &str, writers: &[String]) -> Vec<String> {
        merge_names(vec![actor.to_owned()], writers.iter().map(String::as_str)).split_off(1)
    }

    /// The co-requesters of a replay by `actor`: the requesters of this run, and the authors of its workflow and
    /// patches, since those are replayed too.
    #[must_use]
    pub fn co_requesters_of_replay(&self, actor: &str, writers: &[String]) -> Vec<String> {
        let all = merge_names(vec![actor.to_owned()], self.requesters().iter().chain(writers).map(String::as_str));
        all.into_iter().skip(1).collect()
    }

    /// The actor and all co-requesters.
    #[must_use]
    pub fn requesters(&self) -> Vec<String> {
        merge_names(vec![self.actor.clone()], self.co_requesters.iter().map(String::as_str))
    }

    /// The timeout of a run of `graph` that is requested now.
    #[must_use]
    pub fn timeout_for(graph: &Graph, now: Timestamp) -> Timestamp {
        now.plus_seconds(i64::from(graph.document.timeout_seconds.unwrap_or(limits::RUN_SECONDS_DEFAULT)))
    }

    /// The columns of `runs` that are written once, with the first row. Only `co_requesters` changes later.
    pub(crate) fn cells(&self) -> Result<Vec<(&'static str, Cell)>, Unstorable> {
        // In table order, so that each column is found at once.
        Ok(vec![
            ("id", self.id.into()),
            ("actor", self.actor.as_str().into()),
            ("request_payload", with_pins(&self.request, &self.pins)?.into()),
            ("autonomy_level", self.level.as_str().into()),
            ("trace_id", id::trace_id(self.id).into()),
            ("idempotency_key", self.idempotency_key.clone().into()),
            ("created_at", self.created_at.into()),
            ("tenant_id", self.tenant.as_str().into()),
            ("source", self.source.as_str().into()),
            ("workflow_id", self.workflow.id.as_str().into()),
            ("workflow_version", self.workflow.version.into()),
            ("inputs", Json::encode(&*self.inputs)?.into()),
            ("priority", i64::from(self.priority).into()),
            ("dry_run", self.dry_run.into()),
            ("correlation_id", self.correlation_id.clone().into()),
            ("parent_run_id", self.parent.map(|(run, _)| run).into()),
            ("parent_step_id", self.parent.map(|(_, step)| step).into()),
            ("replay_of", self.replay.as_ref().map(|replay| replay.of).into()),
            ("replay_mode", self.replay.as_ref().map(|replay| replay.mode.as_str().to_owned()).into()),
            ("notify", self.notify.as_ref().map(Json::encode).transpose()?.into()),
            ("risk", self.risk.as_deref().map(Json::encode).transpose()?.into()),
            ("depth", i64::from(self.depth).into()),
            ("replay_from", self.replay.as_ref().and_then(|replay| replay.from.clone()).into()),
            ("timeout_at", self.timeout_at.into()),
            ("actor_kind", self.actor_kind.as_str().into()),
            ("co_requesters", names_or_null(&self.co_requesters)),
        ])
    }

    /// Reads the head from a run's row.
    pub fn of_row(row: &Row) -> Result<Self, DamagedRows> {
        let word = |what: &str| DamagedRows { what: what.to_owned() };
        let replay = match row.get("replay_mode").as_text() {
            None => None,
            Some(mode) => Some(Replay {
                of: row.uuid("replay_of"),
                mode: ReplayMode::parse(mode).ok_or_else(|| word("replay_mode"))?,
                from: row.get("replay_from").as_text().map(str::to_owned),
            }),
        };
        let parent = row.get("parent_run_id").as_uuid().zip(row.get("parent_step_id").as_uuid());
        let json = |column| row.get(column).as_json().map(Json::to_value);
        let (request, pins) = request_of_row(row);
        Ok(Self {
            id: row.uuid("id"),
            tenant: row.text("tenant_id").to_owned(),
            actor_kind: Actor::from_record(row.text("actor"), row.get("actor_kind").as_text()).kind,
            co_requesters: row.get("co_requesters").as_texts().to_vec(),
            actor: row.text("actor").to_owned(),
            level: Level::parse(row.text("autonomy_level")).ok_or_else(|| word("autonomy_level"))?,
            priority: i32::try_from(row.int("priority")).unwrap_or(5),
            dry_run: row.get("dry_run") == &Cell::Bool(true),
            source: Source::parse(row.text("source")).ok_or_else(|| word("source"))?,
            workflow: WorkflowRef {
                id: row.text("workflow_id").to_owned(),
                version: row.get("workflow_version").as_int(),
            },
            pins: Arc::new(pins),
            parent,
            depth: u32::try_from(row.int("depth")).unwrap_or(0),
            replay,
            inputs: Arc::new(json("inputs").unwrap_or_else(|| json!({}))),
            request: Arc::new(request),
            risk: json("risk").map(Arc::new),
            idempotency_key: row.get("idempotency_key").as_text().map(str::to_owned),
            correlation_id: row.get("correlation_id").as_text().map(str::to_owned),
            notify: json("notify"),
            created_at: row.get("created_at").as_time().unwrap_or(Timestamp::from_micros(0)),
            timeout_at: row.get("timeout_at").as_time(),
        })
    }
}
