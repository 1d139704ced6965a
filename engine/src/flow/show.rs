//! Lists runs, and shows one with everything needed to decide its approvals.

use super::view::{
    ClosedApproval, ListPage, MessageView, PatchView, PendingApproval, PlanView, RunDetails, RunSummary, title,
};
use super::{Flow, PLAN_PREFIX, doubt, load, lookup, review};
use crate::access::{Permit, RUNS_READ};
use crate::error::EngineError;
use crate::offload::{CostFlag, SizeBudget};
use crate::port::ReadError;
use chimera_core::access::Level;
use chimera_core::flow::cause::ScheduleCause;
use chimera_core::flow::expand;
use chimera_core::flow::plan::Plan;
use chimera_core::flow::run::{RunStatus, request_of_row};
use chimera_core::flow::status::RequestStatus;
use chimera_core::flow::tables::{
    ApprovalRow, DoubtfulRun, ListedRun, NotificationRow, PatchRow, RunRequest, RunRow, notifications, run_patches,
    runs,
};
use chimera_core::flow::title::title_of_request;
use chimera_core::id::IdPrefix;
use chimera_core::limits;
use chimera_core::record::{
    Comparison, Cursor, DamagedRows, Direction, Json, Row, Scope, Select, StoredRow, Value as Cell,
};
use chimera_core::time::Timestamp;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use uuid::Uuid;

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    pub actor: Option<String>,
    pub workflow_id: Option<String>,
    /// Only runs whose id begins so.
    pub id_prefix: Option<IdPrefix>,
    /// Requested at or after this time.
    pub since: Option<Timestamp>,
    /// Requested before this time.
    pub until: Option<Timestamp>,
    /// Only runs with a call whose outcome is unknown.
    pub in_doubt: bool,
    pub limit: usize,
    pub cursor: Option<String>,
}

/// Runs, newest first.
pub async fn list_runs(flow: &Flow, permit: &Permit, filter: RunFilter) -> Result<ListPage<RunSummary>, EngineError> {
    let mut select = ListedRun::select(Scope::Tenant(permit.tenant().to_owned())).by(&[], Direction::Descending);
    let everybody = permit.sees("");
    if !everybody && filter.actor.as_deref().is_some_and(|actor| actor != permit.actor()) {
        return Err(EngineError::missing_scope(RUNS_READ));
    }
    if !everybody {
        select = select.with(runs::actor, permit.actor());
    }
    if let Some(status) = filter.status {
        select = select.with(runs::status, status);
    }
    if let Some(actor) = filter.actor {
        select = select.with(runs::actor, actor);
    }
    if let Some(workflow) = filter.workflow_id {
        select = select.with(runs::workflow_id, workflow);
    }
    if let Some((lowest, highest)) = filter.id_prefix.map(IdPrefix::range) {
        select = select.filter(runs::id, Comparison::AtLeast, lowest).filter(runs::id, Comparison::AtMost, highest);
    }
    if filter.in_doubt {
        select = select.filter(runs::in_doubt_since, Comparison::IsNot, Cell::Null);
    }
    if let Some(since) = filter.since {
        select = select.filter(runs::created_at, Comparison::AtLeast, since);
    }
    if let Some(until) = filter.until {
        select = select.filter(runs::created_at, Comparison::Below, until);
    }
    select = select.take(filter.limit);
    if let Some(cursor) = &filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = flow.inner.parts.records.read(select.clone()).await?;
    let bytes = page.rows.iter().map(Row::bytes).sum();
    let summary = |row| ListedRun::decode(row).map(RunSummary::of);
    let mut items = page.rows.into_iter().map(summary).collect::<Result<Vec<_>, _>>()?;
    name_plans(flow, permit, select, &mut items).await?;
    Ok(ListPage { items, next_cursor: page.next.as_ref().map(Cursor::encode), bytes })
}

