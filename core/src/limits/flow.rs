//! Limits of workflows and their runs: documents, expressions, schemas, steps, approvals and messages.

use super::JSON_VALUES_MAX;
use std::time::Duration;

// Workflow documents

/// Bytes of a workflow document or a patch. A larger one is refused with `VALIDATION_FAILED`.
pub const WORKFLOW_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Nodes of a workflow. A workflow with more is refused with `VALIDATION_FAILED`.
pub const WORKFLOW_NODES_MAX: usize = 10_000;
/// Edges of a workflow. A workflow with more is refused with `VALIDATION_FAILED`.
pub const WORKFLOW_EDGES_MAX: usize = 50_000;
/// Characters of a workflow's name. A longer name is refused with `VALIDATION_FAILED`.
pub const WORKFLOW_ID_CHARS_MAX: usize = 128;
/// Workflows that one may start through its children and theirs, in total. A workflow with more is refused with
/// `VALIDATION_FAILED`.
pub const WORKFLOW_DESCENDANTS_MAX: usize = 1_000;
/// Compiled workflows that one process caches. Others are compiled again on demand.
pub const WORKFLOWS_CACHED_MAX: usize = 1_000;
/// Estimated bytes of the compiled workflows that one process caches. Others are compiled again on demand.
pub const WORKFLOWS_KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that a compiled workflow counts for there, per byte of its document. A larger document leaves room for fewer.
pub const WORKFLOW_MEMORY_FACTOR: usize = 16;
/// Time for which a process trusts the latest version that it has read. After it the store is asked whether another
/// process applied a newer one.
pub const WORKFLOW_LATEST_CACHE_SECONDS: i64 = 1;
/// Time before the end of that in which one request reads the latest version again. The others use the known one until
/// it ends.
pub const WORKFLOW_LATEST_REFRESH_MS: i64 = 100;
/// Attempts to add a version while others add theirs. After the last one the request fails with `OCC_CONFLICT`.
pub const APPLY_TRIES_MAX: u32 = 8;
/// Bytes of a workflow that is compiled on a request thread. A larger one is compiled on a worker thread.
pub const COMPILE_INLINE_BYTES_MAX: usize = 1_024;
/// Problems of one workflow or patch that a refusal lists. Further problems are omitted.
pub const PROBLEMS_MAX: usize = 50;
/// Characters of a run's title. The rest is replaced by `…`.
pub const RUN_TITLE_CHARS_MAX: usize = 120;
/// Nodes at each end of a long cycle that a refusal names. The nodes between them are omitted.
pub const CYCLE_ENDS_SHOWN_MAX: usize = 6;
/// A delay, a timeout or an expiry in a workflow. A longer one is refused with `VALIDATION_FAILED`.
pub const FLOW_SECONDS_MAX: u32 = 90 * 86_400;
/// Approvals that one request may require. A workflow that requires more is refused with `VALIDATION_FAILED`.
pub const APPROVALS_NEEDED_MAX: u32 = 10;
/// Approver patterns that one request may name. A workflow with more is refused with `VALIDATION_FAILED`.
pub const APPROVERS_MAX: usize = 50;
/// Default number of map items that run concurrently. The next item waits for one to complete.
pub const MAP_PARALLEL_DEFAULT: u32 = 8;
/// Items of a map that may run concurrently. A workflow that asks for more is refused with `VALIDATION_FAILED`.
pub const MAP_PARALLEL_MAX: u32 = 100;

// Judges

/// Checks of one judge. A workflow with more is refused with `VALIDATION_FAILED`.
pub const JUDGE_CHECKS_MAX: usize = 20;
/// Retries of a step that its judge rejected. A workflow that asks for more is refused with `VALIDATION_FAILED`.
pub const JUDGE_RETRIES_MAX: u32 = 3;
/// Characters of the message of a judge's check. A workflow with a longer one is refused with `VALIDATION_FAILED`.
pub const JUDGE_MESSAGE_CHARS_MAX: usize = 500;
/// Failed checks that a judgement records and passes to the next attempt. Further ones are omitted.
pub const JUDGE_FAILED_SHOWN_MAX: usize = 20;
/// Characters of one failed check's message, with the reason that was added. Longer text is truncated.
pub const JUDGE_FAILED_CHARS_MAX: usize = 1_000;

// Execution log

