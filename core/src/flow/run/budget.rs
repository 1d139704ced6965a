//! Limits the size of a run's values: of each input and output, and of all together.

use super::{Run, RunPlace, start};
use crate::error::{Code, ErrorBody};
use crate::flow::call::CallOutcome;
use crate::flow::expr::WorkMeter;
use crate::json;
use crate::limits;
use crate::record::Json;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why an output can't be stored, if so. Memory depends on the number of values more than on the bytes, so both are
/// limited.
pub(crate) fn unstorable_reason(output: &Value) -> Option<String> {
    match Json::encode(output) {
        Err(error) => Some(error.to_string()),
        Ok(text) if text.as_str().len() > limits::OUTPUT_BYTES_MAX => Some("it is too large".to_owned()),
        Ok(_) if json::has_more_values_than(output, limits::OUTPUT_VALUES_MAX) => {
            Some(format!("it has more than {} values", limits::OUTPUT_VALUES_MAX))
        }
        Ok(_) => None,
    }
}

/// Refuses an output that can't be stored, with the reason.
pub fn check_output(output: &Value) -> Result<(), String> {
    unstorable_reason(output).map_or(Ok(()), Err)
}

/// The result of a dry run, and the error if there is one. An output that can't be stored is an error.
pub(crate) fn dry_result(answer: &CallOutcome) -> (Value, Option<String>) {
    let failed = |error: Value, message: String| (json!({"status": "dry_run", "error": error}), Some(message));
    match answer {
        CallOutcome::Output(output) => match unstorable_reason(output) {
            None => (output.clone(), None),
            Some(fault) => {
                let message = format!("the output can't be used: {fault}");
                failed(json!(ErrorBody::new(Code::ExternalServiceError, message.clone())), message)
            }
        },
        CallOutcome::Failed(error) => failed(json!(&*error.body), error.body.message.clone()),
        CallOutcome::Checked(_) => (Value::Null, None),
    }
}

/// The size of values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueSize {
    /// As JSON text, approximately.
    bytes: usize,
    /// In memory, approximately.
    memory: usize,
}

impl ValueSize {
    /// The error if it exceeds the limits. `what` names the value that was added.
    fn refusal(self, what: &str) -> Option<ErrorBody> {
        if self.memory > limits::RUN_MEMORY_BYTES_MAX {
            let message = format!(
                "with {what} the values of the run would take more than {} bytes of memory; pass and return less data",
                limits::RUN_MEMORY_BYTES_MAX
            );
            let body = ErrorBody::new(Code::PayloadTooLarge, message);
            return Some(body.with("memory_bytes_max", limits::RUN_MEMORY_BYTES_MAX));
        }
        if self.bytes > limits::RUN_BYTES_MAX {
            let message = format!(
                "with {what} the steps of the run would hold more than {} bytes; give each step only what it needs",
                limits::RUN_BYTES_MAX
            );
            return Some(ErrorBody::new(Code::PayloadTooLarge, message).with("bytes_max", limits::RUN_BYTES_MAX));
        }
        None
    }

    const fn times(self, count: usize) -> Self {
        Self { bytes: self.bytes.saturating_mul(count), memory: self.memory.saturating_mul(count) }
    }

    const fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), memory: self.memory.saturating_add(other.memory) }
    }

    fn and(self, value: &Value) -> Self {
        Self {
            bytes: self.bytes.saturating_add(json::size(value)),
            memory: self.memory.saturating_add(json::memory_size(value)),
        }
    }
}

/// The work and the memory that a run has used.
pub(crate) struct RunBudget {
    /// The expression work of this turn.
    meter: WorkMeter,
    /// The expression work of the previous turns since it was loaded.
    work_done: u64,
    /// The size of the inputs and outputs of its steps.
    values: ValueSize,
    /// Maps about to start: the next item to measure, and the size of the run with the items before it.
    map_measurements: BTreeMap<usize, (u32, ValueSize)>,
}

impl RunBudget {
    pub(crate) fn new() -> Self {
        Self {
            meter: WorkMeter::lenient(limits::TURN_WORK_MAX),
            work_done: 0,
            values: ValueSize::default(),
            map_measurements: BTreeMap::new(),
        }
    }

    pub(crate) const fn meter(&self) -> &WorkMeter {
        &self.meter
    }

    /// Adds the work of the previous turn to the run's total. False: it exceeds the limit.
    pub(crate) fn begin_turn(&mut self) -> bool {
        self.work_done = self.work_done.saturating_add(self.meter.reset());
        self.work_done <= limits::RUN_WORK_MAX
    }

    /// Whether the turn has used up its share of work.
    pub(crate) fn is_spent(&self) -> bool {
        self.meter.is_share_spent()
    }

    /// Counts an input, or refuses it. It is stored with its step and with each of its calls.
    pub(crate) fn count_input(&mut self, input: &Value, node: &str) -> Result<(), ErrorBody> {
        let kept = self.values.and(input);
        if let Some(refusal) = kept.refusal(&format!("the input of {node}")) {
            return Err(refusal);
        }
        self.values = kept;
        Ok(())
    }

    /// Counts an output. It is stored in any case: the call has been made.
    pub(crate) fn count_output(&mut self, output: &Value) {
        self.values = self.values.and(output);
    }

    /// Counts the values of a loaded run. The inputs of the run itself take memory as well.
    pub(crate) fn count_values<'a>(&mut self, values: impl Iterator<Item = &'a Value>, inputs: &Value) {
        let of_tasks = values.fold(ValueSize::default(), ValueSize::and);
        self.values = ValueSize { memory: of_tasks.memory.saturating_add(json::memory_size(inputs)), ..of_tasks };
    }

    /// The approximate memory of the values.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.values.memory
    }
}

/// Refuses a map whose item inputs exceed the limits, before its first item starts. False: not all items are
/// measured yet, and the turn has used up its work.
pub(crate) fn check_map_size(run: &mut Run, node: usize) -> Result<bool, ErrorBody> {
    let items = u32::try_from(run.tasks.map_list(node).map_or(0, <[Value]>::len)).unwrap_or(u32::MAX);
    let (mut item, mut kept) = match run.budget.map_measurements.remove(&node) {
        Some(measured) => measured,
        None if is_map_small(run, node, items) => return Ok(true),
        None => (0, run.budget.values),
    };
    while item < items {
        if run.budget.is_spent() {
            run.budget.map_measurements.insert(node, (item, kept));
            return Ok(false);
        }
        // The item itself reports an input that can't be rendered.
        let Ok(input) = start::render_inputs(run, RunPlace { node, item: Some(item) }) else { return Ok(true) };
        kept = kept.and(&input);
        if let Some(refusal) = kept.refusal(&format!("the {items} items of {}", run.tasks.name(RunPlace::node(node)))) {
            return Err(refusal);
        }
        item += 1;
    }
    Ok(true)
}

/// Whether the inputs of all items are far below the limits, estimated from the first one and the list.
fn is_map_small(run: &Run, node: usize, items: u32) -> bool {
    let Some(list) = run.tasks.map_list(node) else { return true };
    let Ok(first) = start::render_inputs(run, RunPlace { node, item: Some(0) }) else { return true };
    let count = usize::try_from(items).unwrap_or(usize::MAX);
    let first = ValueSize::default().and(&first).times(count);
    let list = list.iter().fold(ValueSize::default(), ValueSize::and);
    run.budget.values.plus(first.plus(list).times(2)).refusal("").is_none()
}
