//! A review as lines of text, for the terminal and for mail.

use super::{ApprovalStatus, Change, PlannedCall, Review, Subject};
use crate::text::{escape_invisible_line, render_lines};

impl Review {
    /// A one-line summary, as a question.
    #[must_use]
    pub fn title(&self) -> String {
        let workflow = escape_invisible_line(&self.workflow_id);
        let node = escape_invisible_line(self.node_id.as_deref().unwrap_or_default());
        match self.subject {
            Subject::Plan => format!("May this plan of {workflow} run?"),
            Subject::Patch => format!("May the graph of this run of {workflow} be changed?"),
            Subject::Question => format!("{workflow} asks you a question at {node}"),
            Subject::ChildRun => format!("May {node} start a run inside this run of {workflow}?"),
            Subject::Map => format!("May {node} make these {} calls?", self.calls_listed + self.calls_unlisted),
            Subject::Call => format!("May {node} make this call?"),
        }
    }

    /// The whole review. No line is truncated, and none contains an invisible character.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.title()];
        lines.extend(
            self.facts().into_iter().map(|(label, value)| format!("{label}: {}", escape_invisible_line(&value))),
        );
        if !self.refusals.is_empty() {
            lines.push("It can't be approved, because the dry run was refused:".to_owned());
            lines.extend(self.refusals.iter().map(|why| format!("  {}", escape_invisible_line(why))));
            lines.push("Reject it, or change the step's input to repeat the dry run.".to_owned());
        }
        if !self.changes.is_empty() {
            lines.push("Changed since it was last shown:".to_owned());
            lines.extend(self.changes.iter().flat_map(Change::lines));
        }
        if let Some(question) = &self.question {
            lines.push("The question:".to_owned());
            let prompt = question.prompt.as_deref().unwrap_or("(no prompt, only data)");
            lines.extend(prompt.lines().map(|line| format!("  {}", escape_invisible_line(line))));
            if question.shown != serde_json::json!({}) {
                lines.push("The data:".to_owned());
                lines.extend(render_lines(&question.shown).into_iter().map(|line| format!("  {line}")));
            }
        }
        if let Some(patch) = &self.patch {
            lines.push("The change:".to_owned());
            lines.extend(render_lines(patch).into_iter().map(|line| format!("  {line}")));
        }
        if !self.calls.is_empty() {
            lines.push(self.calls_title());
            let numbered = self.calls.iter().enumerate();
            lines.extend(numbered.flat_map(|(at, call)| call.lines(at + 1)));
        }
        lines.extend(self.risk_lines());
        lines
    }

    /// The heading of the calls, with their number.
    #[must_use]
    pub fn calls_title(&self) -> String {
        let calls = |count: u64| if count == 1 { "1 call".to_owned() } else { format!("{count} calls") };
        let mut title = format!("What would happen, in this order ({}", calls(self.calls_listed));
        if self.calls_unlisted > 0 {
            title.push_str(&format!(", plus {} unlisted that need their own approval", self.calls_unlisted));
        }
        if !self.maps_unknown.is_empty() {
            let maps = escape_invisible_line(&self.maps_unknown.join(", "));
            title.push_str(&format!(", plus those of {maps}, which need approval once the list is known"));
        }
        title + "):"
    }

    /// Requester, reason, deadline and status, as labels with unescaped values.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("Asked for by", self.requested_by.clone())];
        facts.extend(self.schedule.as_ref().map(|schedule| ("Schedule", schedule.describe())));
        facts.extend(
            (!self.changed_by.is_empty()).then(|| ("Also asked for or changed by", self.changed_by.join(", "))),
        );
        facts.extend((!self.reason.is_empty()).then(|| ("Why you are asked", self.reason.clone())));
        facts.push(("Run", format!("{} at {}", self.run_id, self.autonomy_level)));
        if let Some(risk) = &self.risk {
            facts.push(("Risk", format!("{} ({})", risk.band, risk.score)));
        }
        facts.extend((!self.notifies.is_empty()).then(|| ("Its result is sent to", self.notifies.join(", "))));
        if self.approvals_needed > 1 {
            facts.push(("People needed", self.approvals_needed.to_string()));
        }
        for said in &self.decisions {
            let notes = said.notes.as_deref().map(|notes| format!(": {notes}")).unwrap_or_default();
            facts.push(("Decision", format!("{} by {} at {}{notes}", said.decision, said.by, said.at)));
        }
        match (self.standing.status, &self.expires_at) {
            (ApprovalStatus::Open, Some(end)) => facts.push(("Open until", end.clone())),
            (ApprovalStatus::Open, None) => {}
            _ => facts.push(("Status", self.standing.describe())),
        }
        facts.extend(self.digest.clone().map(|digest| ("Digest", digest)));
        facts
    }

    fn risk_lines(&self) -> Vec<String> {
        let Some(risk) = self.risk.as_ref().filter(|risk| !risk.reasons.is_empty()) else { return Vec::new() };
        let mut lines = vec![format!("Why the risk is {} ({} points):", risk.band, risk.score)];
        lines.extend(risk.reasons.iter().map(|reason| {
            let times = if reason.places.len() > 1 { format!(" ×{}", reason.places.len()) } else { String::new() };
            format!("  +{} {}{times}", reason.points, escape_invisible_line(&reason.meaning))
        }));
        lines
    }
}

impl PlannedCall {
    /// The place and what happens there.
    #[must_use]
    pub fn headline(&self) -> String {
        let mut line = format!("{} {}", escape_invisible_line(&self.place), escape_invisible_line(&self.what));
        if self.alike_count > 0 {
            let (count, items) = (self.alike_count, self.alike.join(", "));
            line.push_str(&format!(", and {count} more identical calls (items {items})"));
        }
        line
    }

    /// The results of the dry run and the notes.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let refused = self.refused.iter().map(|why| format!("REFUSED in the dry run: {why}"));
        let failed = self.failed.iter().map(|why| format!("the dry run failed: {why}"));
        let would = self.would.iter().map(|would| format!("dry run: would {would}"));
        let remarks = refused.chain(failed).chain(would).chain(self.notes.iter().cloned());
        remarks.map(|remark| escape_invisible_line(&remark)).collect()
    }

    fn lines(&self, number: usize) -> Vec<String> {
        let mut lines = vec![format!("  {number}. {}", self.headline())];
        lines.extend(self.remarks().into_iter().map(|remark| format!("     {remark}")));
        let input = self.input.as_ref().map(render_lines).unwrap_or_default();
        lines.extend(input.into_iter().map(|line| format!("     {line}")));
        lines
    }
}

impl Change {
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let place = escape_invisible_line(&self.place);
        let (before, after) = (self.before.as_ref().map(render_lines), self.after.as_ref().map(render_lines));
        let told = |label: &str, lines: Vec<String>| match lines.as_slice() {
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
        lines.extend(before.into_iter().flat_map(|lines| told("was", lines)));
        lines.extend(after.into_iter().flat_map(|lines| told("is", lines)));
        lines
    }
}
