//! Renders a run for a terminal: its nodes by graph level, and what waits for a person.
//!
//! Only text is produced here. Redrawing in place requires that the number of lines is known and that no line
//! is wider than the terminal, so lines are truncated here.

use super::table::text;
use chimera_core::flow::cause::ScheduleCause;
use chimera_core::flow::review::{self, Review};
use chimera_core::limits::NAME_COLUMNS_MIN;
use chimera_core::text::escape_invisible_only;
use chimera_core::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) struct RunView<'a> {
    /// The run, as `GET /runs/{id}` gives it.
    pub(crate) run: &'a Value,
    pub(crate) steps: &'a [Value],
    /// The workflow's document; null if it is not known.
    pub(crate) workflow: &'a Value,
    pub(crate) now: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RenderOptions {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    pub(crate) colors: bool,
    /// Whether pending approvals are shown in full; otherwise the caller has shown them.
    pub(crate) reviews: bool,
}

/// The ANSI colour of a status in a list, which may have more words.
pub(crate) fn status_color(status: &str) -> &'static str {
    sign(status.split(' ').next().unwrap_or_default()).1
}

/// Symbol and ANSI colour of a status.
const fn sign(status: &str) -> (&'static str, &'static str) {
    match status.as_bytes() {
        b"completed" => ("✔", "32"),
        b"failed" => ("✘", "31"),
        b"running" | b"judging" => ("●", "36"),
        b"ready" => ("○", "36"),
        b"awaiting_approval" => ("?", "33"),
        b"retry_wait" => ("↻", "33"),
        b"waiting" => ("◷", "36"),
        b"paused" => ("‖", "33"),
        b"outcome_unknown" => ("‼", "35"),
        b"rolled_back" => ("↶", "34"),
        b"cancelled" => ("⊘", "2"),
        b"skipped" => ("–", "2"),
        _ => ("·", "2"),
    }
}

/// The schedule that started the run.
fn cause(sight: &RunView<'_>, canvas: RenderOptions) -> Option<String> {
    let schedule: ScheduleCause = serde_json::from_value(sight.run["schedule"].clone()).ok()?;
    Some(truncate(&format!("  schedule {}", escape_invisible_only(&schedule.describe())), canvas.columns))
}

pub(crate) fn draw(sight: &RunView<'_>, canvas: RenderOptions) -> Vec<String> {
    let mut lines = vec![title(sight, canvas)];
    lines.extend(cause(sight, canvas));
    lines.extend(nodes(sight, canvas));
    lines.extend(open_questions(sight, canvas));
    if lines.len() > canvas.rows {
        let hidden = lines.len() + 1 - canvas.rows.max(1);
        lines.truncate(canvas.rows.saturating_sub(1));
        lines.push(truncate(&format!("… {hidden} more lines"), canvas.columns));
    }
    lines
}

fn title(sight: &RunView<'_>, canvas: RenderOptions) -> String {
    let run = sight.run;
    let status = run["status"].as_str().unwrap_or_default();
    let held = if run["paused"] == true { ", paused" } else { "" };
    let level = run["autonomy_level"].as_str().map_or(String::new(), |level| format!("  {level}"));
    let took = elapsed(&run["created_at"], &run["completed_at"], sight.now).unwrap_or_default();
    let state = format!("  {status}{held}{level}  {took}");
    let name = match run["title"].as_str() {
        Some(title) if run["workflow_id"] != title => text(&run["title"]),
        _ => format!("{} v{}", text(&run["workflow_id"]), text(&run["workflow_version"])),
    };
    let name = truncate(&name, canvas.columns.saturating_sub(state.chars().count()).max(NAME_COLUMNS_MIN));
    paint(&truncate(format!("{name}{state}").trim_end(), canvas.columns), sign(status).1, canvas)
}