/// Characters of `execution_type`. A workflow with a longer one is refused with `VALIDATION_FAILED`.
pub const EXECUTION_TYPE_CHARS_MAX: usize = 50;
/// Bytes of the input and of the output in a record of the execution log. A larger one is replaced by its size and
/// digest; the call itself keeps it.
pub const EXECUTION_DATA_BYTES_MAX: usize = 1024 * 1024;

// Patches

/// Nodes that one patch may add. A patch with more is refused with `VALIDATION_FAILED`.
pub const PATCH_NODES_MAX: usize = 100;
/// Edges that one patch may add, and remove. A patch with more is refused with `VALIDATION_FAILED`.
pub const PATCH_EDGES_MAX: usize = 500;
/// Characters of a patch's justification. A longer one is refused with `VALIDATION_FAILED`.
pub const JUSTIFICATION_CHARS_MAX: usize = 2_000;
/// Patches of one run. One more is refused with `VALIDATION_FAILED`.
pub const RUN_PATCHES_MAX: u32 = 32;
/// Attempts to examine a patch while its run makes progress. After the last one the request fails with `OCC_CONFLICT`.
pub const PATCH_TRIES_MAX: u32 = 50;

// Expressions

/// Work units of the expressions in one turn of a run. The run commits and continues with the next turn.
pub const TURN_WORK_MAX: u64 = 200_000;
/// Work units of all expressions of a run while one process drives it. With more the run fails with
/// `VALIDATION_FAILED`.
pub const RUN_WORK_MAX: u64 = 100_000_000;

// JSON Schemas

/// Subschemas of one JSON Schema. A workflow with a larger one is refused with `VALIDATION_FAILED`.
pub const SCHEMA_NODES_MAX: usize = 10_000;
/// Subschemas of a JSON Schema that may apply to one location of a value, with references followed. A workflow with
/// such a schema is refused with `VALIDATION_FAILED`.
pub const SCHEMA_APPLIED_MAX: u64 = 1_000;
/// Subschemas that may apply to one location of a value. With more, the value is checked off the request threads.
pub const SCHEMA_APPLIED_CHEAP_MAX: u64 = 16;
/// Steps to count the subschemas of a JSON Schema. A workflow with a schema that takes more is refused with
/// `VALIDATION_FAILED`.
pub const SCHEMA_STEPS_MAX: usize = 1_000_000;
/// Regular expressions of one JSON Schema. A workflow with more is refused with `VALIDATION_FAILED`.
pub const SCHEMA_PATTERNS_MAX: usize = 50;
/// Bytes of one compiled regular expression. A workflow with a larger one is refused with `VALIDATION_FAILED`.
pub const PATTERN_BYTES_MAX: usize = 262_144;
/// Bytes that a compiled regular expression counts for at least when its memory is estimated. A larger one counts for
/// four times as much, or for four times that, and so on.
pub const PATTERN_BYTES_MIN: usize = 4 * 1024;
/// Bytes of memory that all regular expressions of a workflow's inputs may take, estimated in powers of four. A workflow
/// with more is refused with `VALIDATION_FAILED`.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that a state of a compiled regular expression takes at least. A pattern that is not understood before it is
/// compiled counts as if all its states were that small.
pub const PATTERN_STATE_BYTES_MIN: usize = 24;
/// Steps that the patterns of a caller's schema may take on a value, about 10 ns each: bytes of text times the states of
/// the pattern (`[a-z]{50}` has about a hundred), for each time that it is applied. A larger value is refused with
/// `VALIDATION_FAILED`.
pub const SCHEMA_PATTERN_WORK_MAX: u64 = 50_000_000;
/// Steps of such patterns, counted in the same way, up to which a refusal lists the errors with their locations. Beyond
/// it the refusal only says that the value does not match the schema.
pub const SCHEMA_FAULTS_PATTERN_WORK_MAX: u64 = 1_000_000;
/// Work units of one validation: locations of the value times the subschemas that may apply to one. A larger value is
/// refused with `VALIDATION_FAILED`.
pub const SCHEMA_WORK_MAX: u64 = 10_000_000;
/// Work units of a validation, counted in the same way, up to which a refusal lists the errors with their locations.
/// Beyond it the refusal only says that the value does not match the schema.
pub const SCHEMA_FAULTS_WORK_MAX: u64 = 100_000;
/// Validation errors of one document that a refusal lists. Further errors are omitted.
pub const SCHEMA_FAULTS_MAX: usize = 16;
/// Characters of a validation error's pointer, and of its message. Longer text is truncated.
pub const FAULT_CHARS_MAX: usize = 300;

