//! Which calls make spans, and what the spans tell.

use super::*;
use chimera_storage::counter::LocalCounters;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Every span that was begun and every field that was set, as text.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut text = attributes.metadata().name().to_owned();
        attributes.record(&mut Text(&mut text));
        self.0.lock().unwrap().push(text);
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut text = "then".to_owned();
        values.record(&mut Text(&mut text));
        self.0.lock().unwrap().push(text);
    }
}

#[tokio::test]
async fn counters_make_a_span_for_each_call_below_another_span_and_tell_no_key() {
    let seen = Seen::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
    let counters = TracedCounters(Arc::new(LocalCounters::default()));
    let (now, quota) = (Timestamp::from_micros(1_000_000), Quota::new(5, 3_600).unwrap());
    counters.hit("rate_limit:user_ann", quota, now).await.unwrap();
    assert!(seen.0.lock().unwrap().is_empty(), "nothing asked for it");
    let work = async {
        counters.hit("rate_limit:user_ann", quota, now).await.unwrap();
        counters.claim("idempotency:order-7", "run", Duration::from_secs(60), now).await.unwrap();
        counters.read("idempotency:order-7", now).await.unwrap();
        counters.release("idempotency:order-7", "run", now).await.unwrap();
        counters.ready().await.unwrap();
        counters.claim("", "run", Duration::from_secs(60), now).await.unwrap_err();
    };
    work.instrument(tracing::info_span!("above")).await;
    let seen = seen.0.lock().unwrap().clone();
    let names: Vec<&str> = seen.iter().filter_map(|line| line.split(' ').next()).collect();
    let wanted =
        ["above", "redis.hit", "redis.claim", "redis.read", "redis.release", "redis.ready", "redis.claim", "then"];
    assert_eq!(names, wanted);
    assert_eq!(seen.last().map(String::as_str), Some("then otel.status_code=\"ERROR\""));
    let all = seen.join("\n");
    assert!(all.contains("db.system.name=\"redis\"") && all.contains("otel.kind=\"client\""), "{all}");
    assert!(!all.contains("user_ann") && !all.contains("order-7"), "{all}");
}
