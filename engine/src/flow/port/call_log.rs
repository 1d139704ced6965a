//! Where tools write about their calls.

use chimera_core::limits::{CALL_LOG_BYTES_MAX, CALL_LOG_LINES_MAX};
use chimera_core::redact::{REDACTED, Redactor};
use chimera_core::tool::Spec;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
}

/// Takes the lines that tools write about their calls.
///
/// **Never blocks.** What it can't take at once, it drops and counts.
/// **Redacted.** What looks like a credential is masked before a line gets here; the sink masks the values of the secrets
/// that the process knows.
pub trait CallLogSink: Send + Sync {
    /// Whether lines of this level go anywhere. Called before a line is made; must be cheap.
    fn takes(&self, level: LogLevel) -> bool;

    fn write(&self, line: &LogLine<'_>);
}

/// One line about one call.
#[derive(Clone, Debug)]
pub struct LogLine<'a> {
    pub level: LogLevel,
    pub call: &'a LoggedCall,
    pub message: &'a str,
    /// Further facts by name, in the order in which the tool gave them.
    pub fields: &'a [(&'static str, Value)],
}

/// The call that lines are about.
#[derive(Clone, Debug)]
pub struct LoggedCall {
    pub tenant: String,
    pub run_id: Uuid,
    pub step_id: Uuid,
    pub call_id: Uuid,
    pub tool: Arc<Spec>,
    pub attempt: u32,
}

/// The log of one call. Clones share its limits. When the last one is dropped, a line says how many lines were too many.
#[derive(Clone, Default)]
pub struct CallLog(Option<Arc<OpenLog>>);

struct OpenLog {
    sink: Arc<dyn CallLogSink>,
    call: LoggedCall,
    lines: AtomicUsize,
    bytes: AtomicUsize,
    dropped: AtomicUsize,
}

impl std::fmt::Debug for CallLog {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CallLog")
    }
}

impl CallLog {
    /// A log that goes nowhere.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The log of a call; one that goes nowhere if the sink takes nothing.
    pub fn open(sink: &Arc<dyn CallLogSink>, call: impl FnOnce() -> LoggedCall) -> Self {
        let open = || {
            let (lines, bytes, dropped) = Default::default();
            Arc::new(OpenLog { sink: Arc::clone(sink), call: call(), lines, bytes, dropped })
        };
        Self(sink.takes(LogLevel::Warn).then(open))
    }

    /// Whether lines of this level go anywhere.
    #[must_use]
    pub fn takes(&self, level: LogLevel) -> bool {
        self.0.as_ref().is_some_and(|log| log.sink.takes(level))
    }

    /// Writes a line. Its fields are made only if the line goes anywhere.
    pub fn write<const N: usize>(
        &self,
        level: LogLevel,
        message: &str,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        let Some(log) = self.0.as_ref().filter(|log| log.sink.takes(level)) else { return };
        let mut fields = fields();
        let redactor = Redactor::default();
        for (name, value) in &mut fields {
            if Redactor::is_secret_name(name) {
                *value = REDACTED.into();
            } else if let Value::String(text) = value {
                *text = redactor.text(text).into_owned();
            }
        }
        let message = redactor.text(message);
        let size = |value: &Value| value.as_str().map_or(size_of::<u64>(), str::len);
        let bytes = message.len() + fields.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>();
        // Both are counted even if the line is dropped: after a line that is too long, shorter ones may not fit either.
        let is_full = log.lines.fetch_add(1, Ordering::Relaxed) >= CALL_LOG_LINES_MAX
            || log.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > CALL_LOG_BYTES_MAX;
        if is_full {
            log.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        log.sink.write(&LogLine { level, call: &log.call, message: &message, fields: &fields });
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        let dropped = *self.dropped.get_mut();
        if dropped > 0 {
            let message = format!(
                "{dropped} lines dropped: a call may write {CALL_LOG_LINES_MAX} lines and {CALL_LOG_BYTES_MAX} bytes"
            );
            self.sink.write(&LogLine { level: LogLevel::Warn, call: &self.call, message: &message, fields: &[] });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::{Mutex, PoisonError};

    struct Kept(LogLevel, Mutex<Vec<String>>);

    impl CallLogSink for Kept {
        fn takes(&self, level: LogLevel) -> bool {
            level >= self.0
        }

        fn write(&self, line: &LogLine<'_>) {
            let fields: Vec<String> = line.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let mut kept = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(format!("{} {} {}", line.call.tenant, line.message, fields.join(" ")));
        }
    }

    fn open(from: LogLevel) -> (Arc<Kept>, CallLog) {
        let kept = Arc::new(Kept(from, Mutex::default()));
        let call = || LoggedCall {
            tenant: "acme".to_owned(),
            run_id: Uuid::nil(),
            step_id: Uuid::nil(),
            call_id: Uuid::nil(),
            tool: Arc::new(Spec::placeholder("desk", None).unwrap()),
            attempt: 1,
        };
        let log = CallLog::open(&(Arc::clone(&kept) as Arc<dyn CallLogSink>), call);
        (kept, log)
    }

    #[test]
    fn a_line_that_goes_nowhere_is_not_even_made() {
        let (kept, log) = open(LogLevel::Info);
        log.write(LogLevel::Debug, "quiet", || -> [(&'static str, Value); 0] { panic!("nobody reads it") });
        log.write(LogLevel::Info, "loud", || [("status", json!(200))]);
        assert_eq!(*kept.1.lock().unwrap(), ["acme loud status=200"]);
        assert!(!CallLog::none().takes(LogLevel::Warn));
    }

    #[test]
    fn credentials_do_not_reach_the_sink() {
        let (kept, log) = open(LogLevel::Debug);
        let token = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl";
        log.write(LogLevel::Info, token, || [("authorization", json!("x-1")), ("said", json!(token))]);
        let lines = kept.1.lock().unwrap().join("\n");
        assert!(!lines.contains("eyJ") && !lines.contains("x-1") && lines.contains(REDACTED), "{lines}");
    }

    #[test]
    fn a_call_writes_so_many_lines_and_says_how_many_were_dropped() {
        let (kept, log) = open(LogLevel::Debug);
        let copy = log.clone();
        for _ in 0..CALL_LOG_LINES_MAX {
            log.write(LogLevel::Info, "a", || []);
        }
        copy.write(LogLevel::Info, "too many", || []);
        drop(log);
        assert_eq!(kept.1.lock().unwrap().len(), CALL_LOG_LINES_MAX, "another holder may still write");
        drop(copy);
        let lines = kept.1.lock().unwrap();
        assert!(
            lines.len() == CALL_LOG_LINES_MAX + 1 && lines.last().unwrap().contains("1 lines dropped"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_call_writes_so_many_bytes() {
        let (kept, log) = open(LogLevel::Debug);
        log.write(LogLevel::Info, &"a ".repeat(CALL_LOG_BYTES_MAX), || []);
        drop(log);
        let lines = kept.1.lock().unwrap();
        assert!(lines.len() == 1 && lines[0].contains("1 lines dropped"), "{lines:?}");
    }
}
