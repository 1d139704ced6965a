//! Exports spans to a collector (OTLP over HTTP).
//!
//! Spans are batched on a separate thread and sent through the runtime. If the collector is unavailable, spans
//! are dropped: the queue is bounded, and the log reports once that sending fails and once that it works again.

use super::preset_ids::{PlaceholderFilter, PresetIdGenerator, SpanReporter, with_span_ids};
use crate::failure::{Failure, Outcome};
use crate::mask::Mask;
use chimera_api::{TraceContext, TraceLink};
use chimera_core::error::Code;
use chimera_core::flow::trace::SpanId as OwnSpanId;
use chimera_core::limits;
use chimera_core::redact::{REDACTED, Redactor};
use chimera_engine::port::Spans as Port;
use opentelemetry::trace::{
    SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

pub(crate) struct SpanExport {
    provider: SdkTracerProvider,
}

impl SpanExport {
    /// Begins to export to the collector at `endpoint`.
    pub(crate) fn start(endpoint: &str, mask: &Mask) -> Outcome<Self> {
        let failed = |error: String| Failure::new(Code::ConfigInvalid, format!("spans can't be exported: {error}"));
        let client = reqwest::Client::builder()
            .timeout(limits::SPANS_SEND_TIMEOUT)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let sender = OtlpClient { client, runtime: Handle::current(), failing: Arc::default() };
        let exporter = OtlpExporter::builder()
            .with_http()
            .with_http_client(sender)
            .with_endpoint(traces_address(endpoint))
            .with_timeout(limits::SPANS_SEND_TIMEOUT)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let resource = Resource::builder_empty()
            .with_attribute(KeyValue::new("service.name", "chimera"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(RedactingExporter { inner: exporter, mask: mask.clone() })
            .with_resource(resource)
            .with_id_generator(PresetIdGenerator::default())
            .with_sampler(PlaceholderFilter)
            .build();
        Ok(Self { provider })
    }

    /// The layer that collects our own spans, from INFO on.
    pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let ours = Targets::new().with_target("chimera", LevelFilter::INFO);
        tracing_opentelemetry::layer().with_tracer(self.provider.tracer("chimera")).with_filter(ours)
    }

    /// The port through which the engine reports spans.
    pub(crate) fn port(&self) -> Arc<dyn Port> {
        Arc::new(SpanReporter(self.provider.tracer("chimera")))
    }

    /// Sends what is left, within the time that one sending may take.
    pub(crate) async fn flush(self) {
        let flushing = tokio::task::spawn_blocking(move || {
            let _ = self.provider.shutdown_with_timeout(limits::SPANS_SEND_TIMEOUT);
        });
        let _ = flushing.await;
    }
}

fn traces_address(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// Makes a request's span a child of the caller's, or the beginning of a run's trace with a link to
/// the caller's, and tells the ids it was given.
pub(crate) fn link() -> TraceLink {
    Arc::new(|span, origin| {
        let caller = origin.caller.and_then(remote);
        let context = match (origin.run, caller) {
            (Some(run), caller) => {
                caller.into_iter().for_each(|caller| span.add_link(caller));
                with_span_ids(run, OwnSpanId::request(run), || span.context())
            }
            (None, Some(parent)) => {
                let _ = span.set_parent(Context::new().with_remote_span_context(parent));
                span.context()
            }
            (None, None) => span.context(),
        };
        let own = context.span().span_context().clone();
        own.is_valid().then(|| TraceContext {
            trace_id: own.trace_id().to_string(),
            span_id: own.span_id().to_string(),
            sampled: own.is_sampled(),
        })
    })
}

/// Every request is recorded, whatever the caller decided for itself.
fn remote(caller: &TraceContext) -> Option<SpanContext> {
    let (trace, span) = (TraceId::from_hex(&caller.trace_id).ok()?, SpanId::from_hex(&caller.span_id).ok()?);
    Some(SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default()))
}

/// Sends through the runtime, since the exporter's thread has none.
#[derive(Clone, Debug)]
struct OtlpClient {
    client: reqwest::Client,
    runtime: Handle,
    failing: Arc<AtomicBool>,
}

impl OtlpClient {
    async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let answer = client.request(head.method, head.uri.to_string()).headers(head.headers).body(body).send().await?;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        Ok(response.body(answer.bytes().await?)?)
    }

    /// Logs only the first failure and the recovery.
    fn note(&self, failed: bool) {
        if failed {
            metrics::counter!("chimera_otlp_export_failures_total").increment(1);
        }
        match (self.failing.swap(failed, Ordering::Relaxed), failed) {
            (false, true) => tracing::warn!("spans can't be sent to the collector; they are dropped until it is back"),
            (true, false) => tracing::info!("spans are sent to the collector again"),
            _ => {}
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.runtime.spawn(Self::send(self.client.clone(), request)).await?;
        self.note(!answer.as_ref().is_ok_and(|answer| answer.status().is_success()));
        answer
    }
}

/// Takes secrets out of spans before they leave.
#[derive(Debug)]
struct RedactingExporter {
    inner: OtlpExporter,
    mask: Mask,
}

impl RedactingExporter {
    fn attribute(&self, attribute: &mut KeyValue) {
        if Redactor::is_secret_name(attribute.key.as_str()) {
            attribute.value = Value::String(REDACTED.into());
            return;
        }
        match &mut attribute.value {
            Value::String(text) => self.text(text),
            // The causes of an error.
            Value::Array(Array::String(texts)) => texts.iter_mut().for_each(|text| self.text(text)),
            _ => {}
        }
    }

    fn text(&self, text: &mut StringValue) {
        if let Cow::Owned(masked) = self.mask.text(text.as_str()) {
            *text = masked.into();
        }
    }

    fn span(&self, mut span: SpanData) -> SpanData {
        span.name = Cow::Owned(self.mask.text(&span.name).into_owned());
        span.attributes.iter_mut().for_each(|attribute| self.attribute(attribute));
        for event in &mut span.events.events {
            event.name = Cow::Owned(self.mask.text(&event.name).into_owned());
            event.attributes.iter_mut().for_each(|attribute| self.attribute(attribute));
        }
        if let Status::Error { description } = &mut span.status {
            *description = Cow::Owned(self.mask.text(description).into_owned());
        }
        span
    }
}

impl SpanExporter for RedactingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let clean = batch.into_iter().map(|span| self.span(span)).collect();
        self.inner.export(clean).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
