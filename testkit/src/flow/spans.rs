//! A span exporter that keeps every span.

use chimera_core::flow::trace::SpanId;
use chimera_engine::port::{Span, Spans};
use tokio::sync::watch;
use uuid::Uuid;

/// Collects the spans of all engines that share it.
#[derive(Debug, Default)]
pub struct SpanCollector(watch::Sender<Vec<Span>>);

impl SpanCollector {
    /// The spans of a run, in the order in which they ended.
    #[must_use]
    pub fn of(&self, run: Uuid) -> Vec<Span> {
        self.0.borrow().iter().filter(|span| span.trace == run).cloned().collect()
    }

    /// Waits until a span of the run with this name has ended. Returns the run's spans.
    pub async fn until(&self, run: Uuid, name: &str) -> Vec<Span> {
        let told = |spans: &Vec<Span>| spans.iter().any(|span| span.trace == run && span.name == name);
        let _ = self.0.subscribe().wait_for(told).await;
        self.of(run)
    }

    /// The spans of a run as an indented tree, one line each. Siblings are sorted by name, then by time of end. A span
    /// without a known parent is a root. Panics if a span was exported twice.
    #[must_use]
    pub fn tree(&self, run: Uuid) -> String {
        let spans = self.of(run);
        let mut text = String::new();
        let known = |id: SpanId| spans.iter().any(|span| span.id == id);
        let roots = spans.iter().filter(|span| !span.parent.is_some_and(known)).collect();
        branch(&spans, roots, 0, &mut text);
        assert_eq!(text.lines().count(), spans.len(), "exported twice: {spans:#?}");
        text
    }
}

fn branch(spans: &[Span], mut parts: Vec<&Span>, depth: usize, text: &mut String) {
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    for span in parts {
        let failed = if span.error.is_some() { ", failed" } else { "" };
        text.push_str(&format!("{}{}{failed}\n", "  ".repeat(depth), span.name));
        branch(spans, spans.iter().filter(|below| below.parent == Some(span.id)).collect(), depth + 1, text);
    }
}

impl Spans for SpanCollector {
    fn enabled(&self) -> bool {
        true
    }

    fn ended(&self, span: Span) {
        self.0.send_modify(|spans| spans.push(span));
    }
}