// Runs

/// Bytes of a run's inputs, and of one step's input. Larger inputs fail with `PAYLOAD_TOO_LARGE`.
pub const RUN_INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one step's output. A step with a larger one fails with `EXTERNAL_SERVICE_ERROR`; if its call changed
/// something outside and must not be repeated, the call is in doubt (`outcome_unknown`): it happened, and its output
/// was not kept.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Values of one step's output, including lists and objects. A step with more fails or is in doubt like one whose
/// output has too many bytes.
pub const OUTPUT_VALUES_MAX: usize = JSON_VALUES_MAX;
/// Total bytes of the inputs and outputs of a run's steps. A step whose input would exceed it fails with
/// `PAYLOAD_TOO_LARGE` before it is written, and a map before its first item; outputs are kept.
pub const RUN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Estimated memory of the inputs and outputs of one run: many small values take more than their text. A step whose
/// input would exceed it fails with `PAYLOAD_TOO_LARGE` before it is written, and a map before its first item; outputs
/// are kept.
pub const RUN_MEMORY_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of a run's result, and of the outputs of all items of a map. A run or a map with more fails with
/// `PAYLOAD_TOO_LARGE`.
pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Default timeout of a run. After it the run fails with `REQUEST_TIMEOUT`.
pub const RUN_SECONDS_DEFAULT: u32 = 30 * 86_400;
/// Steps of one run: its nodes, and the items of its maps. A map that would exceed it fails with `PAYLOAD_TOO_LARGE`
/// before its first item.
pub const RUN_STEPS_MAX: usize = 50_000;
/// Rows of one table that are read for one run. A run with more is refused with `PAYLOAD_TOO_LARGE`, never read in
/// part.
pub const RUN_ROWS_MAX: usize = 250_000;
/// Bytes of one table that are read for one run. A run with more is refused with `PAYLOAD_TOO_LARGE`, never read in
/// part.
pub const ROWS_HELD_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Compensations that one run may have recorded, over all its rollbacks. A rollback that would exceed it is refused and
/// recorded as `run.rollback_refused`.
pub const RUN_UNDOS_MAX: usize = 100_000;
/// Items of one map. A map with more fails with `PAYLOAD_TOO_LARGE`.
pub const MAP_ITEMS_MAX: usize = 10_000;
/// Nesting depth of child runs. A step that would start a deeper one fails with `VALIDATION_FAILED`.
pub const RUN_DEPTH_MAX: u32 = 8;
/// Child runs of one run, on all levels, shared evenly among the nodes and items that start some. A step that would
/// start more fails with `VALIDATION_FAILED`.
pub const RUN_DESCENDANTS_MAX: u64 = 100_000;
/// Length of a chain of runs that replay each other. One more is refused with `VALIDATION_FAILED`.
pub const REPLAY_CHAIN_MAX: usize = 100;
/// Default priority of a run. Of waiting calls, those with a smaller number are made first.
pub const PRIORITY_DEFAULT: i32 = 5;
/// Priority of the most urgent runs. A smaller number is refused with `VALIDATION_FAILED`.
pub const PRIORITY_MIN: i32 = 1;
/// Priority of the least urgent runs. A larger number is refused with `VALIDATION_FAILED`.
pub const PRIORITY_MAX: i32 = 10;
/// Rows that one turn of a run writes. The run commits and continues with the next turn.
pub const TURN_ROWS_MAX: usize = 400;
/// Signals that one turn of a run applies. The next turns apply the others.
pub const TURN_SIGNALS_MAX: usize = 100;
/// Messages for one run that are queued in memory. A further signal is read from the store.
pub const RUN_INBOX_MAX: usize = 256;
/// Attempts to read a run while it commits turns. After the last one the request fails with `OCC_CONFLICT`.
pub const SNAPSHOT_TRIES_MAX: usize = 20;
/// Events of a run that are read at a time for a client that follows it. The next read returns further events.
pub const FEED_PAGE_MAX: usize = 256;
/// Calls of one step that are shown with a run. Further calls are omitted.
pub const STEP_CALLS_SHOWN_MAX: usize = 100;
/// Pages that one listing of calls in doubt reads to find those that its caller may see. The response has fewer items
/// and a cursor to continue.
pub const DOUBT_PAGES_MAX: usize = 8;
/// Runs that are searched for the tools that a rollback would call. For more, the rollback needs the scope `*`, else it
/// is refused with `RBAC_FORBIDDEN`.
pub const UNDO_RUNS_SEARCHED_MAX: usize = 1_000;
/// Times that escapes in a body or a query are undone to find a method that it names. With more it counts as one that deletes.
pub const ESCAPES_UNDONE_MAX: usize = 4;
/// Steps without a completed compensation that the entry about a rollback lists. Further steps are only counted.
pub const UNDO_LEFT_SHOWN_MAX: usize = 20;
/// Steps or lanes that one ledger entry about a restore lists. If there are more, it has their number and a digest.
pub const RESTORE_LISTED_MAX: usize = 100;
/// Runs that are notified of a restore in one transaction. The others follow in further transactions.
pub const RESTORE_RUNS_PER_TX_MAX: usize = 200;