/// One line per node, grouped by level.
fn nodes(sight: &RunView<'_>, canvas: RenderOptions) -> Vec<String> {
    let mut of_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for step in sight.steps {
        let node = step["node_id"].as_str().unwrap_or_default();
        if !of_node.contains_key(node) {
            order.push(node);
        }
        of_node.entry(node).or_default().push(step);
    }
    let levels = levels(sight.workflow, &order);
    let last = levels.values().max().copied().unwrap_or(0);
    order.sort_by_key(|node| levels.get(node).copied().unwrap_or(last));
    let width = order.iter().map(|node| node.chars().count()).max().unwrap_or(0);
    let mut above = None;
    let mut lines = Vec::new();
    for node in order {
        let level = levels.get(node).copied().unwrap_or(last);
        let gutter = match level {
            level if above == Some(level) => "│",
            0 => "┌",
            level if level == last => "└",
            _ => "├",
        };
        above = Some(level);
        lines.push(node_line(sight, &NodeRow { gutter, node, width, steps: &of_node[node] }, canvas));
    }
    lines
}

/// A node in the column of nodes.
struct NodeRow<'a> {
    /// Where its level begins and ends.
    gutter: &'static str,
    node: &'a str,
    /// The width of the column.
    width: usize,
    steps: &'a [&'a Value],
}

fn node_line(sight: &RunView<'_>, row: &NodeRow<'_>, canvas: RenderOptions) -> String {
    let NodeRow { gutter, node, width, steps } = *row;
    let whole = steps.iter().find(|step| step["map_index"].is_null()).copied().unwrap_or(steps[0]);
    let status = whole["status"].as_str().unwrap_or_default();
    let (mark, color) = sign(status);
    let tool = whole["tool"].as_str().or_else(|| planned(sight.workflow, node)).or(whole["node_type"].as_str());
    let tool = tool.unwrap_or_default();
    let mut words = format!("{node:width$}  {tool}");
    let mut add = |more: String| {
        words.push_str("  ");
        words.push_str(&more);
    };
    let items = steps.iter().filter(|step| !step["map_index"].is_null()).count();
    if items > 0 {
        let done = steps.iter().filter(|step| !step["map_index"].is_null() && step["status"] == "completed").count();
        add(format!("{done}/{items}"));
    }
    if let Some(time) = elapsed(&whole["started_at"], &whole["completed_at"], sight.now) {
        add(time);
    }
    if whole["attempt"].as_i64().unwrap_or(0) > 1 {
        add(format!("try {}", whole["attempt"]));
    }
    if let Some(judged) = judged(steps) {
        add(judged);
    }
    if let Some(at) = parse_time(&whole["retry_at"]) {
        let left = at.micros() - sight.now.micros();
        // For long waits, show the time of day, too.
        let time = if left >= LONG_MICROS { format!(", at {at}") } else { String::new() };
        match status {
            "retry_wait" => add(format!("again in {}{time}", format_duration(left))),
            "pending" => add(format!("starts in {}{time}", format_duration(left))),
            "waiting" => add(format!("waits {}{time}", format_duration(left))),
            _ => {}
        }
    }
    if let Some(waits) = waits_for(&whole["elsewhere"], sight.now) {
        add(waits);
    }
    if let Some(why) = whole["error"]["message"].as_str() {
        add(text(&Value::String(why.to_owned())));
    }
    let event = &whole["input"]["event"];
    if let (Some(name), Some(key), "waiting") = (event["name"].as_str(), event["key"].as_str(), status) {
        add(text(&Value::String(format!("for {name} {key}"))));
    }
    if !matches!(status, "completed" | "running" | "pending" | "retry_wait" | "waiting") {
        add(status.replace('_', " "));
    }
    let room = canvas.columns.saturating_sub(gutter.chars().count() + 3 + mark.chars().count());
    format!(" {gutter} {}", paint(&format!("{mark} {}", truncate(&words, room.saturating_sub(1))), color, canvas))
}

