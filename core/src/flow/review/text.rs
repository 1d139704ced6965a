//! A review as lines of text, for the terminal and for mail.

use super::{ApprovalStatus, Change, PlannedCall, Review, Subject};
use crate::text::{escape_invisible_line, render_lines};

/// A one-line summary, as a question.
#[must_use]
pub fn title(review: &Review) -> String {
    let workflow = escape_invisible_line(&review.workflow_id);
    let node = escape_invisible_line(review.node_id.as_deref().unwrap_or_default());
    match review.subject {
        Subject::Plan => format!("May this plan of {workflow} run?"),
        Subject::Patch => format!("May the graph of this run of {workflow} be changed?"),
        Subject::Question => format!("{workflow} asks you a question at {node}"),
        Subject::ChildRun => format!("May {node} start a run inside this run of {workflow}?"),
        Subject::Map => format!("May {node} make these {} calls?", review.calls_listed + review.calls_unlisted),
        Subject::Output => format!("May the next steps of {workflow} use what {node} returned?"),
        Subject::Call => format!("May {node} make this call?"),
    }
}

/// The whole review. No line is truncated, and none contains an invisible character.
#[must_use]
pub fn lines(review: &Review) -> Vec<String> {
    let mut lines = vec![title(review)];
    lines.extend(facts(review).into_iter().map(|(label, value)| format!("{label}: {}", escape_invisible_line(&value))));
    if !review.refusals.is_empty() {
        lines.push("It can't be approved, because the dry run was refused:".to_owned());
        lines.extend(review.refusals.iter().map(|why| format!("  {}", escape_invisible_line(why))));
        lines.push("Reject it, or change the step's input to repeat the dry run.".to_owned());
    }
    if !review.changes.is_empty() {
        lines.push("Changed since it was last shown:".to_owned());
        lines.extend(review.changes.iter().flat_map(Change::lines));
    }
    if let Some(question) = &review.question {
        lines.push("The question:".to_owned());
        let prompt = question.prompt.as_deref().unwrap_or("(no prompt, only data)");
        lines.extend(prompt.lines().map(|line| format!("  {}", escape_invisible_line(line))));
        if question.shown != serde_json::json!({}) {
            lines.push("The data:".to_owned());
            lines.extend(render_lines(&question.shown).into_iter().map(|line| format!("  {line}")));
        }
    }
    if let Some(patch) = &review.patch {
        lines.push("The change:".to_owned());
        lines.extend(render_lines(patch).into_iter().map(|line| format!("  {line}")));
    }
    if !review.calls.is_empty() {
        lines.push(calls_title(review));
        let numbered = review.calls.iter().enumerate();
        lines.extend(numbered.flat_map(|(at, call)| call_lines(call, at + 1)));
    }
    lines.extend(risk_lines(review));
    lines
}

/// The heading of the calls, with their number.
#[must_use]
pub fn calls_title(review: &Review) -> String {
    let calls = |count: u64| if count == 1 { "1 call".to_owned() } else { format!("{count} calls") };
    let mut title = format!("What would happen, in this order ({}", calls(review.calls_listed));
    if review.calls_unlisted > 0 {
        title.push_str(&format!(", plus {} unlisted that need their own approval", review.calls_unlisted));
    }
    if !review.maps_unknown.is_empty() {
        let maps = escape_invisible_line(&review.maps_unknown.join(", "));
        title.push_str(&format!(", plus those of {maps}, which need approval once the list is known"));
    }
    title + "):"
}

