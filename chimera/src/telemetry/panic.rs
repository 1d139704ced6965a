//! Logs panics like any other line: redacted, in the configured format, with their location.

use std::panic::PanicHookInfo;

/// Sends panics to the log instead of writing them to stderr as they are.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(log));
}

fn log(panic: &PanicHookInfo<'_>) {
    let payload = panic.payload();
    let said = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    report(said.unwrap_or("without words"), &place, &std::backtrace::Backtrace::force_capture().to_string());
}

/// The line of a panic, and the alert for it.
pub(super) fn report(said: &str, place: &str, stack_trace: &str) {
    tracing::error!(
        critical = true,
        error_code = "INTERNAL",
        error_type = "system_error",
        place,
        stack_trace,
        "panic: {said}"
    );
}
