//! `local.markdown_to_pdf`: renders a Markdown document as a PDF with embedded fonts.
//!
//! The same Markdown gives the same bytes, and so the same artifact address. Nothing is fetched from the network:
//! images come from the document or from the artifact store.

mod draw;
mod error;
mod fonts;
mod layout;
mod lines;
mod page;
mod parse;
mod picture;
mod table;

use crate::cpu_pool::CpuPool;
use crate::flow::artifact;
use crate::flow::input::read;
use async_trait::async_trait;
use bytes::Bytes;
use chimera_core::error::Code;
use chimera_core::id::BlobId;
use chimera_core::json::schema::InvalidSchema;
use chimera_core::ledger::Digest32;
use chimera_core::limits::{MARKDOWN_BYTES_MAX, PDF_MISSING_SHOWN_MAX};
use chimera_core::tool::{EffectKind, Metadata, Risk, Rollback, Spec, ToolDeclaration};
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::{CallContext, Tool, ToolError};
use error::RenderError;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Deserialize)]
struct MarkdownInput {
    markdown: String,
    title: Option<String>,
    language: Option<String>,
    #[serde(default)]
    page_size: PageSize,
    page_numbers: Option<bool>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum PageSize {
    #[default]
    A4,
    Letter,
}

/// A finished document.
struct RenderedPdf {
    pdf: Vec<u8>,
    pages: usize,
    title: Option<String>,
    missing: BTreeSet<char>,
}

pub(super) struct MarkdownToPdf {
    spec: Arc<Spec>,
    blobs: TenantBlobs,
    aside: CpuPool,
}

impl MarkdownToPdf {
    pub(super) fn new(blobs: TenantBlobs, aside: CpuPool) -> Result<Self, InvalidSchema> {
        let declared = ToolDeclaration {
            name: "local.markdown_to_pdf",
            version: "1",
            description: "Makes a PDF of a Markdown document and keeps it as an artifact.",
            metadata: Metadata {
                requires_approval: false,
                dry_run_supported: true,
                idempotent: true,
                capabilities: vec!["local.convert".to_owned()],
                risk_level: Risk::Low,
            },
            effect: EffectKind::Pure,
            reads_when: None,
            checkable: false,
            rollback: Rollback::Unsupported,
            timeout_ms: 60_000,
            input: json!({
                "type": "object",
                "properties": {
                    "markdown": {"type": "string"},
                    "title": {"type": "string", "maxLength": 500, "description": "Else the first heading."},
                    "language": {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$"},
                    "page_size": {"enum": ["A4", "Letter"], "default": "A4"},
                    "page_numbers": {"type": "boolean", "default": true}
                },
                "required": ["markdown"],
                "additionalProperties": false
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "artifact": {"type": "string", "pattern": BlobId::PATTERN},
                    "bytes": {"type": "integer"},
                    "pages": {"type": "integer"},
                    "sha256": {"type": "string"},
                    "title": {"type": ["string", "null"]},
                    "missing_characters": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Characters that the embedded fonts lack; boxes stand in their place."
                    }
                },
                "required": ["artifact", "bytes", "pages", "sha256"],
                "additionalProperties": false
            }),
        };
        Ok(Self { spec: Arc::new(declared.compile()?), blobs, aside })
    }
}

#[async_trait]
impl Tool for MarkdownToPdf {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let input: MarkdownInput = read(input)?;
        if input.markdown.len() > MARKDOWN_BYTES_MAX {
            return Err(ToolError::not_sent(Code::PayloadTooLarge, "the Markdown document is too large")
                .with("bytes_max", MARKDOWN_BYTES_MAX));
        }
        let dry = input.dry_run;
        let parsed = move || {
            let document = parse::parse(&input.markdown)?;
            Ok((input, document))
        };
        let (input, document) = self.aside.tool(ctx, parsed).await?;
        let files = picture::fetch(&self.blobs, ctx, &document.images).await?;
        let made = self.aside.tool(ctx, move || Ok(render(&input, &document, files)?)).await?;
        let id = BlobId::new(Digest32(Sha256::digest(&made.pdf).into()));
        let output = json!({
            "artifact": id.to_string(),
            "bytes": made.pdf.len(),
            "pages": made.pages,
            "sha256": id.hex(),
            "title": made.title,
            "missing_characters":
                made.missing.iter().take(PDF_MISSING_SHOWN_MAX).map(char::to_string).collect::<Vec<_>>(),
        });
        if dry {
            return Ok(Spec::dry_run_response(output, format!("keep a PDF of {} pages as an artifact", made.pages)));
        }
        artifact::store(&self.blobs, ctx, "application/pdf", Bytes::from(made.pdf)).await?;
        Ok(output)
    }
}

fn render(input: &MarkdownInput, document: &parse::Document, files: Vec<Bytes>) -> Result<RenderedPdf, RenderError> {
    let fonts = fonts::Fonts::load().ok_or(RenderError::Pages("the fonts can't be read"))?;
    let pictures = picture::open(files)?;
    let sheet = match input.page_size {
        PageSize::A4 => page::PaperSize::A4,
        PageSize::Letter => page::PaperSize::LETTER,
    };
    let laid = layout::layout(&fonts, &pictures, sheet, &document.blocks)?;
    let first = laid.headings.iter().find(|heading| heading.level == 1).or(laid.headings.first());
    let title = input.title.clone().or_else(|| first.map(|heading| heading.text.clone()));
    let about = draw::DocumentInfo {
        title: title.clone(),
        language: input.language.clone(),
        page_numbers: input.page_numbers.unwrap_or(true),
    };
    let pdf = draw::write(&fonts, &laid, &pictures, &document.links, &about)?;
    Ok(RenderedPdf { pdf, pages: laid.pages.len(), title, missing: laid.missing })
}
