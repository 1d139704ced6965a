//! How much a run keeps: the inputs and outputs of its steps are bounded one by one, and all together.

use super::{At, Run};
use crate::error::{Code, ErrorBody};
use crate::flow::call::Answer;
use crate::json;
use crate::limits;
use crate::record::Json;
use serde_json::{Value, json};

/// Why a store can't keep an output, if so. What a document costs in memory goes by its values more than by its bytes.
pub(crate) fn unkept(output: &Value) -> Option<String> {
    match Json::of(output) {
        Err(error) => Some(error.to_string()),
        Ok(text) if text.as_str().len() > limits::OUTPUT_BYTES_MAX => Some("it is too large".to_owned()),
        Ok(_) if json::has_more_values_than(output, limits::OUTPUT_VALUES_MAX) => {
            Some(format!("it has more than {} values", limits::OUTPUT_VALUES_MAX))
        }
        Ok(_) => None,
    }
}

/// What came of trying a call dry, and what went wrong. An output that can't be kept is as good as none.
pub(crate) fn tried(answer: &Answer) -> (Value, Option<String>) {
    let failed = |error: Value, message: String| (json!({"status": "dry_run", "error": error}), Some(message));
    match answer {
        Answer::Output(output) => match unkept(output) {
            None => (output.clone(), None),
            Some(fault) => {
                let message = format!("the output can't be used: {fault}");
                failed(json!(ErrorBody::new(Code::ExternalServiceError, message.clone())), message)
            }
        },
        Answer::Failed(error) => failed(json!(&*error.body), error.body.message.clone()),
        Answer::Found(_) => (Value::Null, None),
    }
}

impl Run {
    /// Counts an input that a place is about to be given, or refuses it: it would be written with its step and with each
    /// of its calls.
    pub(crate) fn make_room(&mut self, at: At, input: &Value) -> Result<(), ErrorBody> {
        let kept = self.kept_bytes.saturating_add(json::size(input));
        if kept > limits::RUN_BYTES_MAX {
            let message = format!(
                "with the input of {} the steps of the run would hold more than {} bytes; give each step only what it needs",
                self.name(at),
                limits::RUN_BYTES_MAX
            );
            return Err(ErrorBody::new(Code::PayloadTooLarge, message).with("bytes_max", limits::RUN_BYTES_MAX));
        }
        self.kept_bytes = kept;
        Ok(())
    }

    /// Counts an output. It is kept in any case: what has happened is written down.
    pub(crate) fn count_output(&mut self, output: &Value) {
        self.kept_bytes = self.kept_bytes.saturating_add(json::size(output));
    }

    /// Counts what a run that was read keeps.
    pub(crate) fn count_kept(&mut self) {
        let tasks = self.nodes.iter().flat_map(|task| std::iter::once(task).chain(task.items()));
        let values =
            tasks.flat_map(|task| task.input.as_deref().into_iter().chain(task.output().map(|output| &**output)));
        self.kept_bytes = values.map(json::size).fold(0, usize::saturating_add);
    }
}