// Calls of tools

/// Calls in flight at a time in one process. Further calls wait. The setting `flow.calls_max` changes it.
pub const CALLS_MAX: usize = 1_024;
/// Calls in flight at a time for one tenant in one process. Further calls wait. The setting `flow.tenant_calls_max`
/// changes it.
pub const TENANT_CALLS_MAX: usize = 512;
/// Calls of one tool in flight at a time in one process. Further calls wait. The setting `flow.tool_calls_max` changes
/// it.
pub const TOOL_CALLS_MAX: usize = 256;
/// Calls to one host in flight at a time in one process. Further calls wait. The setting `flow.host_calls_max` changes
/// it.
pub const HOST_CALLS_MAX: usize = 64;
/// Calls of one run in flight at a time. Further steps wait.
pub const RUN_CALLS_MAX: usize = 64;
/// Calls that may wait for one host, or for one tool without a host. A new run that would wait there is refused with
/// `OVERLOADED`. The setting `flow.calls_waiting_max` changes it.
pub const CALLS_WAITING_MAX: usize = 10_000;
/// Waiting calls that a process remembers while their runs are parked in the store. The runs of further calls are found
/// by scanning the store.
pub const CALLS_REMEMBERED_MAX: usize = 50_000;
/// Retry delay suggested to a refused caller when too many calls wait. A caller that retries sooner is probably refused
/// again.
pub const OVERLOAD_RETRY_SECONDS: u64 = 10;
/// Retries of a step after the first attempt. After the last one the step fails with the error of that attempt.
pub const RETRIES_MAX: u32 = 3;
/// Backoff before the first retry of a step. It doubles with each retry.
pub const RETRY_FIRST_DELAY_MS: i64 = 1_000;
/// Jitter of the backoff, in thousandths. It is never more.
pub const RETRY_JITTER_PER_MILLE: i64 = 200;
/// Retry delay that a service may request. A longer delay is shortened to this.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;
/// Times that a call is sent or checked again because its process died. After the last one the step fails with
/// `OUTCOME_UNKNOWN`.
pub const RESENDS_MAX: u32 = 20;
/// Time that a call may continue after it was asked to stop. After it the call is dropped.
pub const CALL_STOP_GRACE: Duration = Duration::from_secs(5);

// Work elsewhere