/// What the judge of a node says, unless everything has passed at once.
fn judged(steps: &[&Value]) -> Option<String> {
    let judgements = || steps.iter().map(|step| &step["judgement"]);
    let rejections: u64 = judgements().filter_map(|judgement| judgement["rejections"].as_u64()).sum();
    let open = judgements().find(|judgement| judgement["verdict"].as_str().is_some_and(|verdict| verdict != "passed"));
    let why = open.and_then(|judgement| judgement["failed"][0]["message"].as_str());
    let why = why.map(|why| format!(": {}", text(&Value::String(why.to_owned())))).unwrap_or_default();
    match (rejections, open) {
        (0, None) => None,
        (0, Some(_)) => Some(format!("escalated by its judge{why}")),
        (count, _) => Some(format!("rejected {count}× by its judge{why}")),
    }
}

/// Whom a step waits for that is done elsewhere.
fn waits_for(elsewhere: &Value, now: Timestamp) -> Option<String> {
    let item = &elsewhere["item"];
    let queue = text(&item["queue"]);
    match (elsewhere["kind"].as_str()?, item["state"].as_str()) {
        ("run", _) => Some(format!("waits for run {}", text(&elsewhere["id"]))),
        ("job", _) => Some("waits for a job".to_owned()),
        (_, Some("claimed")) => {
            let who = item["worker"].as_str().map_or_else(|| text(&item["claimed_by"]), |_| text(&item["worker"]));
            let lease = parse_time(&item["lease_until"]).map(|end| end.micros() - now.micros());
            let lease = lease.map_or(String::new(), |left| format!(", lease ends in {}", format_duration(left)));
            let stop = if item["cancel_requested"] == true { ", asked to stop" } else { "" };
            Some(format!("{who} works on it (queue {queue}{lease}{stop})"))
        }
        (_, Some("queued")) => Some(format!("waits for a worker (queue {queue})")),
        _ => Some("waits for a worker".to_owned()),
    }
}

/// From this length on, a wait also shows when it ends.
const LONG_MICROS: i64 = 60_000_000;

/// The tool of a node that has not started yet.
fn planned<'a>(workflow: &'a Value, node: &str) -> Option<&'a str> {
    let nodes = workflow["nodes"].as_array()?;
    nodes.iter().find(|found| found["id"] == node)?["fn"].as_str()
}

/// Pending approvals and unknown outcomes, with the commands that resolve them.
fn open_questions(sight: &RunView<'_>, canvas: RenderOptions) -> Vec<String> {
    let run = text(&sight.run["run_id"]);
    let mut lines = Vec::new();
    for approval in sight.run["approvals"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let what = approval["node_id"].as_str().unwrap_or("the plan");
        let until = approval["expires_at"].as_str().map_or(String::new(), |end| format!(", until {end}"));
        let needed = approval["approvals_needed"].as_i64().unwrap_or(1);
        let people = if needed > 1 { format!(" ({needed} people)") } else { String::new() };
        lines.push(String::new());
        lines.push(paint(
            &truncate(&format!("? {what} waits for approval{people}{until}"), canvas.columns),
            "33",
            canvas,
        ));
        if canvas.reviews {
            lines.extend(review_lines(approval, canvas.columns));
        }
        if approval["digest"].is_string() {
            let digest = text(&approval["digest"]);
            // Commands are wrapped, never truncated: they are meant to be copied.
            if is_approvable(approval) {
                lines.extend(wrap(&format!("  chimera runs approve {run} --digest {digest}"), canvas.columns));
            }
            lines.extend(wrap(&format!("  chimera runs reject {run} --digest {digest}"), canvas.columns));
        }
    }
    for item in sight.run["doubts"].as_array().map(Vec::as_slice).unwrap_or_default() {
        lines.push(String::new());
        lines.push(paint(&truncate(&doubt_headline(item, sight.now), canvas.columns), "35", canvas));
        for command in item["resolve_commands"].as_array().into_iter().flatten() {
            lines.extend(wrap(&format!("  {}", text(command)), canvas.columns));
        }
    }
    lines
}