/// Titles the runs of plans of a page by what was requested. Where the requests exceed the size of a page, the
/// rest keep the names of their plans.
async fn name_plans(flow: &Flow, permit: &Permit, page: Select, items: &mut [RunSummary]) -> Result<(), EngineError> {
    if !items.iter().any(|item| item.title.starts_with(PLAN_PREFIX)) {
        return Ok(());
    }
    let mut select = RunRequest::select(page.scope.clone()).by(page.order, page.direction).take(page.limit());
    (select.conditions, select.after) = (page.conditions, page.after);
    let plans_end = PLAN_PREFIX.replace('.', "/");
    select = select.filter(runs::workflow_id, Comparison::AtLeast, PLAN_PREFIX);
    select = select.filter(runs::workflow_id, Comparison::Below, plans_end);
    let rows = flow.inner.parts.records.read(select).await?.rows;
    let requests = rows.into_iter().map(RunRequest::decode).collect::<Result<Vec<_>, _>>()?;
    let costly = load::are_large(&requests);
    let name = async {
        for request in requests {
            let title = title_of_request(request.request_payload.as_str());
            let item = items.iter_mut().find(|item| item.run_id == request.id);
            if let (Some(item), Some(title)) = (item, title) {
                item.title = title;
            }
        }
    };
    flow.offload(&permit.claimant(), costly, Box::pin(name)).await
}

/// One run with everything needed to approve it.
pub async fn show_run(flow: &Flow, permit: &Permit, run: Uuid) -> Result<RunDetails, EngineError> {
    let room = flow.reserve_page(&permit.claimant(), SizeBudget::default()).await;
    show_run_as(flow, permit, run, room, |run| run).await
}

/// One run as `render` writes it, read with the memory of a page. A large run is rendered off the request threads,
/// within its share of memory.
pub async fn show_run_as<T>(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    mut room: SizeBudget,
    render: impl FnOnce(RunDetails) -> T,
) -> Result<T, EngineError> {
    let (mut row, mut asked) = rows_shown(flow, permit, run).await?;
    let weight = load::weight(&asked).saturating_add(load::weight(std::slice::from_ref(&row)));
    if room.covers(weight) {
        room.shrink(weight);
    } else {
        // Whoever waits holds nothing.
        drop((row, asked));
        room = flow.inner.offload.reserve_to_show(&permit.claimant(), room, weight).await;
        (row, asked) = rows_shown(flow, permit, run).await?;
    }
    let costly = CostFlag::new(load::is_large(&row) || load::are_large(&asked));
    let shown = async { Ok(render(details(flow, permit, row, asked, &costly).await?)) };
    let shown = offload_when_costly(flow, permit, &costly, Box::pin(shown)).await?;
    drop(room);
    shown
}

/// A run and its approval requests.
async fn rows_shown(flow: &Flow, permit: &Permit, run: Uuid) -> Result<(RunRow, Vec<ApprovalRow>), EngineError> {
    let records = &*flow.inner.parts.records;
    // The requests are read before the run: a digest is shown with what it stands for or with something newer, and
    // then the digest is refused.
    let mut asked = review::requests_of(flow, permit.tenant(), run).await?;
    let mut row = load::readable_run(records, permit, run).await?;
    if row.status == RunStatus::AwaitingApproval && !asked.iter().any(is_pending) {
        // It started to wait between the two reads.
        asked = review::requests_of(flow, permit.tenant(), run).await?;
        row = load::readable_run(records, permit, run).await?;
    }
    Ok((row, asked))
}

/// Runs work that is costly from the start or becomes so.
pub(super) async fn offload_when_costly<T>(
    flow: &Flow,
    permit: &Permit,
    costly: &CostFlag,
    work: Pin<Box<impl Future<Output = T>>>,
) -> Result<T, EngineError> {
    let who = permit.claimant();
    flow.inner.offload.admit(&who, costly.is_set())?;
    Ok(flow.inner.offload.run_when_costly(&who, costly, work).await)
}