/// Time after its own timeout that a child run has to end. After it the parent cancels the child, and again after the
/// same time.
pub const CHILD_DEADLINE_GRACE_SECONDS: i64 = 300;
/// Lease of a worker on a call. A declared tool with a longer one is refused.
pub const WORK_LEASE_SECONDS_MAX: u32 = 3_600;
/// Default lease of a worker on a call. After it the call is offered to another worker, or its outcome is unknown.
pub const WORK_LEASE_SECONDS_DEFAULT: u32 = 60;
/// Workers that may lose their lease on one call, one after another. After the last one the call fails with
/// `REQUEST_TIMEOUT`, or its outcome is unknown.
pub const WORK_CLAIMS_MAX: u32 = 5;
/// Calls that one claim returns. A claim that asks for more is refused with `VALIDATION_FAILED`.
pub const WORK_CLAIM_ITEMS_MAX: usize = 100;
/// Bytes of the inputs that one claim returns, beyond the first one. Further calls stay in the queue.
pub const WORK_CLAIM_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time that a claim may wait for calls. A claim that asks for more is refused with `VALIDATION_FAILED`.
pub const WORK_WAIT_SECONDS_MAX: u32 = 20;
/// Interval in which a waiting claim looks into the store without a notification. A lost notification delays a call by
/// this time.
pub const WORK_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Claims that wait at a time in one process. A further claim is answered at once.
pub const WORK_WAITS_MAX: usize = 1_000;
/// Characters of the id that a worker gives its claim. A claim with fewer or more is refused with `VALIDATION_FAILED`.
pub const CLAIM_ID_CHARS_MAX: usize = 128;
/// Characters that such an id has at least, because lease tokens are derived from it. A shorter one could be guessed.
pub const CLAIM_ID_CHARS_MIN: usize = 22;
/// Characters of a queue's name. A declared tool with a longer one is refused.
pub const WORK_QUEUE_CHARS_MAX: usize = 64;
/// Characters of the name that a worker gives itself. A claim with a longer one is refused with `VALIDATION_FAILED`.
pub const WORKER_NAME_CHARS_MAX: usize = 100;
/// Time that a tool may give its workers, from the queue to the outcome. A declared tool with a longer one is refused.
pub const WORK_TIMEOUT_SECONDS_MAX: u32 = FLOW_SECONDS_MAX;

// Limits over time

/// Length of the window of a limit. The rules with a longer one are refused with `CONFIG_INVALID`.
pub const RULE_WINDOW_SECONDS_MAX: u32 = 31 * 86_400;
/// Limits of one rule. A rule with more is refused with `CONFIG_INVALID`.
pub const RULE_LIMITS_MAX: usize = 8;
/// Characters of the name of a rule with limits. A longer one is refused with `CONFIG_INVALID`.
pub const RULE_NAME_CHARS_MAX: usize = 200;
/// Bytes of the name of a rule, the JSON pointers of one of its limits, and 64 for each value that it counts by: the key
/// of a row. A longer one is refused with `CONFIG_INVALID`.
pub const RULE_SUBJECT_BYTES_MAX: usize = 1_500;
/// Limits that apply to one call. A call with more is refused with `POLICY_DENIED`.
pub const CALL_LIMITS_MAX: usize = 32;
/// Calls that a window counts one by one. If there are more, old calls that are close together are counted as one, at
/// the time of the last of them.
pub const RESERVATION_ENTRIES_MAX: usize = 128;
/// Parts of a window within which old calls are counted as one. Such a call counts longer by one part at most.
pub const RESERVATION_WINDOW_PARTS: i64 = 64;
/// Attempts to start a run together with its first limited calls while others use the same limit. After the last one it
/// is started without them, and makes them when it gets there.
pub const START_CONSULTS_MAX: u32 = 8;
/// Pause of a run whose call lost a place within a limit to another run a second time. It grows with each attempt.
pub const RESERVE_RETRY_PAUSE_FIRST: Duration = Duration::from_millis(4);
/// Longest pause of a run whose call lost a place within a limit to another run. Then it reads the limit again.
pub const RESERVE_RETRY_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Turns that are committed together because they take places within limits. Further turns follow in the next
/// transaction.
pub const JOINED_TURNS_MAX: usize = 64;
/// Rows of such a transaction. A turn that does not fit follows in the next one.
pub const JOINED_ROWS_MAX: usize = 1_000;
/// Attempts to write the row of a limit while other nodes change it. After the last one the runs read it again.
pub const RESERVE_TRIES_MAX: usize = 4;
/// Windows of limits that a process keeps in memory. With more it drops those that no turn is changing.
pub const WINDOWS_KEPT_MAX: usize = 4_096;
/// Effects that a process remembers to have succeeded, so that it need not look them up whenever a limit is reached. With
/// more it forgets them all.
pub const SETTLED_EFFECTS_KEPT_MAX: usize = 20_000;
/// Interval between two searches for windows without counted calls. Their rows are deleted this much later.
pub const RESERVATIONS_SWEEP_SECONDS: i64 = 60;
/// Rows of windows without counted calls that are deleted at a time. The others follow.
pub const RESERVATIONS_SWEPT_MAX: usize = 500;

// Runs in memory

