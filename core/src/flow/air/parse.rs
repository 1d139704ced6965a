//! Reads a workflow document, every member by name.
//!
//! Nothing here knows of tools, types or the order of nodes. Unknown members are refused, because a
//! mistyped option that is silently ignored is worse than an error.

use super::document::{
    Approval, Body, Cache, ChildWorkflow, Document, Edge, Function, Hitl, Join, MapBody, MapItem, Node, Retry,
};
use super::judge::{Judge, read_judge};
use super::logging::read_logging;
use super::problem::{ProblemCode, Problems};
use super::read::Members;
use super::wait;
use crate::limits::{
    APPROVALS_NEEDED_MAX, APPROVERS_MAX, FLOW_SECONDS_MAX, MAP_PARALLEL_DEFAULT, MAP_PARALLEL_MAX, PRIORITY_MAX,
    PRIORITY_MIN, RETRIES_MAX, WORKFLOW_EDGES_MAX, WORKFLOW_ID_CHARS_MAX, WORKFLOW_NODES_MAX,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Stands for the currently running node in a patch. Reserved: no node may have this id.
pub const CURRENT_NODE: &str = "CURRENT_NODE";

const VERSIONS: &[&str] = &["1.0", "0.1"];
const KINDS: &[&str] = &["function", "hitl", "workflow", "map", "wait", "agent", "swarm"];

/// Whether a text is a valid node id.
#[must_use]
pub fn is_node_id(id: &str) -> bool {
    let mut letters = id.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
        && id.len() <= 64
        && id != CURRENT_NODE
}

/// Whether a text is a valid workflow id.
fn is_workflow_id(id: &str) -> bool {
    let good = |letter: u8| letter.is_ascii_alphanumeric() || b"_-.".contains(&letter);
    !id.is_empty()
        && id.len() <= WORKFLOW_ID_CHARS_MAX
        && id.bytes().all(good)
        && id.as_bytes()[0].is_ascii_alphanumeric()
}

/// What can be read of a document. Names that are missing or malformed are empty. `None` after a problem that
/// leaves no graph to check.
pub(super) fn read_document(value: Value, out: &mut Problems) -> Option<Document> {
    if !value.is_object() {
        Members::of(value, "", out).finish(out);
        return None;
    }
    let mut members = Members::of(value, "", out);
    let fits = |name: &str, most: usize| match members.peek(name) {
        None => true,
        Some(list) => list.as_array().is_some_and(|list| list.len() <= most),
    };
    let has_graph = fits("nodes", WORKFLOW_NODES_MAX) && fits("edges", WORKFLOW_EDGES_MAX);
    let document = Document {
        air_version: members.text("air_version", out),
        workflow_id: read_workflow_id(&mut members, out),
        description: members.optional_text("description", out),
        inputs: members.object("inputs", out).map(Value::Object),
        outputs: members.object("outputs", out),
        timeout_seconds: members.count("timeout_seconds", 1..=FLOW_SECONDS_MAX, out),
        log_executions: read_logging(&mut members, out),
        nodes: read_nodes(&mut members, "nodes", WORKFLOW_NODES_MAX, out),
        edges: read_edges(&mut members, "edges", WORKFLOW_EDGES_MAX, out),
    };
    if !document.air_version.is_empty() && !VERSIONS.contains(&document.air_version.as_str()) {
        out.add(ProblemCode::InvalidValue, "/air_version", "air_version must be \"1.0\" or \"0.1\"");
    }
    if document.nodes.is_empty() && out.is_empty() {
        out.add(ProblemCode::InvalidValue, "/nodes", "a workflow needs at least one node");
    }
    members.finish(out);
    Some(document).filter(|document| has_graph && !document.nodes.is_empty())
}

/// The nodes in the member `name`.
pub(crate) fn read_nodes(members: &mut Members, name: &'static str, most: usize, out: &mut Problems) -> Vec<Node> {
    let path = members.path(name);
    if members.peek(name).is_none() {
        out.add(ProblemCode::MissingMember, path.as_str(), format!("{name} is missing"));
    }
    let items = members.list(name, out).unwrap_or_default();
    if report_too_many(items.len(), most, &path, out) {
        return Vec::new();
    }
    let read = |(at, item)| read_node(item, format!("{path}/{at}"), out);
    items.into_iter().enumerate().map(read).collect()
}

/// The edges in the member `name`.
pub(crate) fn read_edges(members: &mut Members, name: &'static str, most: usize, out: &mut Problems) -> Vec<Edge> {
    let path = members.path(name);
    let items = members.list(name, out).unwrap_or_default();
    if report_too_many(items.len(), most, &path, out) {
        return Vec::new();
    }
    let read = |(at, item)| {
        let mut members = Members::of(item, format!("{path}/{at}"), out);
        let edge = Edge {
            from: members.text("from", out),
            to: members.text("to", out),
            condition: members.optional_text("condition", out),
        };
        members.finish(out);
        edge
    };
    items.into_iter().enumerate().map(read).collect()
}

fn report_too_many(count: usize, most: usize, path: &str, out: &mut Problems) -> bool {
    if count > most {
        out.add(ProblemCode::TooLarge, path, format!("{count} items, at most {most}"));
    }
    count > most
}

fn read_workflow_id(members: &mut Members, out: &mut Problems) -> String {
    let id = members.text("workflow_id", out);
    if !id.is_empty() && !is_workflow_id(&id) {
        let reason = format!(
            "a workflow id consists of letters, digits, `_`, `-` and `.`, begins with a letter or digit and has at most {WORKFLOW_ID_CHARS_MAX} characters"
        );
        out.add(ProblemCode::InvalidId, members.path("workflow_id"), reason);
        return String::new();
    }
    id
}

fn read_node(value: Value, path: String, out: &mut Problems) -> Node {
    let mut members = Members::of(value, path, out);
    let id = members.text("id", out);
    if !id.is_empty() && !is_node_id(&id) {
        let reason = if id == CURRENT_NODE {
            "CURRENT_NODE is reserved for patches".to_owned()
        } else {
            "a node id consists of letters, digits and `_`, does not begin with a digit and has at most 64 characters"
                .to_owned()
        };
        out.add(ProblemCode::InvalidId, members.path("id"), reason);
    }
    let kind = members.text("type", out);
    if kind == "wait" {
        wait::check_members(&members, out);
    }
    let mut judge = None;
    let node = Node {
        id,
        join: read_join(&mut members, out),
        delay_seconds: members.count("delay_seconds", 0..=FLOW_SECONDS_MAX, out).unwrap_or(0),
        timeout_seconds: members.count("timeout_seconds", 1..=FLOW_SECONDS_MAX, out),
        retry: read_retry(&mut members, out),
        requires_approval: read_requires_approval(&mut members, out),
        priority: read_priority(&mut members, out),
        body: read_body(&kind, &mut members, &mut judge, out),
        judge: None,
    };
    members.finish(out);
    Node { judge: judge.map(Box::new), ..node }
}

fn read_priority(members: &mut Members, out: &mut Problems) -> Option<i32> {
    let bounds = i64::from(PRIORITY_MIN)..=i64::from(PRIORITY_MAX);
    members.number("priority", bounds, out).and_then(|number| i32::try_from(number).ok())
}

fn read_join(members: &mut Members, out: &mut Problems) -> Join {
    match members.optional_text("join", out).as_deref() {
        None | Some("all") => Join::All,
        Some("any") => Join::Any,
        Some(_) => {
            out.add(ProblemCode::InvalidValue, members.path("join"), "join must be \"all\" or \"any\"");
            Join::All
        }
    }
}

fn read_retry(members: &mut Members, out: &mut Problems) -> Option<Retry> {
    let mut inner = members.inner("retry", out)?;
    let max = inner.count("max", 0..=RETRIES_MAX, out).unwrap_or(RETRIES_MAX);
    inner.finish(out);
    Some(Retry { max })
}

/// `true` is short for one approval by any person.
fn read_requires_approval(members: &mut Members, out: &mut Problems) -> Option<Approval> {
    let path = members.path("requires_approval");
    match members.take("requires_approval")? {
        Value::Bool(demanded) => demanded.then(Approval::default),
        other => Some(read_approval(Members::of(other, path, out), out)),
    }
}

pub(super) fn read_approval(mut members: Members, out: &mut Problems) -> Approval {
    let approvals_needed = members.count("approvals_needed", 1..=APPROVALS_NEEDED_MAX, out).unwrap_or(1);
    let path = members.path("approvers");
    let items = members.list("approvers", out).unwrap_or_default();
    report_too_many(items.len(), APPROVERS_MAX, &path, out);
    let approvers = items.into_iter().enumerate().filter_map(|(at, item)| match item {
        Value::String(pattern) if !pattern.is_empty() && pattern.len() <= 256 => Some(pattern),
        _ => {
            out.add(
                ProblemCode::InvalidValue,
                format!("{path}/{at}"),
                "an approver must be an actor pattern, a string",
            );
            None
        }
    });
    let approvers: Vec<String> = approvers.collect();
    let people: BTreeSet<&str> = approvers.iter().map(String::as_str).collect();
    // A pattern may match any number of people; a plain name is one.
    let enough = people.is_empty() || people.iter().any(|name| name.contains('*'));
    if !enough && people.len() < usize::try_from(approvals_needed).unwrap_or(usize::MAX) {
        let reason = format!("{approvals_needed} people must approve, but only {} may", people.len());
        out.add(ProblemCode::InvalidValue, members.path("approvals_needed"), reason);
    }
    let approval = Approval {
        approvals_needed,
        approvers,
        other_than_requester: members.flag("other_than_requester", out),
        expires_seconds: members.count("expires_seconds", 1..=FLOW_SECONDS_MAX, out),
    };
    members.finish(out);
    approval
}

/// The body of a node, and the judge that is written beside it or, in a map, inside `do`.
fn read_body(kind: &str, members: &mut Members, judge: &mut Option<Judge>, out: &mut Problems) -> Body {
    match kind {
        "function" => {
            *judge = read_judge(members, out);
            Body::Function(read_function(members, out))
        }
        "hitl" => Body::Hitl(Hitl {
            prompt: members.optional_text("prompt", out),
            show: members.take("show"),
            approval: members.inner("approval", out).map(|inner| read_approval(inner, out)).unwrap_or_default(),
        }),
        "workflow" => {
            *judge = read_judge(members, out);
            Body::Workflow(read_child(members, out))
        }
        "map" => Body::Map(read_map(members, judge, out)),
        "wait" => Body::Wait(wait::read(members, out)),
        "agent" => {
            check_agent(members, out);
            Body::Agent(members.take_rest())
        }
        "swarm" => {
            check_swarm(members, out);
            Body::Swarm(members.take_rest())
        }
        unknown => {
            if !unknown.is_empty() {
                let guess = crate::text::did_you_mean(unknown, KINDS.iter().copied());
                let reason = format!("unknown node type {unknown:?}{guess}; expected one of {}", KINDS.join(", "));
                out.add(ProblemCode::InvalidValue, members.path("type"), reason);
            }
            Body::Agent(members.take_rest())
        }
    }
}

fn read_function(members: &mut Members, out: &mut Problems) -> Function {
    let tool = members.text("fn", out);
    Function {
        tool,
        inputs: members.object("inputs", out).unwrap_or_default(),
        cache: members.inner("cache", out).map(|mut inner| {
            let cache = Cache { ttl_seconds: inner.count("ttl_seconds", 1..=FLOW_SECONDS_MAX, out) };
            inner.finish(out);
            cache
        }),
    }
}

fn read_child(members: &mut Members, out: &mut Problems) -> ChildWorkflow {
    ChildWorkflow {
        workflow_id: read_workflow_id(members, out),
        version: members.number("version", 1..=i64::MAX, out),
        inputs: members.object("inputs", out).unwrap_or_default(),
    }
}

fn read_map(members: &mut Members, judge: &mut Option<Judge>, out: &mut Problems) -> MapBody {
    let over = members.value("over", out);
    let max_parallel = members.count("max_parallel", 1..=MAP_PARALLEL_MAX, out).unwrap_or(MAP_PARALLEL_DEFAULT);
    let inner = members.value("do", out);
    let mut inner = Members::of(inner, members.path("do"), out);
    let kind = inner.text("type", out);
    *judge = read_judge(&mut inner, out);
    let item = match kind.as_str() {
        "workflow" => MapItem::Workflow(read_child(&mut inner, out)),
        "function" => MapItem::Function(read_function(&mut inner, out)),
        _ => {
            out.add(ProblemCode::InvalidValue, inner.path("type"), "type must be \"function\" or \"workflow\" here");
            inner.take_rest();
            MapItem::Function(Function { tool: String::new(), inputs: serde_json::Map::new(), cache: None })
        }
    };
    inner.finish(out);
    MapBody { over, max_parallel, item }
}

/// An agent node needs a name or a goal. The rest is validated by its own room.
fn check_agent(members: &mut Members, out: &mut Problems) {
    require_one_text(members, &["agent", "goal"], out);
}

/// A swarm node needs a goal.
fn check_swarm(members: &mut Members, out: &mut Problems) {
    require_one_text(members, &["goal"], out);
}

fn require_one_text(members: &Members, names: &[&str], out: &mut Problems) {
    let has =
        names.iter().any(|name| members.peek(name).is_some_and(|value| value.as_str().is_some_and(|t| !t.is_empty())));
    if !has {
        let reason = format!("a node of this type needs a non-empty string {}", names.join(" or "));
        out.add(ProblemCode::MissingMember, members.path(names[0]), reason);
    }
    if members.peek("inputs").is_some_and(|inputs| !inputs.is_object()) {
        out.add(ProblemCode::InvalidValue, members.path("inputs"), "inputs must be an object");
    }
}
