//! The steps of a run with their calls: started ones in graph order, then nodes that have not started.

use super::view::{CallView, PlanLine, PlanView, StepPage, StepView};
use super::{Flow, load, show};
use crate::access::Permit;
use crate::error::EngineError;
use crate::offload::{CostFlag, SizeBudget};
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::run::{RunStatus, StepStatus};
use chimera_core::flow::tables::{
    RunRow, StepBrief, StepRow, ToolCallRow, WorkItemBrief, steps, tool_calls, work_items,
};
use chimera_core::flow::work::WorkKind;
use chimera_core::limits;
use chimera_core::record::{Cursor, DamagedRows, Direction, Json, Row, Scope, StoredRow, Value as Cell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The cursor prefix of a page with nodes that have not started.
const NOT_STARTED_PREFIX: &str = "node:";

/// A node and the index of a map item.
type Place = (String, Option<u64>);

/// The dry calls of a drafted run, by the place that they belong to.
type DryCalls = BTreeMap<Place, CallView>;

/// Which steps of a run to show.
#[derive(Clone, Copy, Debug)]
pub struct StepFilter<'a> {
    pub run: Uuid,
    pub limit: usize,
    pub cursor: Option<&'a str>,
}

/// A page of started steps with their calls.
#[derive(Default)]
struct StartedSteps {
    steps: Vec<(StepRow, Vec<ToolCallRow>)>,
    bytes: usize,
    next: Option<Cursor>,
}

/// A page of nodes that have not started.
struct UnstartedPage {
    /// The position in the graph to start from.
    from: usize,
    limit: usize,
}

impl<'a> StepFilter<'a> {
    /// The position of the first node that has not started, if the page begins with one.
    fn unstarted(&self) -> Option<&'a str> {
        self.cursor.and_then(|cursor| cursor.strip_prefix(NOT_STARTED_PREFIX))
    }
}

/// A page of a run's steps.
pub async fn list_steps(
    flow: &Flow,
    permit: &Permit,
    run: Uuid,
    limit: usize,
    cursor: Option<&str>,
) -> Result<StepPage, EngineError> {
    let room = flow.reserve_page(&permit.claimant(), SizeBudget::default()).await;
    list_steps_as(flow, permit, StepFilter { run, limit, cursor }, room, |page| page).await
}

/// A page of a run's steps as `render` writes it, read with the memory of a page. It ends early when the steps and
/// calls are large, and is then rendered off the request threads, within its share of memory.
pub async fn list_steps_as<T>(
    flow: &Flow,
    permit: &Permit,
    filter: StepFilter<'_>,
    mut room: SizeBudget,
    render: impl FnOnce(StepPage) -> T,
) -> Result<T, EngineError> {
    let records = &*flow.inner.parts.records;
    let mut row = load::readable_run(records, permit, filter.run).await?;
    let mut started = started_steps(flow, permit, filter).await?;
    // The dry calls are about as large as the plan that shows them.
    let weight = load::weight(std::slice::from_ref(&row)).saturating_mul(2).saturating_add(started.bytes);
    if room.covers(weight) {
        room.shrink(weight);
    } else {
        // Whoever waits holds nothing.
        drop((row, started));
        room = flow.inner.offload.reserve_to_show(&permit.claimant(), room, weight).await;
        row = load::readable_run(records, permit, filter.run).await?;
        started = started_steps(flow, permit, filter).await?;
    }
    let costly = CostFlag::new(load::is_large(&row));
    let page = async { Ok(render(steps_of(flow, row, started, filter, &costly).await?)) };
    let shown = show::offload_when_costly(flow, permit, &costly, Box::pin(page)).await?;
    drop(room);
    shown
}