/// Requester, reason, deadline and status, as labels with unescaped values.
#[must_use]
pub fn facts(review: &Review) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Asked for by", review.requested_by.clone())];
    facts.extend(review.schedule.as_ref().map(|schedule| ("Schedule", schedule.describe())));
    facts.extend(
        (!review.changed_by.is_empty()).then(|| ("Also asked for or changed by", review.changed_by.join(", "))),
    );
    facts.extend((!review.reason.is_empty()).then(|| ("Why you are asked", review.reason.clone())));
    facts.push(("Run", format!("{} at {}", review.run_id, review.autonomy_level)));
    if let Some(risk) = &review.risk {
        facts.push(("Risk", format!("{} ({})", risk.band, risk.score)));
    }
    facts.extend((!review.notifies.is_empty()).then(|| ("Its result is sent to", review.notifies.join(", "))));
    if review.approvals_needed > 1 {
        facts.push(("People needed", review.approvals_needed.to_string()));
    }
    for said in &review.decisions {
        let notes = said.notes.as_deref().map(|notes| format!(": {notes}")).unwrap_or_default();
        facts.push(("Decision", format!("{} by {} at {}{notes}", said.decision, said.by, said.at)));
    }
    match (review.standing.status, &review.expires_at) {
        (ApprovalStatus::Open, Some(end)) => facts.push(("Open until", end.clone())),
        (ApprovalStatus::Open, None) => {}
        _ => facts.push(("Status", review.standing.describe())),
    }
    facts.extend(review.digest.clone().map(|digest| ("Digest", digest)));
    facts
}

fn risk_lines(review: &Review) -> Vec<String> {
    let Some(risk) = review.risk.as_ref().filter(|risk| !risk.reasons.is_empty()) else { return Vec::new() };
    let mut lines = vec![format!("Why the risk is {} ({} points):", risk.band, risk.score)];
    lines.extend(risk.reasons.iter().map(|reason| {
        let times = if reason.places.len() > 1 { format!(" ×{}", reason.places.len()) } else { String::new() };
        format!("  +{} {}{times}", reason.points, escape_invisible_line(&reason.meaning))
    }));
    lines
}

/// The place and what happens there.
#[must_use]
pub fn headline(call: &PlannedCall) -> String {
    let mut line = format!("{} {}", escape_invisible_line(&call.place), escape_invisible_line(&call.what));
    if call.alike_count > 0 {
        let (count, items) = (call.alike_count, call.alike.join(", "));
        line.push_str(&format!(", and {count} more identical calls (items {items})"));
    }
    line
}

/// The results of the dry run and the notes.
#[must_use]
pub fn remarks(call: &PlannedCall) -> Vec<String> {
    let refused = call.refused.iter().map(|why| format!("REFUSED in the dry run: {why}"));
    let failed = call.failed.iter().map(|why| format!("the dry run failed: {why}"));
    let would = call.would.iter().map(|would| format!("dry run: would {would}"));
    let remarks = refused.chain(failed).chain(would).chain(call.notes.iter().cloned());
    remarks.map(|remark| escape_invisible_line(&remark)).collect()
}

fn call_lines(call: &PlannedCall, number: usize) -> Vec<String> {
    let mut lines = vec![format!("  {number}. {}", headline(call))];
    lines.extend(remarks(call).into_iter().map(|remark| format!("     {remark}")));
    let input = call.input.as_ref().map(render_lines).unwrap_or_default();
    lines.extend(input.into_iter().map(|line| format!("     {line}")));
    lines
}

impl Change {
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let place = escape_invisible_line(&self.place);
        let (before, after) = (self.before.as_ref().map(render_lines), self.after.as_ref().map(render_lines));
        let labelled = |label: &str, lines: Vec<String>| match lines.as_slice() {
            [one] => vec![format!("    {label}: {one}")],
            _ => std::iter::once(format!("    {label}:"))
                .chain(lines.into_iter().map(|line| format!("      {line}")))
                .collect(),
        };
        let head = match (&before, &after) {
            (None, _) => format!("  {place} was added"),
            (_, None) => format!("  {place} was removed"),
            _ => format!("  {place}"),
        };
        let mut lines = vec![head];
        lines.extend(before.into_iter().flat_map(|lines| labelled("was", lines)));
        lines.extend(after.into_iter().flat_map(|lines| labelled("is", lines)));
        lines
    }
}
