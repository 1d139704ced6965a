//! Somebody who hears every span and keeps it.

use chimera_core::flow::trace::SpanId;
use chimera_engine::port::{Span, Spans};
use tokio::sync::watch;
use uuid::Uuid;

/// Keeps what it is told, across as many engines as share it.
#[derive(Debug, Default)]
pub struct Listener(watch::Sender<Vec<Span>>);

impl Listener {
    /// The spans of a run, in the order in which they were told.
    #[must_use]
    pub fn of(&self, run: Uuid) -> Vec<Span> {
        self.0.borrow().iter().filter(|span| span.trace == run).cloned().collect()
    }

    /// Waits until a span with this name was told of a run; gives the run's spans.
    pub async fn until(&self, run: Uuid, name: &str) -> Vec<Span> {
        let told = |spans: &Vec<Span>| spans.iter().any(|span| span.trace == run && span.name == name);
        let _ = self.0.subscribe().wait_for(told).await;
        self.of(run)
    }

    /// The spans of a run as a tree, one line each, and below each span its parts in order of their
    /// names, and of the same name as they were told. A span that nothing leads to stands at the edge. Panics if a span was told twice.
    #[must_use]
    pub fn tree(&self, run: Uuid) -> String {
        let spans = self.of(run);
        let mut text = String::new();
        let known = |id: SpanId| spans.iter().any(|span| span.id == id);
        let roots = spans.iter().filter(|span| !span.parent.is_some_and(known)).collect();
        branch(&spans, roots, 0, &mut text);
        assert_eq!(text.lines().count(), spans.len(), "told twice: {spans:#?}");
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

impl Spans for Listener {
    fn enabled(&self) -> bool {
        true
    }

    fn ended(&self, span: Span) {
        self.0.send_modify(|spans| spans.push(span));
    }
}
