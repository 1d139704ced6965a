//! Lists runs, and shows one with everything needed to decide its approvals.

use super::view::{
    ClosedApproval, Listing, MessageView, NotifyTargets, PatchView, PendingApproval, PlanView, RunDetails, RunSummary,
    decoded, json, word,
};
use super::{Flow, doubt, load};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::offload::{CostFlag, SizeBudget};
use crate::port::ReadError;
use crate::rows;
use chimera_core::access::Level;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::run::{RunStatus, request_of_row};
use chimera_core::flow::tables::{NOTIFICATIONS, RUN_PATCHES, RUNS, SCOPED_APPROVALS};
use chimera_core::limits;
use chimera_core::record::{Comparison, Cursor, Direction, Json, Row, Scope, Select};
use chimera_core::time::Timestamp;
use std::pin::Pin;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    pub actor: Option<String>,
    pub workflow_id: Option<String>,
    /// Requested at or after this time.
    pub since: Option<Timestamp>,
    /// Requested before this time.
    pub until: Option<Timestamp>,
    /// Only runs with a call whose outcome is unknown.
    pub in_doubt: bool,
    pub limit: usize,
    pub cursor: Option<String>,
}

impl Flow {
    /// Runs, newest first.
    pub async fn list(&self, permit: &Permit, filter: RunFilter) -> Result<Listing<RunSummary>, EngineError> {
        let mut select = Select::from(&RUNS, Scope::Tenant(permit.tenant().to_owned())).by(&[], Direction::Descending);
        select = select.without(load::RUN_DOCUMENTS);
        let everybody = permit.sees("");
        if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
            return Err(EngineError::missing_scope(RUNS_READ));
        }
        if !everybody {
            select = select.with("actor", permit.actor());
        }
        let status = filter.status.map(|status| status.as_str().to_owned());
        for (column, value) in [("status", status), ("actor", filter.actor), ("workflow_id", filter.workflow_id)] {
            if let Some(value) = value {
                select = select.with(column, value);
            }
        }
        if filter.in_doubt {
            select = doubt::in_doubt(select);
        }
        if let Some(since) = filter.since {
            select = select.filter("created_at", Comparison::AtLeast, since);
        }
        if let Some(until) = filter.until {
            select = select.filter("created_at", Comparison::Below, until);
        }
        select = select.take(filter.limit);
        if let Some(cursor) = &filter.cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = self.inner.parts.records.read(select).await?;
        Ok(Listing {
            items: page.rows.iter().map(RunSummary::of).collect::<Result<_, _>>()?,
            next_cursor: page.next.as_ref().map(Cursor::encode),
            bytes: page.rows.iter().map(Row::bytes).sum(),
        })
    }

    /// One run with everything needed to approve it.
    pub async fn show(&self, permit: &Permit, run: Uuid) -> Result<RunDetails, EngineError> {
        let room = self.reserve_page(&permit.claimant(), SizeBudget::default()).await;
        self.show_as(permit, run, room, |run| run).await
    }

    /// One run as `render` writes it, read with the memory of a page. A large run is rendered off the request threads,
    /// within its share of memory.
    pub async fn show_as<T>(
        &self,
        permit: &Permit,
        run: Uuid,
        mut room: SizeBudget,
        render: impl FnOnce(RunDetails) -> T,
    ) -> Result<T, EngineError> {
        let (mut row, mut asked) = self.rows_shown(permit, run).await?;
        let weight = load::weight(asked.iter().chain([&row]));
        if room.covers(weight) {
            room.shrink(weight);
        } else {
            // Whoever waits holds nothing.
            drop((row, asked));
            room = self.inner.offload.reserve_to_show(&permit.claimant(), room, weight).await;
            (row, asked) = self.rows_shown(permit, run).await?;
        }
        let costly = CostFlag::new(load::is_large(&row) || load::are_large(&asked));
        let shown = async { Ok(render(self.details(permit, row, asked, &costly).await?)) };
        let shown = self.offload_when_costly(permit, &costly, Box::pin(shown)).await?;
        drop(room);
        shown
    }

    /// A run and its approval requests.
    async fn rows_shown(&self, permit: &Permit, run: Uuid) -> Result<(Row, Vec<Row>), EngineError> {
        let records = &*self.inner.parts.records;
        let select = Select::from(&SCOPED_APPROVALS, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        // The requests are read before the run: a digest is shown with what it stands for or with something newer, and
        // then the digest is refused.
        let mut asked = rows::all(records, select.clone(), limits::RUN_ROWS_MAX).await?;
        let mut row = load::readable_run(records, permit, run).await?;
        let waits = |row: &Row| RunStatus::parse(row.text("status")) == Some(RunStatus::AwaitingApproval);
        if waits(&row) && !asked.iter().any(|row| row.text("status") == "pending") {
            // It started to wait between the two reads.
            asked = rows::all(records, select, limits::RUN_ROWS_MAX).await?;
            row = load::readable_run(records, permit, run).await?;
        }
        Ok((row, asked))
    }

    /// Runs work that is costly from the start or becomes so.
    pub(super) async fn offload_when_costly<T>(
        &self,
        permit: &Permit,
        costly: &CostFlag,
        work: Pin<Box<impl Future<Output = T>>>,
    ) -> Result<T, EngineError> {
        let who = permit.claimant();
        self.inner.offload.admit(&who, costly.is_set())?;
        Ok(self.inner.offload.run_when_costly(&who, costly, work).await)
    }

    async fn details(
        &self,
        permit: &Permit,
        row: Row,
        asked: Vec<Row>,
        costly: &CostFlag,
    ) -> Result<RunDetails, EngineError> {
        let run = row.uuid("id");
        let (plan, dry_run_results) = match PlanView::drafted(&row)? {
            Some((plan, results)) => (plan, Some(results)),
            None => (self.plan_of(permit, &row).await?, None),
        };
        let now = self.inner.parts.clock.steady();
        let (waiting, closed): (Vec<&Row>, Vec<&Row>) = asked.iter().partition(|row| row.text("status") == "pending");
        let approvals = waiting
            .iter()
            .map(|waiting| PendingApproval::of(&row, waiting, &asked, now))
            .collect::<Result<Vec<_>, _>>()?;
        // Until a run has ended, the column says why it is stopping.
        let ended = word(&row, "status", RunStatus::parse)?.is_final();
        Ok(RunDetails {
            summary: RunSummary::of(&row)?,
            inputs: json(&row, "inputs"),
            plan,
            dry_run_results,
            risk: decoded(&row, "risk")?,
            approve_url: (!approvals.is_empty()).then(|| format!("/runs/{run}/approve")),
            approvals,
            decided_approvals: closed.iter().map(|closed| ClosedApproval::of(&row, closed, now)).collect(),
            doubts: self.doubts(permit, &row).await?,
            result: json(&row, "result"),
            error: if ended { decoded(&row, "error_data")? } else { None },
            rollback: decoded(&row, "rollback")?,
            notify: decoded::<NotifyTargets>(&row, "notify")?,
            messages: self.messages(permit, &row, costly).await?,
            patches: self.patches(permit, run, costly).await?,
        })
    }

    /// The plan of a run without a draft.
    async fn plan_of(&self, permit: &Permit, row: &Row) -> Result<PlanView, EngineError> {
        let (id, version) = (row.text("workflow_id"), row.get("workflow_version").as_int());
        let found = self.inner.workflows.find_stored(permit.tenant(), id, version).await?;
        let inputs = row.get("inputs").as_json().map(Json::to_value).unwrap_or_default();
        let plan = match &found {
            Some(found) => {
                let (nodes, (_, pins)) = (&found.graph.document.nodes, request_of_row(row));
                let inside = self.inner.workflows.stored_children_of(permit.tenant(), nodes, &pins).await?;
                Plan::from_graph(&found.graph, &inputs, &inside.children)
            }
            None => Plan::default(),
        };
        Ok(PlanView::of_plan(&plan)?)
    }

    /// The messages about a run.
    async fn messages(&self, permit: &Permit, run: &Row, costly: &CostFlag) -> Result<Vec<MessageView>, EngineError> {
        // At L3 there are messages only about calls in doubt.
        if run.text("autonomy_level") == Level::ExecuteSilent.as_str() && run.get("in_doubt_since").is_null() {
            return Ok(Vec::new());
        }
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&NOTIFICATIONS, scope).with("run_id", run.uuid("id"));
        let (rows, _) = self.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
        costly.mark_costly(load::are_large(&rows)).await;
        Ok(rows.iter().map(MessageView::of).collect::<Result<_, _>>()?)
    }

    /// The patches of a run.
    async fn patches(&self, permit: &Permit, run: Uuid, costly: &CostFlag) -> Result<Vec<PatchView>, EngineError> {
        let select = Select::from(&RUN_PATCHES, Scope::Tenant(permit.tenant().to_owned())).with("run_id", run);
        let (rows, _) = self.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
        costly.mark_costly(load::are_large(&rows)).await;
        Ok(rows.iter().map(PatchView::of).collect::<Result<_, _>>()?)
    }
}