/// Whether a request can be approved: a plan whose dry run was refused can only be rejected.
pub(crate) fn is_approvable(approval: &Value) -> bool {
    approval["review"]["refusals"].as_array().is_none_or(Vec::is_empty)
}

/// The review as the web page and the mail show it; long lines are wrapped, never truncated.
pub(crate) fn review_lines(approval: &Value, columns: usize) -> Vec<String> {
    let Ok(review) = serde_json::from_value::<Review>(approval["review"].clone()) else { return Vec::new() };
    let lines = review::lines(&review);
    lines.iter().flat_map(|line| wrap_indented(&format!("  {}", escape_invisible_only(line)), columns)).collect()
}

/// Wraps a line, keeping its indent.
fn wrap_indented(line: &str, columns: usize) -> Vec<String> {
    let indent = line.chars().take_while(|c| *c == ' ').count() + 2;
    let room = columns.saturating_sub(indent).max(1);
    let letters: Vec<char> = line.chars().collect();
    if letters.len() <= columns {
        return vec![line.to_owned()];
    }
    let (first, rest) = letters.split_at(columns.max(1).min(letters.len()));
    let rest = rest.chunks(room).map(|part| format!("{}{}", " ".repeat(indent), part.iter().collect::<String>()));
    std::iter::once(first.iter().collect()).chain(rest).collect()
}

/// The headline of a call whose outcome is unknown.
pub(crate) fn doubt_headline(item: &Value, now: Timestamp) -> String {
    let index = item["map_index"].as_i64().map_or(String::new(), |index| format!("[{index}]"));
    let node = format!("{}{index}", text(&item["node_id"]));
    let what = if item["call"] == "undo" { "outcome of the undo" } else { "outcome" };
    let long = elapsed(&item["since"], &Value::Null, now).map_or(String::new(), |long| format!(" for {long}"));
    format!("‼ {what} unknown{long}: {node} ({}). Check the other system, then run one of:", text(&item["tool"]))
}

/// The level of each node: the longest path from a node without predecessors.
fn levels<'a>(workflow: &Value, nodes: &[&'a str]) -> BTreeMap<&'a str, usize> {
    let place: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (*node, at)).collect();
    let edges: Vec<(usize, usize)> = workflow["edges"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|edge| Some((*place.get(edge["from"].as_str()?)?, *place.get(edge["to"].as_str()?)?)))
        .collect();
    let mut out = vec![Vec::new(); nodes.len()];
    let mut open = vec![0_usize; nodes.len()];
    for (from, to) in edges {
        out[from].push(to);
        open[to] += 1;
    }
    let mut level = vec![0; nodes.len()];
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|node| open[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for next in &out[node] {
            level[*next] = level[*next].max(level[node] + 1);
            open[*next] -= 1;
            if open[*next] == 0 {
                ready.push(*next);
            }
        }
    }
    nodes.iter().copied().zip(level).collect()
}

fn parse_time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Elapsed time, up to now if it has not ended.
pub(crate) fn elapsed(from: &Value, to: &Value, now: Timestamp) -> Option<String> {
    let from = parse_time(from)?;
    Some(format_duration(parse_time(to).unwrap_or(now).micros() - from.micros()))
}

fn format_duration(micros: i64) -> String {
    match micros.max(0) / 1_000 {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms @ 60_000..3_600_000 => format!("{}:{:02} min", ms / 60_000, ms / 1_000 % 60),
        ms => format!("{}:{:02} h", ms / 3_600_000, ms / 60_000 % 60),
    }
}

fn paint(text: &str, color: &str, canvas: RenderOptions) -> String {
    let text = escape_invisible_only(text);
    if canvas.colors { format!("\u{1b}[{color}m{text}\u{1b}[0m") } else { text.into_owned() }
}

