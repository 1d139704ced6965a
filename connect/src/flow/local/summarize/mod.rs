//! `local.summarize`: selects the most representative sentences of a text, in their original order.
//!
//! It extracts and never rewrites: every sentence of the summary appears verbatim in the text. Only arithmetic in a
//! fixed order is used, so the same text gives the same summary on every machine.

mod score;
mod sentences;

use crate::cpu_pool::CpuPool;
use crate::flow::input::read;
use async_trait::async_trait;
use chimera_core::error::Code;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::limits::{SUMMARY_SENTENCES_DEFAULT, SUMMARY_SENTENCES_MAX, SUMMARY_TEXT_BYTES_MAX};
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration};
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
struct SummarizeInput {
    text: String,
    sentences: Option<usize>,
    max_chars: Option<usize>,
    #[serde(default)]
    dry_run: bool,
}

pub(super) struct Summarize {
    spec: Arc<Spec>,
    aside: CpuPool,
}

impl Summarize {
    pub(super) fn new(aside: CpuPool) -> Result<Self, InvalidSchema> {
        let declared = ToolDeclaration {
            name: "local.summarize",
            version: "1",
            description: "Picks the sentences that say most of a text.",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: true,
                capabilities: vec!["local.summarize".to_owned()],
                risk_level: Risk::Low,
            },
            effect: EffectKind::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 30_000,
            input: json!({
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1},
                    "sentences": {
                        "type": "integer", "minimum": 1, "maximum": SUMMARY_SENTENCES_MAX, "default": SUMMARY_SENTENCES_DEFAULT
                    },
                    "max_chars": {"type": "integer", "minimum": 1}
                },
                "required": ["text"],
                "additionalProperties": false
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "summary": {"type": "string"},
                    "sentences": {"type": "array", "items": {"type": "string"}},
                    "sentences_in_text": {"type": "integer"},
                    "shortened": {"type": "boolean", "description": "Even the best sentence had to be cut."}
                },
                "required": ["summary", "sentences", "sentences_in_text", "shortened"],
                "additionalProperties": false
            }),
        };
        Ok(Self { spec: Arc::new(declared.compile()?), aside })
    }
}

#[async_trait]
impl Tool for Summarize {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let input: SummarizeInput = read(input)?;
        if input.text.len() > SUMMARY_TEXT_BYTES_MAX {
            return Err(ToolError::not_sent(Code::PayloadTooLarge, "the text is too long to be summarised")
                .with("bytes_max", SUMMARY_TEXT_BYTES_MAX));
        }
        let dry = input.dry_run;
        let output = self.aside.tool(ctx, move || Ok(summarize(&input))).await?;
        Ok(if dry { Spec::dry_run_response(output, "summarise the text") } else { output })
    }
}

fn summarize(input: &SummarizeInput) -> Value {
    let sentences = sentences::split(&input.text);
    let count = input.sentences.unwrap_or(SUMMARY_SENTENCES_DEFAULT).clamp(1, SUMMARY_SENTENCES_MAX);
    let ranked = score::rank(&sentences, SUMMARY_SENTENCES_MAX);
    let room = input.max_chars.unwrap_or(usize::MAX);
    let mut kept: Vec<usize> = Vec::new();
    let mut used = 0;
    for &at in &ranked {
        let chars = sentences[at].text.chars().count();
        let with_space = chars + usize::from(!kept.is_empty());
        if kept.len() < count && used + with_space <= room {
            kept.push(at);
            used += with_space;
        }
    }
    kept.sort_unstable();
    let mut texts: Vec<String> = kept.iter().map(|at| sentences[*at].text.clone()).collect();
    let best = ranked.first().filter(|_| texts.is_empty());
    let shortened = best.is_some();
    texts.extend(best.map(|at| shorten(&sentences[*at].text, room)));
    json!({
        "summary": texts.join(" "),
        "sentences": texts,
        "sentences_in_text": sentences.len(),
        "shortened": shortened,
    })
}

/// As many whole words as fit into `room` characters with an ellipsis, or as many characters if not even one word
/// fits.
fn shorten(text: &str, room: usize) -> String {
    let begin: String = text.chars().take(room.saturating_sub(1)).collect();
    let whole = begin.rfind(char::is_whitespace).map_or(begin.as_str(), |at| begin[..at].trim_end());
    format!("{}…", if whole.is_empty() { &begin } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str, sentences: usize, max_chars: Option<usize>) -> SummarizeInput {
        SummarizeInput { text: text.into(), sentences: Some(sentences), max_chars, dry_run: false }
    }

    const TEXT: &str = "The engine writes every step to the ledger. Lunch was at noon. \
        A crash after a step loses nothing, because the ledger holds the step. \
        The weather was mild. Steps that were written to the ledger are never repeated by the engine.";

    #[test]
    fn the_sentences_about_the_main_thing_are_kept_in_their_order() {
        let output = summarize(&input(TEXT, 2, None));
        let kept = output["sentences"].as_array().unwrap();
        assert_eq!(kept.len(), 2);
        for sentence in kept {
            assert!(sentence.as_str().unwrap().contains("ledger"), "{sentence}");
        }
        let places: Vec<usize> = kept.iter().map(|s| TEXT.find(s.as_str().unwrap()).unwrap()).collect();
        assert!(places.is_sorted());
        assert_eq!(output["sentences_in_text"], 5);
        assert_eq!(output["shortened"], false);
    }

    #[test]
    fn a_summary_never_passes_its_length() {
        for room in [1, 5, 20, 44, 60, 100, 300] {
            let output = summarize(&input(TEXT, 5, Some(room)));
            let summary = output["summary"].as_str().unwrap();
            assert!(summary.chars().count() <= room, "{room}: {summary}");
            assert_eq!(output["shortened"], room < 20, "{room}: {summary}");
        }
    }

    #[test]
    fn a_text_without_sentences_is_its_own_summary_and_an_empty_one_has_none() {
        assert_eq!(summarize(&input("no full stop here", 3, None))["summary"], "no full stop here");
        assert_eq!(summarize(&input(" \n ", 3, None))["summary"], "");
    }
}
