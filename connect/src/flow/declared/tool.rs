//! Executes, rolls back and looks up declared tools.

use super::DeclareError;
use super::auth::TokenCache;
use super::exchange::{VendorConnection, malformed};
use super::load::{load_definition, load_with_base_urls};
use super::mapping::MappingSource;
use super::paging::PagedRead;
use super::plan::{Declaration, Lookup, RollbackRequest, ToolPlan};
use super::template::TemplateValues;
use crate::flow::exchange_log::retried;
use crate::flow::toolbox::ToolDependencies;
use crate::http::{Call, Keyring, ParsedAnswer, Retryability, authority_of};
use async_trait::async_trait;
use chimera_core::json::is_larger_than;
use chimera_core::limits::{
    DECLARED_CLOCK_SKEW_SECONDS, DECLARED_PAGES_MAX, ERROR_TEXT_CHARS_MAX, HTTP_RESPONSE_INLINE_BYTES_MAX,
};
use chimera_core::time::Timestamp;
use chimera_core::tool::{EffectKind, Rollback, Spec, is_dry_run};
use chimera_engine::flow::port::{CallContext, CheckResult, CompletedCall, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// A tool declared in a file.
pub struct HttpTool {
    spec: Arc<Spec>,
    plan: Arc<ToolPlan>,
    line: VendorConnection,
    definition: Arc<Value>,
}

/// The tools of a file, ready to be called. The toolbox may override the vendor's base URL.
pub fn tools(text: &str, origin: &str, toolbox: &ToolDependencies) -> Result<Vec<HttpTool>, DeclareError> {
    let tokens = Arc::new(TokenCache::default());
    let declared = load_with_base_urls(text, origin, &toolbox.base_urls)?.into_iter();
    Ok(declared.map(|declared| HttpTool::new(declared, toolbox, Arc::clone(&tokens))).collect())
}

/// The tool of a stored definition.
pub(super) fn restore(definition: &Value, toolbox: &ToolDependencies) -> Result<HttpTool, DeclareError> {
    let declared = load_definition(definition, "a stored definition")?;
    Ok(HttpTool::new(declared, toolbox, Arc::new(TokenCache::default())))
}

impl HttpTool {
    /// Everything that makes up its version. It contains names of secrets and no secret.
    #[must_use]
    pub const fn definition(&self) -> &Arc<Value> {
        &self.definition
    }

    fn new(declared: Declaration, toolbox: &ToolDependencies, tokens: Arc<TokenCache>) -> Self {
        let line = VendorConnection {
            client: toolbox.client.clone(),
            secrets: Arc::clone(&toolbox.secrets),
            base_url: declared.vendor.base_url.clone(),
            vendor: declared.vendor,
            tokens,
        };
        Self { spec: declared.spec, plan: declared.plan, line, definition: declared.definition }
    }

    fn care(&self) -> Retryability {
        match self.spec.effect {
            EffectKind::Pure | EffectKind::Read => Retryability::Read,
            EffectKind::Write if self.spec.metadata.idempotent => Retryability::Repeatable,
            EffectKind::Write => Retryability::Once,
        }
    }

    /// How many items the input asks for.
    fn wanted(&self, input: &Value) -> Option<usize> {
        let name = self.plan.paging.as_ref()?.limit.as_ref()?;
        let default = &self.spec.input.document()["properties"][name]["default"];
        let wanted = input.get(name).unwrap_or(default).as_u64()?;
        usize::try_from(wanted).ok()
    }

    /// What a dry run reports: the request line and the body.
    fn would_execute(&self, values: &TemplateValues<'_>) -> Result<String, ToolError> {
        let request = self.line.request(&self.plan.request, values, self.care())?;
        self.line.client.allows(&request)?;
        let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let line = format!("{} {}{query}", request.method, request.url.path());
        let body: String = String::from_utf8_lossy(&request.body).chars().take(ERROR_TEXT_CHARS_MAX).collect();
        Ok(if body.is_empty() { line } else { format!("{line} with {body}") })
    }

    async fn ask(
        &self,
        call: &Call,
        input: &Value,
        values: &TemplateValues<'_>,
        keys: &mut Keyring,
    ) -> Result<Value, ToolError> {
        let mut request = self.line.request(&self.plan.request, values, self.care())?;
        self.line.client.allows(&request)?;
        self.line.sign(&mut request, &self.plan.request, call, keys).await?;
        let paged = PagedRead { line: &self.line, plan: &self.plan, wanted: self.wanted(input) };
        let (output, answer) = paged.read(call, request, keys).await?;
        // Masked before validation: validation errors quote values.
        let output = keys.clean(Ok(output.unwrap_or(Value::Null))).await?;
        let (spec, large) = (Arc::clone(&self.spec), is_larger_than(&output, HTTP_RESPONSE_INLINE_BYTES_MAX));
        let checked = move || spec.output.check(&output).map(|()| output);
        match answer.run_blocking(large, checked).await? {
            Ok(output) => Ok(output),
            Err(faults) => {
                let error = answer.unusable("the answer does not match the tool's output schema");
                Err(error.with("faults", json!(faults.iter().map(|fault| &fault.pointer).collect::<Vec<_>>())))
            }
        }
    }

    /// Looks for the effect once. Returns what was found, and whether the search was complete.
    async fn look_up(
        &self,
        lookup: &Lookup,
        call: &Call,
        values: &TemplateValues<'_>,
    ) -> Result<(Option<Value>, bool), ToolError> {
        let mut keys = Keyring::of_call(&self.line.secrets, call);
        let outcome = self.search(lookup, call, values, &mut keys).await;
        keys.clean(outcome).await
    }

    async fn search(
        &self,
        lookup: &Lookup,
        call: &Call,
        values: &TemplateValues<'_>,
        keys: &mut Keyring,
    ) -> Result<(Option<Value>, bool), ToolError> {
        let mark = lookup.contains.fill(values, str::to_owned).ok_or_else(|| malformed("the call has no key"))?;
        let mut request = self.line.request(&lookup.request, values, Retryability::Read)?;
        self.line.sign(&mut request, &lookup.request, call, keys).await?;
        for _ in 0..DECLARED_PAGES_MAX {
            let answer = self.line.send(call, request.clone(), keys).await?;
            let (plan, mark) = (Arc::clone(&self.plan), mark.clone());
            let look =
                move |answer: &ParsedAnswer<'_>| answer.json().map(|document| find_by_marker(&plan, &document, &mark));
            if let Some(found) = answer.open(look).await?? {
                return Ok((found, true));
            }
            match answer.next_link().filter(|next| next.origin() == self.line.base_url.origin()) {
                Some(next) => request.url = next,
                None => return Ok((None, true)),
            }
        }
        Ok((None, false))
    }

    async fn undo(
        &self,
        call: &Call,
        rollback: &RollbackRequest,
        values: &TemplateValues<'_>,
    ) -> Result<Value, ToolError> {
        let mut keys = Keyring::of_call(&self.line.secrets, call);
        let outcome = self.send_rollback(call, rollback, values, &mut keys).await;
        keys.clean(outcome).await
    }

    async fn send_rollback(
        &self,
        call: &Call,
        rollback: &RollbackRequest,
        values: &TemplateValues<'_>,
        keys: &mut Keyring,
    ) -> Result<Value, ToolError> {
        let care =
            if self.spec.rollback == Rollback::Repeatable { Retryability::Repeatable } else { Retryability::Once };
        let mut request = self.line.request(&rollback.request, values, care)?;
        self.line.sign(&mut request, &rollback.request, call, keys).await?;
        match self.line.send(call, request, keys).await {
            Ok(answer) => Ok(json!({"rolled_back": true, "status": answer.status})),
            Err(error) => match error.body.details.get("status").and_then(Value::as_u64) {
                Some(status) if rollback.gone.iter().any(|gone| u64::from(*gone) == status) => {
                    Ok(json!({"rolled_back": true, "status": status, "was_gone": true}))
                }
                _ => Err(error),
            },
        }
    }
}

#[async_trait]
impl Tool for HttpTool {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn host(&self, _input: &Value) -> Option<String> {
        authority_of(&self.line.base_url)
    }

    async fn execute(&self, ctx: &CallContext, input: &Value) -> Result<Value, ToolError> {
        let named = CallIds::of(ctx);
        let values = TemplateValues { input: Some(input), ..named.values(&self.spec) };
        if is_dry_run(input) {
            let output = self.plan.dry_run.fill(&values).unwrap_or(Value::Null);
            return Ok(Spec::dry_run_response(output, self.would_execute(&values)?));
        }
        retried(ctx);
        let call = Call::for_tool(ctx);
        let mut keys = Keyring::of_call(&self.line.secrets, &call);
        let outcome = self.ask(&call, input, &values, &mut keys).await;
        keys.clean(outcome).await
    }
    async fn rollback(&self, ctx: &CallContext, done: &CompletedCall) -> Result<Value, ToolError> {
        let Some(rollback) = &self.plan.rollback else {
            return Err(malformed(&format!("{} does not support rollback", self.spec.name)));
        };
        let named = CallIds::of(ctx);
        let values =
            TemplateValues { input: Some(&done.input), output: Some(&done.output), ..named.values(&self.spec) };
        self.undo(&Call::for_tool(ctx), rollback, &values).await
    }

    async fn check(&self, ctx: &CallContext, input: &Value) -> Result<CheckResult, ToolError> {
        let Some(lookup) = &self.plan.check else { return Ok(CheckResult::Unknown) };
        let (call, named) = (Call::for_tool(ctx), CallIds::of(ctx));
        let values = TemplateValues { input: Some(input), ..named.values(&self.spec) };
        let found = |output: Option<Value>| output.map(CheckResult::Happened);
        let (first, _) = self.look_up(lookup, &call, &values).await?;
        if let Some(found) = found(first) {
            return Ok(found);
        }
        let Some(wait) = lookup.never_after_ms.map(Duration::from_millis) else { return Ok(CheckResult::Unknown) };
        // A call sent a moment ago may still be in flight; only its absence later proves that it never happened.
        let later = Instant::now() + wait;
        let mut cancel = call.cancel.clone();
        if later >= call.until {
            return Ok(CheckResult::Unknown);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(CheckResult::Unknown),
            () = tokio::time::sleep_until(later) => {}
        }
        let (second, complete) = self.look_up(lookup, &call, &values).await?;
        Ok(found(second).unwrap_or(if complete { CheckResult::DidNotHappen } else { CheckResult::Unknown }))
    }
}

/// The output for the item in which a lookup finds the call's marker.
fn find_by_marker(plan: &ToolPlan, document: &Value, mark: &str) -> Option<Option<Value>> {
    let lookup = plan.check.as_ref()?;
    let marked = |item: &&Value| lookup.at.find(item).and_then(Value::as_str).is_some_and(|text| text.contains(mark));
    let item = lookup.items.find(document)?.as_array()?.iter().find(marked)?;
    Some(plan.response.apply(&MappingSource { document: item, header: &|_| None, more: false, cursor: None }))
}

/// The ids of a call as texts.
struct CallIds {
    key: String,
    effect: String,
    run: String,
    started_at: String,
}

impl CallIds {
    fn of(ctx: &CallContext) -> Self {
        Self {
            key: ctx.idempotency_key.clone(),
            effect: ctx.effect_id.to_string(),
            run: ctx.run_id.to_string(),
            started_at: started_at(ctx.run_id).unwrap_or_default(),
        }
    }

    fn values<'a>(&'a self, spec: &'a Spec) -> TemplateValues<'a> {
        TemplateValues {
            idempotency_key: &self.key,
            effect_id: &self.effect,
            run_id: &self.run,
            run_started_at: &self.started_at,
            properties: spec.input.document().get("properties"),
            ..TemplateValues::default()
        }
    }
}

/// The run's start from its time-ordered id, minus the allowed clock skew, in whole seconds.
fn started_at(run: Uuid) -> Option<String> {
    let millis = i64::try_from(run.as_u128() >> 80).ok().filter(|_| run.get_version_num() == 7)?;
    let text =
        Timestamp::from_micros(millis.checked_mul(1_000)?).plus_seconds(-DECLARED_CLOCK_SKEW_SECONDS).to_string();
    Some(format!("{}Z", text.get(..19)?))
}
