//! Large inputs and outputs: pages are bounded, what needs all of them gets all, and a run stores a bounded amount.

use chimera_core::access::Level;
use chimera_core::flow::call::CheckResult;
use chimera_core::flow::tables::{STEPS, TOOL_CALLS};
use chimera_core::limits;
use chimera_core::record::Row;
use chimera_core::tool::EffectKind;
use chimera_engine::flow::{self, CallFilter, SizeBudget};
use chimera_testkit::flow::{EngineFixture, EngineSetup, ScriptedTool, chain, shown, stage, until, workflow};
use serde_json::{Value, json};
use uuid::Uuid;

const SILENT: Level = Level::ExecuteSilent;
/// The size of a large output in bytes.
const LARGE: usize = 900_000;
/// Steps with a large output: several pages.
const LARGE_STEPS: usize = 20;
/// Items that each get a copy of one large input.
const ITEMS: usize = 600;
/// The size of that input in bytes.
const SHARED: usize = 200_000;

/// A run of many large outputs that waits for a person, and is not in memory.
async fn large_run(setup: EngineSetup) -> (EngineFixture, Uuid) {
    let stage = setup.open().await;
    let mut air = workflow("w").node(json!({"id": "ask", "type": "hitl"})).function("after", "pure", json!({}));
    for n in 0..LARGE_STEPS {
        air = air.function(&format!("n{n}"), "large", json!({"n": n})).edge(&format!("n{n}"), "ask");
    }
    let run = stage.run(&air.edge("ask", "after"), SILENT).await;
    stage.asks(run).await;
    until("it is not in memory", || stage.flow.active_runs() == 0).await;
    (stage, run)
}

/// The plan would be shown several times over to everybody who looks at the run.
#[tokio::test(start_paused = true)]
async fn a_plan_that_is_too_large_to_be_shown_is_refused_before_anybody_is_asked() {
    let stage = stage(1).open().await;
    let mut air = workflow("w").function("a", "pure", json!({"l": "${inputs.l}"}));
    for n in 0..60 {
        air = air.function(&format!("n{n}"), "pure", json!({"l": "${inputs.l}"})).edge("a", &format!("n{n}"));
    }
    let few = stage.run_with(&air, Level::Draft, json!({"l": vec![json!({}); 10]})).await;
    stage.asks(few).await;
    let many = stage.run_with(&air, Level::Draft, json!({"l": vec![json!({}); 9_000]})).await;
    let ended = stage.ended(many).await;
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("PAYLOAD_TOO_LARGE")),
        "{ended:#}"
    );
    assert!(ended.to_string().len() < 4 * 1024 * 1024, "{} bytes", ended.to_string().len());
}