/// Runs that one process drives at a time. Further runs are refused with `OVERLOADED` until some complete or park. The
/// setting `flow.runs_max` changes it.
pub const ACTIVE_RUNS_MAX: usize = 10_000;
/// Runs of one tenant that one process drives at a time. Further runs are refused with `OVERLOADED`. The setting
/// `flow.tenant_runs_max` changes it.
pub const TENANT_RUNS_MAX: usize = 8_000;
/// Estimated memory of the inputs and outputs of all runs that one process drives; of several tenants each has its
/// share. A run that would exceed it waits in the store until there is room. The setting `flow.runs_memory_bytes_max`
/// changes it.
pub const RUNS_MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of memory from which on a run counts toward that total. A larger run is processed on worker threads.
pub const RUN_MEMORY_BYTES_COUNTED: usize = 64 * 1024;
/// Calls of one tool that runs in memory make or wait for. Runs that would wait for more wait in the store. The
/// setting `flow.tool_runs_max` changes it.
pub const TOOL_RUNS_MAX: usize = 2_000;
/// Runs parked in the store for a slot while requests wait for their results. Further requests are answered at once
/// that the run is still in progress.
pub const RUNS_WATCHED_MAX: usize = 4_096;
/// Minimum time after which a run parked for a slot is checked without a notification. A lost notification delays the
/// run by this time.
pub const SLOT_POLL_SECONDS_MIN: u64 = 30;
/// Runs parked for a slot that are checked per second. With more of them each is checked later.
pub const SLOT_POLLS_PER_SECOND: usize = 50;
/// Interval between two attempts of a run in memory to get a slot without a notification. A lost notification delays
/// the run by this time.
pub const SLOT_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time until its deadline for a waiting run to be parked. A run with a nearer deadline stays in memory.
pub const PARK_SECONDS_MIN: i64 = 5;
/// Time after which a run that only waits for a signal is checked without one. A lost notification delays the run by
/// this time.
pub const SIGNAL_POLL_SECONDS: i64 = 60;
/// Interval between two scans for runs without an owner. A run without a notification is taken over this much later.
pub const KEEPER_SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two scans for such runs in the lanes of this process. A run without a notification is taken over
/// this much later.
pub const KEEPER_OWN_LANE_SECONDS: i64 = 10;
/// Time between two scans that counts toward the silence of a lane. A longer gap counts as this, because a stalled
/// process has observed nothing.
pub const KEEPER_GAP_SECONDS_MAX: i64 = 3;
/// Time beyond its lease that a silent lane is given. After it the lane counts as dead, and its runs are taken over.
pub const LANE_SILENCE_MARGIN_SECONDS: i64 = 2;
/// Pause before a run whose failure can't be written is tried again. The run stays as it is meanwhile.
pub const RUN_WRITE_FAILED_PAUSE: Duration = Duration::from_secs(60);
/// First backoff of a run after the store refused a commit or a read. It doubles with each attempt.
pub const STORE_RETRY_PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest such backoff. The run retries at this pace until the store answers.
pub const STORE_RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

// Approvals and drafts

/// Approvals that one run may ask for. A step that needs one more fails with `VALIDATION_FAILED`, and a patch is
/// refused.
pub const RUN_APPROVALS_MAX: u32 = 1_000;
/// Default time that an approval waits for a decision. After it the approval expires.
pub const APPROVAL_SECONDS_DEFAULT: u32 = 86_400;
/// Longest time that an approval may wait. A longer time is shortened to this.
pub const APPROVAL_SECONDS_MAX: u32 = 30 * 86_400;
/// Attempts to record a decision while others decide. After the last one the request fails with `OCC_CONFLICT`.
pub const DECIDE_TRIES_MAX: u32 = 50;
/// Bytes of a note or a reason that a person gives with a decision. A longer one is refused with `PAYLOAD_TOO_LARGE`.
pub const NOTES_BYTES_MAX: usize = 8 * 1024;
/// Characters of the kind of action in the record of an approval. A longer one is truncated.
pub const APPROVAL_ACTION_CHARS_MAX: usize = 50;
/// Distinct calls of a map that a draft dry-runs. The others are listed with their inputs.
pub const DRAFT_ITEMS_MAX: usize = 100;
/// Bytes of the calls that one approval request lists. Calls that don't fit get a request of their own.
pub const DRAFT_BYTES_MAX: usize = 1024 * 1024;
/// Estimated memory of a draft: its calls and what they would give. A run with a larger one fails with
/// `PAYLOAD_TOO_LARGE` before anybody is asked.
pub const DRAFT_MEMORY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Dry-run calls that a draft buffers. Then they are written, and the draft continues.
pub const DRAFT_CALLS_BUFFERED_MAX: usize = 200;
/// Spaces and tabs in a row that a review shows as they are. A longer run is written as its length, because the words
/// after it would look like a line of their own where the line wraps.
pub const BLANKS_SHOWN_MAX: usize = 3;
/// Spaces before the words of a line, in a text of several lines, that a review shows as they are. A wider indent is
/// written as its length.
pub const INDENT_SHOWN_MAX: usize = 16;

