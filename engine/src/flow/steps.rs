//! The steps of a run with their calls: started ones in graph order, then nodes that have not started.

use super::view::{CallView, PlanView, StepPage, StepView, word};
use super::{Flow, load};
use crate::access::Permit;
use crate::error::EngineError;
use crate::offload::{CostFlag, SizeBudget};
use crate::port::ReadError;
use crate::rows;
use chimera_core::flow::run::{RunStatus, StepStatus};
use chimera_core::flow::tables::{STEPS, TOOL_CALLS};
use chimera_core::limits;
use chimera_core::record::{Cursor, Direction, Json, Row, Scope, Select, Value as Cell};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The cursor prefix of a page with nodes that have not started.
const NOT_STARTED_PREFIX: &str = "node:";

/// A node and the index of a map item.
type Place = (String, Option<u64>);

/// A page of started steps with their calls.
#[derive(Default)]
struct StartedSteps {
    steps: Vec<(Row, Vec<Row>)>,
    bytes: usize,
    next: Option<Cursor>,
}

impl Flow {
    /// A page of a run's steps.
    pub async fn steps(
        &self,
        permit: &Permit,
        run: Uuid,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<StepPage, EngineError> {
        let room = self.reserve_page(&permit.claimant(), SizeBudget::default()).await;
        self.steps_as(permit, run, (limit, cursor), room, |page| page).await
    }

    /// A page of a run's steps as `render` writes it, read with the memory of a page. It ends early when the steps and calls are large, and is then
    /// rendered off the request threads, within its share of memory.
    pub async fn steps_as<T>(
        &self,
        permit: &Permit,
        run: Uuid,
        (limit, cursor): (usize, Option<&str>),
        mut room: SizeBudget,
        render: impl FnOnce(StepPage) -> T,
    ) -> Result<T, EngineError> {
        let records = &*self.inner.parts.records;
        let mut row = load::readable_run(records, permit, run).await?;
        let from = cursor.and_then(|cursor| cursor.strip_prefix(NOT_STARTED_PREFIX));
        let read = async || match from {
            Some(_) => Ok(StartedSteps::default()),
            None => self.started_steps(permit, run, limit, cursor).await,
        };
        let mut started = read().await?;
        // The dry calls are about as large as the plan that shows them.
        let weight = load::weight([&row]).saturating_mul(2).saturating_add(started.bytes);
        if room.covers(weight) {
            room.shrink(weight);
        } else {
            // Whoever waits holds nothing.
            drop((row, started));
            room = self.inner.offload.reserve_to_show(&permit.claimant(), room, weight).await;
            row = load::readable_run(records, permit, run).await?;
            started = read().await?;
        }
        let costly = CostFlag::new(load::is_large(&row));
        let page =
            async { Ok(render(self.steps_of(permit, row, started, (limit, from.unwrap_or("0")), &costly).await?)) };
        let shown = self.offload_when_costly(permit, &costly, Box::pin(page)).await?;
        drop(room);
        shown
    }

    async fn steps_of(
        &self,
        permit: &Permit,
        row: Row,
        started: StartedSteps,
        (limit, from): (usize, &str),
        costly: &CostFlag,
    ) -> Result<StepPage, EngineError> {
        let mut dry = self.dry_calls(permit, &row, costly).await?;
        let mut next_cursor = started.next.as_ref().map(Cursor::encode);
        let room = limit.saturating_sub(started.steps.len());
        costly.mark_costly(started.bytes > limits::JSON_INLINE_BYTES_MAX).await;
        let mut steps = Vec::with_capacity(started.steps.len());
        for (step, calls) in started.steps {
            let place = (step.text("node_id").to_owned(), map_index(&step));
            let mut shown: Vec<CallView> = dry.remove(&place).into_iter().collect();
            for call in &calls {
                shown.push(CallView::of(call)?);
            }
            steps.push(StepView::started(&step, shown)?);
        }
        if next_cursor.is_none() {
            let from = from.parse().map_err(|_| EngineError::invalid_cursor())?;
            let (unbegun, next) = self.unstarted_nodes(row, from, room, &mut dry).await?;
            steps.extend(unbegun);
            next_cursor = next;
        }
        Ok(StepPage { steps, next_cursor })
    }

    /// A page of started steps with their calls.
    async fn started_steps(
        &self,
        permit: &Permit,
        run: Uuid,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<StartedSteps, EngineError> {
        let records = &*self.inner.parts.records;
        let scope = || Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&STEPS, scope()).with("run_id", run).by(&["position"], Direction::Ascending);
        let mut select = select.take(limit);
        if let Some(cursor) = cursor {
            select = select.continue_at(cursor).map_err(ReadError::from)?;
        }
        let page = records.read(select.clone()).await?;
        let mut started = StartedSteps { next: page.next, ..StartedSteps::default() };
        for row in page.rows {
            let calls = Select::from(&TOOL_CALLS, scope()).with("step_id", row.uuid("id"));
            // Calls beyond one page, or beyond this number, are left out.
            let calls = records.read(calls.take(limits::STEP_CALLS_SHOWN_MAX)).await?.rows;
            let bytes = calls.iter().map(Row::bytes).fold(row.bytes(), usize::saturating_add);
            if let Some((last, _)) = started.steps.last()
                && started.bytes.saturating_add(bytes) > limits::PAGE_BYTES_MAX
            {
                started.next = Some(Cursor::after(&select, last));
                break;
            }
            started.bytes = started.bytes.saturating_add(bytes);
            started.steps.push((row, calls));
        }
        started.steps.sort_by_key(|(row, _)| (row.int("position"), row.get("map_index").as_int()));
        Ok(started)
    }

    /// Nodes that have not started, from a position in the graph, and where to continue.
    async fn unstarted_nodes(
        &self,
        row: Row,
        from: usize,
        room: usize,
        dry: &mut BTreeMap<Place, CallView>,
    ) -> Result<(Vec<StepView>, Option<String>), EngineError> {
        let records = &*self.inner.parts.records;
        let rest = match word(&row, "status", RunStatus::parse)? {
            // A dry run starts nothing and completes.
            RunStatus::Completed => StepStatus::Skipped,
            status if status.is_final() => StepStatus::Cancelled,
            _ => StepStatus::Pending,
        };
        let mut started = BTreeSet::new();
        let steps = Select::from(&STEPS, Scope::System).with("run_id", row.uuid("id")).without(load::STEP_DOCUMENTS);
        rows::for_each(records, steps, |row| started.extend([row.text("node_id").to_owned()])).await?;
        // If the workflow can't be loaded any more, only the started steps are shown.
        let graph = load::graph(records, &self.inner.workflows, &row).await;
        let Ok(graph) = graph else { return Ok((Vec::new(), None)) };
        let nodes = graph.nodes.iter().enumerate().skip(from);
        let mut unbegun = nodes.filter(|(_, compiled)| !started.contains(&compiled.node.id));
        let shown = unbegun.by_ref().take(room).map(|(_, compiled)| {
            let tried = dry.remove(&(compiled.node.id.clone(), None));
            StepView::not_started(compiled, rest, tried.into_iter().collect())
        });
        let shown = shown.collect();
        Ok((shown, unbegun.next().map(|(at, _)| format!("{NOT_STARTED_PREFIX}{at}"))))
    }

    /// The dry calls of a drafted run, by the place that they belong to.
    async fn dry_calls(
        &self,
        permit: &Permit,
        run: &Row,
        costly: &CostFlag,
    ) -> Result<BTreeMap<Place, CallView>, EngineError> {
        if run.get("plan").is_null() {
            return Ok(BTreeMap::new());
        }
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&TOOL_CALLS, scope).with("run_id", run.uuid("id"));
        let select = select.with("step_id", Cell::Null);
        let rows = rows::all(&*self.inner.parts.records, select, limits::RUN_ROWS_MAX).await?;
        if rows.is_empty() {
            return Ok(BTreeMap::new());
        }
        costly.mark_costly(load::are_large(&rows)).await;
        let lines = planned_calls(run)?;
        let mut found = BTreeMap::new();
        for row in &rows {
            let shown = CallView::of(row)?;
            // A dry call has no step; it is matched to a plan line by tool and input.
            let mut input = shown.tool_input.as_ref().map(Json::to_value).unwrap_or_default();
            let line = lines.iter().find(|line| {
                if let Some(members) = input.as_object_mut() {
                    members.remove("dry_run");
                    let given = line.input.get("dry_run").cloned();
                    members.extend(given.map(|said| ("dry_run".to_owned(), said)));
                }
                line.tool == shown.tool_name && line.input == input && !found.contains_key(&line.place)
            });
            if let Some(line) = line {
                found.insert(line.place.clone(), shown);
            }
        }
        Ok(found)
    }

