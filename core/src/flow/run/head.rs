//! The head of a run: what is fixed when it is requested.

use super::close::names_or_null;
use super::patches::pins::{request_of_row, with_pins};
use super::requesters::merge_names;
use crate::access::{Actor, Claimant, Level};
use crate::flow::air::Graph;
use crate::flow::pins::Pins;
use crate::flow::tables::{RunRow, runs};
use crate::ledger::ActorType;
use crate::record::{DamagedRows, Json, Unstorable, Value as Cell};
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

impl Replay {
    /// The request, as it is stored with the run.
    #[must_use]
    pub fn request(&self) -> Value {
        json!({"replay_of": self.of, "mode": self.mode.as_str(), "from": self.from})
    }
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
            (runs::id, self.id.into()),
            (runs::actor, self.actor.as_str().into()),
            (runs::request_payload, with_pins(&self.request, &self.pins)?.into()),
            (runs::autonomy_level, self.level.as_str().into()),
            (runs::trace_id, id::trace_id(self.id).into()),
            (runs::idempotency_key, self.idempotency_key.clone().into()),
            (runs::created_at, self.created_at.into()),
            (runs::tenant_id, self.tenant.as_str().into()),
            (runs::source, self.source.as_str().into()),
            (runs::workflow_id, self.workflow.id.as_str().into()),
            (runs::workflow_version, self.workflow.version.into()),
            (runs::inputs, Json::encode(&*self.inputs)?.into()),
            (runs::priority, i64::from(self.priority).into()),
            (runs::dry_run, self.dry_run.into()),
            (runs::correlation_id, self.correlation_id.clone().into()),
            (runs::parent_run_id, self.parent.map(|(run, _)| run).into()),
            (runs::parent_step_id, self.parent.map(|(_, step)| step).into()),
            (runs::replay_of, self.replay.as_ref().map(|replay| replay.of).into()),
            (runs::replay_mode, self.replay.as_ref().map(|replay| replay.mode.as_str().to_owned()).into()),
            (runs::notify, self.notify.as_ref().map(Json::encode).transpose()?.into()),
            (runs::risk, self.risk.as_deref().map(Json::encode).transpose()?.into()),
            (runs::depth, i64::from(self.depth).into()),
            (runs::replay_from, self.replay.as_ref().and_then(|replay| replay.from.clone()).into()),
            (runs::timeout_at, self.timeout_at.into()),
            (runs::actor_kind, self.actor_kind.as_str().into()),
            (runs::co_requesters, names_or_null(&self.co_requesters)),
        ])
    }

    /// Reads the head from a run's row.
    pub fn of_row(row: &RunRow) -> Result<Self, DamagedRows> {
        let missing = |column: &str| DamagedRows { what: format!("runs.{column} has no value") };
        let replay = match row.replay_mode {
            None => None,
            Some(mode) => Some(Replay {
                of: row.replay_of.ok_or_else(|| missing(runs::replay_of))?,
                mode,
                from: row.replay_from.clone(),
            }),
        };
        let json = |document: &Option<Json>| document.as_ref().map(Json::value).transpose();
        let (request, pins) = request_of_row(row)?;
        Ok(Self {
            id: row.id,
            tenant: row.tenant_id.clone(),
            actor_kind: Actor::from_record(&row.actor, row.actor_kind).kind,
            co_requesters: row.co_requesters.clone().unwrap_or_default(),
            actor: row.actor.clone(),
            level: row.autonomy_level.ok_or_else(|| missing(runs::autonomy_level))?,
            priority: row.priority,
            dry_run: row.dry_run,
            source: row.source,
            workflow: WorkflowRef {
                id: row.workflow_id.clone().ok_or_else(|| missing(runs::workflow_id))?,
                version: row.workflow_version,
            },
            pins: Arc::new(pins),
            parent: row.parent_run_id.zip(row.parent_step_id),
            depth: row.depth,
            replay,
            inputs: Arc::new(json(&row.inputs)?.unwrap_or_else(|| json!({}))),
            request: Arc::new(request),
            risk: json(&row.risk)?.map(Arc::new),
            idempotency_key: row.idempotency_key.clone(),
            correlation_id: row.correlation_id.clone(),
            notify: json(&row.notify)?,
            created_at: row.created_at.ok_or_else(|| missing(runs::created_at))?,
            timeout_at: row.timeout_at,
        })
    }
}