async fn details(
    flow: &Flow,
    permit: &Permit,
    mut row: RunRow,
    asked: Vec<ApprovalRow>,
    costly: &CostFlag,
) -> Result<RunDetails, EngineError> {
    let run = row.id;
    let (plan, dry_run_results) = match &row.plan {
        Some(plan) => PlanView::drafted(plan).map(|(plan, results)| (plan, Some(results)))?,
        None => (plan_of(flow, permit, &row).await?, None),
    };
    let now = flow.inner.parts.clock.steady();
    let (waiting, closed): (Vec<&ApprovalRow>, Vec<&ApprovalRow>) = asked.iter().partition(|row| is_pending(row));
    let approvals = waiting.iter().map(|waiting| PendingApproval::of(&row, waiting, &asked, now));
    let approvals = approvals.collect::<Result<Vec<_>, _>>()?;
    let closed = closed.iter().map(|closed| ClosedApproval::of(&row, closed, now));
    let decided_approvals = closed.collect::<Result<_, _>>()?;
    let doubts = match row.in_doubt_since {
        Some(_) => doubt::doubts(flow, permit, &doubtful(&row)).await?,
        None => Vec::new(),
    };
    // Until a run has ended, the column says why it is stopping.
    let error = row.error_data.as_ref().filter(|_| row.status.is_final());
    let title = title(&row.request_payload, row.workflow_id.as_deref());
    Ok(RunDetails {
        plan,
        dry_run_results,
        risk: decoded(row.risk.as_ref())?,
        approve_url: (!approvals.is_empty()).then(|| format!("/runs/{run}/approve")),
        approvals,
        decided_approvals,
        doubts,
        error: decoded(error)?,
        rollback: decoded(row.rollback.as_ref())?,
        notify: decoded(row.notify.as_ref())?,
        messages: messages(flow, permit, &row, costly).await?,
        patches: patches(flow, permit, run, costly).await?,
        schedule: ScheduleCause::of_text(row.request_payload.as_str()),
        inputs: row.inputs.take(),
        result: row.result.take(),
        summary: RunSummary { title, ..RunSummary::of(row.into()) },
    })
}

/// The plan of a run without a draft.
async fn plan_of(flow: &Flow, permit: &Permit, row: &RunRow) -> Result<PlanView, EngineError> {
    let id = row.workflow_id.as_deref().unwrap_or_default();
    let (workflows, tenant) = (&flow.inner.workflows, permit.tenant());
    let (_, pins) = request_of_row(row)?;
    let pinned = workflows.pinned_specs(tenant, &pins).await?;
    let found = lookup::find_stored(workflows, tenant, id, row.workflow_version, &pinned).await?;
    let plan = match &found {
        Some(found) => {
            let inputs = row.inputs.as_ref().map(Json::value).transpose()?.unwrap_or_default();
            let nodes = &found.graph.document.nodes;
            let inside = lookup::stored_children_of(workflows, tenant, nodes, &pins).await?;
            expand(&found.graph, &inputs, &inside.children)
        }
        None => Plan::default(),
    };
    Ok(PlanView::of_plan(&plan)?)
}

/// The messages about a run.
async fn messages(
    flow: &Flow,
    permit: &Permit,
    run: &RunRow,
    costly: &CostFlag,
) -> Result<Vec<MessageView>, EngineError> {
    // At L3 there are messages only about calls in doubt.
    if run.autonomy_level == Some(Level::ExecuteSilent) && run.in_doubt_since.is_none() {
        return Ok(Vec::new());
    }
    let scope = Scope::Tenant(permit.tenant().to_owned());
    let select = NotificationRow::select(scope).with(notifications::run_id, run.id);
    let (rows, _) = flow.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
    let messages = rows.into_iter().map(NotificationRow::decode).collect::<Result<Vec<_>, _>>()?;
    costly.mark_costly(load::are_large(&messages)).await;
    Ok(messages.into_iter().map(MessageView::of).collect::<Result<_, _>>()?)
}

/// The patches of a run.
async fn patches(flow: &Flow, permit: &Permit, run: Uuid, costly: &CostFlag) -> Result<Vec<PatchView>, EngineError> {
    let select = PatchRow::select(Scope::Tenant(permit.tenant().to_owned())).with(run_patches::run_id, run);
    let (rows, _) = flow.inner.parts.records.first(select, limits::PAGE_ROWS_DEFAULT).await?;
    let patches = rows.into_iter().map(PatchRow::decode).collect::<Result<Vec<_>, _>>()?;
    costly.mark_costly(load::are_large(&patches)).await;
    Ok(patches.into_iter().map(PatchView::of).collect())
}

fn is_pending(request: &ApprovalRow) -> bool {
    request.status == RequestStatus::Pending
}

/// A document whose shape is ours.
fn decoded<T: DeserializeOwned>(document: Option<&Json>) -> Result<Option<T>, DamagedRows> {
    document.map(Json::decode).transpose()
}

/// What the doubts of a run need to know about it.
fn doubtful(run: &RunRow) -> DoubtfulRun {
    DoubtfulRun {
        id: run.id,
        actor: run.actor.clone(),
        status: run.status,
        workflow_id: run.workflow_id.clone(),
        rollback: run.rollback.clone(),
        request_payload: run.request_payload.clone(),
    }
}