async fn steps_of(
    flow: &Flow,
    row: RunRow,
    started: StartedSteps,
    filter: StepFilter<'_>,
    costly: &CostFlag,
) -> Result<StepPage, EngineError> {
    let mut dry = dry_calls(flow, &row, costly).await?;
    let mut next_cursor = started.next.as_ref().map(Cursor::encode);
    let limit = filter.limit.saturating_sub(started.steps.len());
    costly.mark_costly(started.bytes > limits::JSON_INLINE_BYTES_MAX).await;
    let mut steps = Vec::with_capacity(started.steps.len());
    for (step, calls) in started.steps {
        let place = (step.node_id.clone(), step.map_index.map(u64::from));
        let mut shown: Vec<CallView> = dry.remove(&place).into_iter().collect();
        shown.extend(calls.into_iter().map(CallView::of));
        let item = item_of(flow, &step).await?;
        steps.push(StepView::started(step, item, shown)?);
    }
    if next_cursor.is_none() {
        let from = filter.unstarted().unwrap_or("0").parse().map_err(|_| EngineError::invalid_cursor())?;
        let (unbegun, next) = unstarted_nodes(flow, row, UnstartedPage { from, limit }, dry).await?;
        steps.extend(unbegun);
        next_cursor = next;
    }
    Ok(StepPage { steps, next_cursor })
}

/// The work item of a running step.
async fn item_of(flow: &Flow, step: &StepRow) -> Result<Option<WorkItemBrief>, EngineError> {
    let waits = step.status == StepStatus::Running && step.work_kind == Some(WorkKind::Worker);
    let Some(item) = step.work_id.filter(|_| waits) else { return Ok(None) };
    let select = WorkItemBrief::select(Scope::Tenant(step.tenant_id.clone())).with(work_items::id, item);
    rows::find(&*flow.inner.parts.records, select).await
}

/// A page of started steps with their calls. Empty if the page begins with a node that has not started.
async fn started_steps(flow: &Flow, permit: &Permit, filter: StepFilter<'_>) -> Result<StartedSteps, EngineError> {
    if filter.unstarted().is_some() {
        return Ok(StartedSteps::default());
    }
    let records = &*flow.inner.parts.records;
    let scope = || Scope::Tenant(permit.tenant().to_owned());
    let select = StepRow::select(scope()).with(steps::run_id, filter.run);
    let mut select = select.by(&[steps::position], Direction::Ascending).take(filter.limit);
    if let Some(cursor) = filter.cursor {
        select = select.continue_at(cursor).map_err(ReadError::from)?;
    }
    let page = records.read(select.clone()).await?;
    let mut started = StartedSteps { next: page.next, ..StartedSteps::default() };
    let mut last = None;
    for row in page.rows {
        let (here, own_bytes, step) = (Cursor::after(&select, &row), row.bytes(), StepRow::decode(row)?);
        let calls = ToolCallRow::select(scope()).with(tool_calls::step_id, step.id);
        // Calls beyond one page, or beyond this number, are left out.
        let calls = records.read(calls.take(limits::STEP_CALLS_SHOWN_MAX)).await?.rows;
        let bytes = calls.iter().map(Row::bytes).fold(own_bytes, usize::saturating_add);
        if last.is_some() && started.bytes.saturating_add(bytes) > limits::PAGE_BYTES_MAX {
            started.next = last;
            break;
        }
        started.bytes = started.bytes.saturating_add(bytes);
        started.steps.push((step, calls.into_iter().map(ToolCallRow::decode).collect::<Result<_, _>>()?));
        last = Some(here);
    }
    started.steps.sort_by_key(|(step, _)| (step.position, step.map_index));
    Ok(started)
}