    /// The step of a node.
    pub async fn step_of(&self, permit: &Permit, run: Uuid, node: &str) -> Result<Uuid, EngineError> {
        let scope = Scope::Tenant(permit.tenant().to_owned());
        let select = Select::from(&STEPS, scope).with("run_id", run).with("node_id", node).take(1);
        let row = self.inner.parts.records.read(select).await?.rows.into_iter().next();
        row.map(|row| row.uuid("id")).ok_or_else(|| EngineError::not_found("step"))
    }
}

/// A call of the drafted plan.
struct PlannedCall {
    place: Place,
    tool: String,
    input: Value,
}

fn planned_calls(run: &Row) -> Result<Vec<PlannedCall>, EngineError> {
    let lines = PlanView::drafted(run)?.map(|(plan, _)| plan.steps).unwrap_or_default();
    let call = |line: super::view::PlanLine| {
        let input = line.input.and_then(|input| serde_json::from_str(input.get()).ok()).unwrap_or_default();
        Some(PlannedCall { place: (line.node?, line.item), tool: line.tool?, input })
    };
    Ok(lines.into_iter().filter_map(call).collect())
}

fn map_index(step: &Row) -> Option<u64> {
    step.get("map_index").as_int().and_then(|index| u64::try_from(index).ok())
}
