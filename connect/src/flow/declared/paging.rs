//! Reads page after page, until there are enough items, no more pages, or too many.

use super::exchange::VendorConnection;
use super::mapping::MappingSource;
use super::plan::{CursorTarget, NextPageRule, Pages, ToolPlan};
use super::template::plain;
use crate::flow::exchange_log::pages_read;
use crate::http::{Answer, Call, Keyring, ParsedAnswer, Request};
use chimera_core::limits::{HTTP_RESPONSE_BYTES_MAX, HTTP_RESPONSE_INLINE_BYTES_MAX};
use chimera_engine::flow::port::ToolError;
use reqwest::Url;
use serde_json::Value;
use std::sync::Arc;

/// The next page.
enum NextPage {
    Link(Url),
    Cursor(String),
}

/// What was read from one answer.
struct ResultPage {
    document: Value,
    items: Vec<Value>,
    onward: Option<NextPage>,
}

/// What is read from a vendor, and how much of it.
pub(super) struct PagedRead<'a> {
    pub(super) line: &'a VendorConnection,
    pub(super) plan: &'a Arc<ToolPlan>,
    /// How many items are enough.
    pub(super) wanted: Option<usize>,
}

impl PagedRead<'_> {
    /// Sends the request, and further ones for further pages; returns the output.
    pub(super) async fn read(
        &self,
        call: &Call,
        request: Request,
        keys: &Keyring,
    ) -> Result<(Option<Value>, Answer), ToolError> {
        let Self { line, plan, wanted } = *self;
        let answer = line.send(call, request.clone(), keys).await?;
        let mut first = page(plan, &answer, true).await?;
        let (mut read, mut bytes) = (1, answer.body.len());
        if let Some(pages) = &plan.paging {
            while let Some(to) = &first.onward {
                let enough = wanted.is_some_and(|wanted| first.items.len() >= wanted);
                if enough || read >= pages.pages_max || bytes >= HTTP_RESPONSE_BYTES_MAX {
                    break;
                }
                let next = line.send(call, next_request(line, pages, &request, to, &answer)?, keys).await?;
                let page = page(plan, &next, false).await?;
                (read, bytes) = (read + 1, bytes + next.body.len());
                first.items.extend(page.items);
                first.onward = page.onward;
            }
        }
        if plan.paging.is_some() {
            pages_read(call, read, first.items.len());
        }
        let (plan, of) = (Arc::clone(plan), answer.clone());
        let is_large = bytes > HTTP_RESPONSE_INLINE_BYTES_MAX;
        let output = answer.run_blocking(is_large, move || output(&plan, &of, first, wanted)).await?;
        Ok((output, answer))
    }
}

/// Reads one answer. Whatever is not kept is dropped on the thread that parsed it.
async fn page(plan: &Arc<ToolPlan>, answer: &Answer, keeps_document: bool) -> Result<ResultPage, ToolError> {
    let plan = Arc::clone(plan);
    let read = move |answer: &ParsedAnswer<'_>| {
        let is_empty = keeps_document && answer.body.is_empty();
        let document = if is_empty { Value::Null } else { answer.json()? };
        let (items, onward) = match &plan.paging {
            Some(pages) => (items(pages, &document), next(pages, answer, &document)),
            None => (Vec::new(), None),
        };
        Ok(ResultPage { document: if keeps_document { document } else { Value::Null }, items, onward })
    };
    answer.open(read).await?
}

/// The output of all pages.
fn output(plan: &ToolPlan, answer: &Answer, pages: ResultPage, wanted: Option<usize>) -> Option<Value> {
    let ResultPage { mut document, mut items, onward } = pages;
    let (mut more, mut cursor) = (false, None);
    if let Some(pages) = &plan.paging {
        let cut = wanted.is_some_and(|wanted| items.len() > wanted);
        more = cut || onward.is_some();
        // A truncated page can't be continued from the next cursor without a gap.
        cursor = match onward {
            Some(NextPage::Cursor(at)) if !cut => Some(at),
            _ => None,
        };
        items.truncate(wanted.unwrap_or(usize::MAX));
        if let Some(place) = pages.items.find_mut(&mut document) {
            *place = Value::Array(items);
        }
    }
    let header = |name: &str| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let source = MappingSource { document: &document, header: &header, more, cursor: cursor.as_deref() };
    plan.response.apply(&source)
}

fn items(pages: &Pages, document: &Value) -> Vec<Value> {
    pages.items.find(document).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn next(pages: &Pages, answer: &Answer, document: &Value) -> Option<NextPage> {
    match &pages.next {
        NextPageRule::Link => answer.next_link().map(NextPage::Link),
        NextPageRule::Cursor { at, more, .. } => {
            let goes_on = more.as_ref().is_none_or(|more| more.find(document) == Some(&Value::Bool(true)));
            let cursor = at.find(document).map(plain).filter(|cursor| !cursor.is_empty());
            cursor.filter(|_| goes_on).map(NextPage::Cursor)
        }
    }
}

/// The first request, changed to fetch the next page. It carries credentials, so it must stay on the same server.
fn next_request(
    line: &VendorConnection,
    pages: &Pages,
    first: &Request,
    to: &NextPage,
    answer: &Answer,
) -> Result<Request, ToolError> {
    let mut request = first.clone();
    match (to, &pages.next) {
        (NextPage::Link(url), _) => {
            if url.origin() != line.base_url.origin() {
                return Err(answer.unusable("the next page is on another server"));
            }
            request.url = url.clone();
        }
        (NextPage::Cursor(cursor), NextPageRule::Cursor { into: CursorTarget::Query(name), .. }) => {
            let kept: Vec<_> = first.url.query_pairs().into_owned().filter(|(known, _)| known != name).collect();
            request.url.query_pairs_mut().clear().extend_pairs(kept).append_pair(name, cursor);
        }
        (NextPage::Cursor(cursor), NextPageRule::Cursor { into: CursorTarget::Body(name), .. }) => {
            let mut body: Value =
                serde_json::from_slice(&first.body).unwrap_or_else(|_| Value::Object(Default::default()));
            if let Some(members) = body.as_object_mut() {
                members.insert(name.clone(), cursor.as_str().into());
            }
            request = request.json(&body);
        }
        (NextPage::Cursor(_), NextPageRule::Link) => {}
    }
    Ok(request)
}