/// Nodes that have not started, and where to continue.
async fn unstarted_nodes(
    flow: &Flow,
    row: RunRow,
    page: UnstartedPage,
    mut dry: DryCalls,
) -> Result<(Vec<StepView>, Option<String>), EngineError> {
    let records = &*flow.inner.parts.records;
    let rest = match row.status {
        // A dry run starts nothing and completes.
        RunStatus::Completed => StepStatus::Skipped,
        status if status.is_final() => StepStatus::Cancelled,
        _ => StepStatus::Pending,
    };
    let mut started = BTreeSet::new();
    let steps = StepBrief::select(Scope::System).with(steps::run_id, row.id);
    rows::each(records, steps, |step: StepBrief| {
        started.insert(step.node_id);
        Ok(())
    })
    .await?;
    // If the workflow can't be loaded any more, only the started steps are shown.
    let graph = load::graph(records, &flow.inner.workflows, &row).await;
    let Ok(graph) = graph else { return Ok((Vec::new(), None)) };
    let nodes = graph.nodes.iter().enumerate().skip(page.from);
    let mut unbegun = nodes.filter(|(_, compiled)| !started.contains(&compiled.node.id));
    let shown = unbegun.by_ref().take(page.limit).map(|(_, compiled)| {
        let tried = dry.remove(&(compiled.node.id.clone(), None));
        StepView::not_started(compiled, rest, tried.into_iter().collect())
    });
    let shown = shown.collect();
    Ok((shown, unbegun.next().map(|(at, _)| format!("{NOT_STARTED_PREFIX}{at}"))))
}

/// The dry calls of a drafted run.
async fn dry_calls(flow: &Flow, run: &RunRow, costly: &CostFlag) -> Result<DryCalls, EngineError> {
    let Some(plan) = &run.plan else { return Ok(DryCalls::new()) };
    let select = ToolCallRow::select(Scope::Tenant(run.tenant_id.clone())).with(tool_calls::run_id, run.id);
    let select = select.with(tool_calls::step_id, Cell::Null);
    let calls: Vec<ToolCallRow> = rows::list(&*flow.inner.parts.records, select, limits::RUN_ROWS_MAX).await?;
    if calls.is_empty() {
        return Ok(DryCalls::new());
    }
    costly.mark_costly(load::are_large(&calls)).await;
    let lines = planned_calls(plan)?;
    let mut found = DryCalls::new();
    for call in calls {
        // A dry call has no step; it is matched to a plan line by tool and input.
        let mut input = call.tool_input.value()?;
        let line = lines.iter().find(|line| {
            if let Some(members) = input.as_object_mut() {
                members.remove("dry_run");
                let given = line.input.get("dry_run").cloned();
                members.extend(given.map(|said| ("dry_run".to_owned(), said)));
            }
            line.tool == call.tool_name && line.input == input && !found.contains_key(&line.place)
        });
        if let Some(line) = line {
            found.insert(line.place.clone(), CallView::of(call));
        }
    }
    Ok(found)
}

/// The step of a node.
pub async fn find_step(flow: &Flow, permit: &Permit, run: Uuid, node: &str) -> Result<Uuid, EngineError> {
    let select = StepBrief::select(Scope::Tenant(permit.tenant().to_owned()));
    let select = select.with(steps::run_id, run).with(steps::node_id, node);
    let step: Option<StepBrief> = rows::find(&*flow.inner.parts.records, select).await?;
    step.map(|step| step.id).ok_or_else(|| EngineError::unknown("step", node))
}

/// A call of the drafted plan.
struct PlannedCall {
    place: Place,
    tool: String,
    input: Value,
}

fn planned_calls(plan: &Json) -> Result<Vec<PlannedCall>, DamagedRows> {
    let call = |line: PlanLine| {
        let (node, tool) = (line.node?, line.tool?);
        let input = line.input.map(|input| serde_json::from_str(input.get())).transpose();
        let damaged = |error| DamagedRows { what: format!("an input of a plan: {error}") };
        let call = |input: Option<Value>| PlannedCall {
            place: (node, line.covers.item),
            tool,
            input: input.unwrap_or_default(),
        };
        Some(input.map(call).map_err(damaged))
    };
    PlanView::drafted(plan)?.0.steps.into_iter().filter_map(call).collect()
}