/// Truncates to `columns`.
fn truncate(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Wraps at `columns`.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(columns.max(1)).map(|line| line.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CANVAS: RenderOptions = RenderOptions { columns: 80, rows: 40, colors: false, reviews: true };

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}.000000Z")
    }

    fn drawn(canvas: RenderOptions) -> String {
        let run = json!({
            "run_id": "r", "status": "awaiting_approval", "workflow_id": "w", "workflow_version": 3, "paused": false,
            "autonomy_level": "L2_ExecuteNotify", "created_at": at(0), "completed_at": null,
            "approvals": [{"node_id": "review", "digest": "ab12", "approvals_needed": 2, "expires_at": at(59),
                "action": {"input": {"prompt": "Send\nit?", "show": {}}}}],
            "doubts": [{"node_id": "lost", "map_index": null, "tool": "t", "call": "execute", "since": at(3),
                "resolve_commands": ["chimera runs resolve r s --happened", "chimera runs resolve r s --never"]}],
        });
        let step = |node: &str, status: &str, more: Value| {
            let mut step =
                json!({"node_id": node, "node_type": "function", "status": status, "tool": "t", "attempt": 1});
            step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            step
        };
        let steps = [
            step("first", "completed", json!({"started_at": at(0), "completed_at": at(1)})),
            step("left", "retry_wait", json!({"attempt": 2, "retry_at": at(14), "error": {"message": "gone"}})),
            step("right", "running", json!({"started_at": at(1)})),
            step("right", "completed", json!({"map_index": 0})),
            step("right", "running", json!({"map_index": 1})),
            step("review", "awaiting_approval", json!({"tool": null, "node_type": "hitl"})),
            step("lost", "outcome_unknown", json!({})),
            step(
                "paid",
                "waiting",
                json!({"tool": null, "node_type": "wait", "retry_at": at(14), "input": {"event": {"name": "payment.received", "key": "17"}}}),
            ),
            step("timer", "pending", json!({"retry_at": at(13)})),
            step("tomorrow", "pending", json!({"retry_at": "2026-01-02T00:00:00Z"})),
            step(
                "queued",
                "running",
                json!({"elsewhere": {"kind": "worker", "item": {"state": "queued", "queue": "q"}}}),
            ),
            step(
                "held",
                "running",
                json!({"elsewhere": {"kind": "worker", "item": {
                "state": "claimed", "queue": "q", "claimed_by": "w", "worker": "box-7", "lease_until": at(40)}}}),
            ),
            step("last", "pending", json!({"step_id": null})),
        ];
        let edges = [("first", "left"), ("first", "right"), ("right", "lost"), ("left", "review"), ("review", "last")];
        let edges: Vec<Value> = edges.iter().map(|(from, to)| json!({"from": from, "to": to})).collect();
        let workflow = json!({ "edges": edges });
        let now = at(10).parse().unwrap();
        draw(&RunView { run: &run, steps: &steps, workflow: &workflow, now }, canvas).join("\n")
    }

    #[test]
    fn nodes_stand_by_level_with_time_tries_countdown_and_what_to_do() {
        insta::assert_snapshot!(drawn(CANVAS));
    }

    #[test]
    fn nothing_is_wider_or_longer_than_the_terminal() {
        for size in 0..3 {
            assert!(
                drawn(RenderOptions { columns: size, rows: size, colors: true, reviews: true }).lines().count()
                    <= size.max(1)
            );
        }
        let text = drawn(RenderOptions { columns: 24, rows: 6, colors: false, reviews: true });
        assert_eq!(text.lines().count(), 6);
        assert!(text.lines().all(|line| line.chars().count() <= 24), "{text}");
    }

    #[test]
    fn colours_are_only_there_when_asked_for() {
        assert!(drawn(RenderOptions { colors: true, ..CANVAS }).contains("\u{1b}[32m✔ first"));
        assert!(!drawn(CANVAS).contains('\u{1b}'));
    }

    #[test]
    fn lengths_of_time_are_short_to_read() {
        let micros = [999_000, 1_234_000, 61_000_000, 7_260_000_000, -5];
        assert_eq!(micros.map(format_duration), ["999 ms", "1.2 s", "1:01 min", "2:01 h", "0 ms"]);
    }
}