/// However many ask for large runs at once, all are answered in their turn.
#[tokio::test(start_paused = true)]
async fn large_runs_are_shown_a_few_at_a_time_and_all_of_them_are() {
    let stage = stage(1).open().await;
    let air = chain("w", &[("a", "pure"), ("b", "pure")]);
    let inputs = json!({"l": vec![json!({}); limits::JSON_VALUES_MAX - 10]});
    let weight = chimera_core::json::memory_size(&inputs);
    let run = stage.run_with(&air, Level::Draft, inputs).await;
    stage.asks(run).await;
    let shown = (0..3 * limits::LARGE_WORK_BYTES_MAX / weight).map(|n| {
        let (flow, permit) = (stage.flow.clone(), stage.permit(&format!("user_{n}")));
        async move {
            let room = flow.reserve_page(&permit.claimant(), SizeBudget::default()).await;
            flow::show_run_as(&flow, &permit, run, room, |run| serde_json::to_string(&run).unwrap().len()).await
        }
    });
    let shown = futures::future::try_join_all(shown).await.unwrap();
    assert!(shown.len() > 20 && shown.iter().all(|bytes| *bytes == shown[0]));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_read_whole_however_large_its_steps_are() {
    let large = ScriptedTool::new("large", EffectKind::Write).answers(|_, _| Ok(json!({"text": "x".repeat(LARGE)})));
    let asked = large.asked();
    let (stage, run) = large_run(stage(1).tool(large.build())).await;
    let stored: usize = stage.rows_of(&STEPS, run).iter().map(Row::bytes).sum();
    assert!(stored > 2 * limits::PAGE_BYTES_MAX, "{stored} bytes fit into two pages");
    stage.approve("user_ann", run).await;
    assert_eq!(stage.ended(run).await["status"], "completed");
    assert_eq!(asked.count("execute"), LARGE_STEPS, "a step that was not read would be done again");
}

#[tokio::test(start_paused = true)]
async fn steps_and_calls_are_shown_in_pages_of_bounded_size_that_leave_nothing_out() {
    let large = ScriptedTool::new("large", EffectKind::Read).answers(|_, _| Ok(json!({"text": "x".repeat(LARGE)})));
    let (stage, run) = large_run(stage(1).tool(large.build())).await;
    let admin = stage.permit("admin");
    let (mut nodes, mut calls, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let page =
            shown(flow::list_steps(&stage.flow, &admin, run, limits::PAGE_ROWS_MAX, cursor.as_deref()).await.unwrap());
        assert!(page.to_string().len() < limits::PAGE_BYTES_MAX + LARGE);
        for step in page["steps"].as_array().unwrap() {
            nodes.push(step["node_id"].as_str().unwrap().to_owned());
            let made = step["tool_calls"].as_array().unwrap();
            calls += made.len();
            let text = &step["outputs"]["text"];
            assert!(
                made.iter().all(|call| call["tool_output"]["text"] == *text && text.is_string()),
                "{}",
                step["node_id"]
            );
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = Some(next.to_owned());
    }
    nodes.sort_unstable();
    let mut all: Vec<String> = (0..LARGE_STEPS).map(|n| format!("n{n}")).collect();
    all.extend(["after".to_owned(), "ask".to_owned()]);
    all.sort_unstable();
    assert_eq!((nodes, calls), (all, LARGE_STEPS));

    let (mut listed, mut pages, mut cursor) = (0, 0, None);
    loop {
        let filter = CallFilter { limit: limits::PAGE_ROWS_MAX, cursor, ..CallFilter::default() };
        let written = |page| serde_json::to_string(&page).unwrap();
        let text = flow::list_calls(&stage.flow, &admin, filter, written).await.unwrap();
        assert!(text.len() < limits::PAGE_BYTES_MAX + LARGE, "{} bytes", text.len());
        let page: Value = serde_json::from_str(&text).unwrap();
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|call| call["tool_output"]["text"].as_str().unwrap().len() == LARGE));
        assert!(
            items.iter().all(|call| call["run_id"] == run.to_string() && call["run_status"] == "awaiting_approval")
        );
        (listed, pages) = (listed + items.len(), pages + 1);
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert!(listed == LARGE_STEPS && pages > 2, "{listed} calls in {pages} pages");
}

/// The stored size of a run is bounded: each item would get a copy of the same input. None is called, since that is
/// known before the first.
#[tokio::test(start_paused = true)]
async fn a_map_that_copies_a_large_input_ends_before_it_fills_the_store() {
    let stage = stage(1).open().await;
    let items: Vec<usize> = (0..ITEMS).collect();
    let air = workflow("w")
        .map("m", json!(items), "pure", json!({"n": "${item}", "shared": "${inputs.shared}"}))
        .in_parallel(100);
    let run = stage.run_with(&air, SILENT, json!({"shared": "x".repeat(SHARED)})).await;
    let ended = stage.ended(run).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("PAYLOAD_TOO_LARGE")));
    assert!(ended["error"]["message"].as_str().unwrap().contains("600 items of m"), "{}", ended["error"]);
    assert_eq!(stage.rows_of(&TOOL_CALLS, run).len(), 0, "some items were called");
    let input = |row: &Row| {
        row.get("input").as_json().or(row.get("tool_input").as_json()).map_or(0, |input| input.as_str().len())
    };
    for table in [&STEPS, &TOOL_CALLS] {
        let written: usize = stage.rows_of(table, run).iter().map(input).sum();
        assert!(written <= limits::RUN_BYTES_MAX, "{written} bytes of inputs in {}", table.name);
    }
}

/// Half a million values in a megabyte.
fn many() -> Value {
    json!({"many": vec![1; limits::OUTPUT_VALUES_MAX]})
}

/// A write has happened, whatever it returned: it is in doubt, and not repeated.
#[tokio::test(start_paused = true)]
async fn an_output_of_too_many_values_is_not_kept_and_a_write_stays_known() {
    for (effect, status) in
        [(EffectKind::Write, "outcome_unknown"), (EffectKind::Read, "failed"), (EffectKind::Pure, "failed")]
    {
        let tool = ScriptedTool::new("many", effect).answers(|_, _| Ok(many()));
        let asked = tool.asked();
        let stage = stage(1).tool(tool.build()).open().await;
        let run = stage.run(&chain("w", &[("a", "many")]), SILENT).await;
        let step = stage.step(run, "a", status).await;
        assert!(step["error"].to_string().contains("values") || status == "outcome_unknown", "{}", step["error"]);
        assert_eq!(asked.count("execute"), 1, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_check_finds_is_bounded_like_any_output() {
    let tool = ScriptedTool::new("many", EffectKind::Write)
        .answers(|_, _| Ok(many()))
        .on_check(|_| Ok(CheckResult::Happened(many())));
    let asked = tool.asked();
    let stage = stage(1).tool(tool.build()).open().await;
    let run = stage.run(&chain("w", &[("a", "many")]), SILENT).await;
    stage.step(run, "a", "outcome_unknown").await;
    assert_eq!((asked.count("execute"), asked.count("check")), (1, 1));
}