// Events

/// Characters of an event's name. A longer name is refused with `VALIDATION_FAILED`.
pub const EVENT_NAME_CHARS_MAX: usize = 128;
/// Characters of an event's key. A longer key is refused with `VALIDATION_FAILED`, and a step that waits for one fails.
pub const EVENT_KEY_CHARS_MAX: usize = 256;
/// Characters of the id that a publisher gives to an event. A longer one is refused with `VALIDATION_FAILED`.
pub const EVENT_ID_CHARS_MAX: usize = 128;
/// Bytes of an event's payload. A larger one is refused with `PAYLOAD_TOO_LARGE`.
pub const EVENT_PAYLOAD_BYTES_MAX: usize = 32 * 1024;
/// Runs that one event may be delivered to when it is published. If more wait for it, it is refused with `OVERLOADED`.
pub const EVENT_RUNS_MAX: usize = 500;
/// Events of one name and key that are kept at a time. One more is refused with `OVERLOADED`. Publishers at the same
/// moment may exceed it by a few.
pub const EVENTS_PER_KEY_MAX: usize = 100;
/// Default time for which an event is kept. A wait that begins later does not get it.
pub const EVENT_SECONDS_DEFAULT: u32 = 86_400;
/// Longest time for which an event may be kept. A longer one is refused with `VALIDATION_FAILED`.
pub const EVENT_SECONDS_MAX: u32 = 7 * 86_400;
/// Attempts to publish an event while runs begin to wait for it. After the last one the request fails with
/// `OCC_CONFLICT`.
pub const PUBLISH_TRIES_MAX: u32 = 50;
/// Pause before a run looks for its event again because the store did not answer. The run waits meanwhile.
pub const EVENT_LOOKUP_PAUSE: Duration = Duration::from_secs(1);
/// Interval between two deletions of expired events. They are kept up to this time longer.
pub const EVENT_SWEEP_SECONDS: i64 = 60;
/// Expired events that are deleted at a time. The next deletion follows at once.
pub const EVENT_SWEEP_ROWS_MAX: usize = 500;
/// Time after which the mark of a channel on which no wait has begun is deleted. A publisher never takes that long.
pub const EVENT_CHANNEL_SECONDS: i64 = 86_400;

// Messages to people

/// Attempts to deliver one message, with exponential backoff. After the last one the message is marked as failed.
pub const MESSAGE_TRIES_MAX: i64 = 12;
/// Timeout of one attempt to deliver a message. After it the attempt fails and is retried later.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Lease of one process on a message to deliver. After it another process may try.
pub const MESSAGE_LEASE_SECONDS: i64 = 60;
/// Messages that a process sends concurrently, each to a different recipient. Further messages wait.
pub const MESSAGES_SENT_AT_ONCE_MAX: usize = 32;
/// Messages of one tenant among these. Further messages of the tenant wait.
pub const MESSAGES_SENT_AT_ONCE_TENANT_MAX: usize = 8;
/// Recipients of one message about a run that waits for a person. Further recipients get none.
pub const MESSAGE_RECIPIENTS_MAX: usize = 8;
/// Bytes of the action in a message that asks for a decision. A larger one is shown only on the linked page.
pub const MESSAGE_ACTION_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the review in a message that asks for a decision. A larger one is shown only on the linked page.
pub const MESSAGE_REVIEW_BYTES_MAX: usize = 512 * 1024;
/// Interval between two scans of the outbox without a notification. A lost notification delays a message by this time.
pub const OUTBOX_POLL_INTERVAL: Duration = Duration::from_secs(2);
