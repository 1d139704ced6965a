//! Every limit of the system, in one place; the reference in `docs/reference/limits.md` is
//! checked against this file.

/// Rows of a page when the caller doesn't say.
pub const PAGE_ROWS_DEFAULT: usize = 50;
/// Rows of a page at the most.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Rows that one count looks at for metrics; what is more is not counted.
pub const COUNT_ROWS_MAX: usize = 100_000;
/// Seconds between two looks at the store for metrics.
pub const METRICS_SECONDS: u64 = 5;
/// Seconds after which a timer that nobody took up counts as overdue.
pub const TIMER_OVERDUE_SECONDS: i64 = 5;
/// Seconds after which a signal that its run has not taken in counts as overdue.
pub const SIGNAL_OVERDUE_SECONDS: i64 = 60;
/// Rows, steps and entries in one transaction at the most.
pub const TX_ROWS_MAX: usize = 2_000;
/// Transactions that one commit may carry.
pub const BATCH_TXS_MAX: usize = 256;
/// Rows that one commit may carry; a larger single transaction goes alone.
pub const BATCH_ROWS_MAX: usize = 4_000;
/// Transactions that may wait in one lane; more are refused.
pub const LANE_QUEUE_MAX: usize = 8_192;
/// Tries of a batch that the database refuses because of concurrency.
pub const CONTENTION_TRIES_MAX: u32 = 8;
/// Bytes of one ledger entry's data at the most; more is shortened.
pub const ENTRY_DATA_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all other fields of one ledger entry at the most.
pub const ENTRY_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Nesting of a JSON document at the most.
pub const JSON_DEPTH_MAX: usize = 64;
/// Characters of an idempotency key at the most.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 256;
/// Seconds an idempotency record lives by default.
pub const IDEMPOTENCY_TTL_SECONDS: i64 = 86_400;
/// Seconds a lane's lease lasts without a renewal.
pub const LANE_LEASE_SECONDS: i64 = 15;
/// Bytes of an HTTP request head at the most, and of an answer that waits to be taken.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an HTTP request's path and query at the most.
pub const TARGET_BYTES_MAX: usize = 8 * 1024;
/// Characters of one text in an error at the most; it may repeat what the caller sent.
pub const ERROR_TEXT_CHARS_MAX: usize = 500;
/// Characters of an error's message at the most, and of each text in its details; it may repeat what others sent.
pub const ERROR_MESSAGE_CHARS_MAX: usize = 2_000;
/// Bytes of one detail of an error, beyond which what follows is left out.
pub const ERROR_DETAIL_BYTES_MAX: usize = 32 * 1024;
/// Bytes of an HTTP request body at the most.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Seconds that somebody may ask an answer to wait for a run; the server's own timeout may be less.
pub const WAIT_SECONDS_MAX: f64 = 3_600.0;
/// Characters of an actor's name at the most.
pub const ACTOR_CHARS_MAX: usize = 255;
/// Scopes of an actor, or of a token, at the most.
pub const ACTOR_SCOPES_MAX: usize = 256;
/// Characters of a scope at the most.
pub const SCOPE_CHARS_MAX: usize = 128;
/// Bytes of an access token at the most.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Seconds that an access token lives.
pub const TOKEN_SECONDS: i64 = 3_600;
/// Seconds that a refresh token, and every token that descends from one sign-in, lives.
pub const REFRESH_SECONDS: i64 = 30 * 86_400;
/// Seconds within which a refresh token may be used again, for callers that work side by side.
pub const REFRESH_GRACE_SECONDS: i64 = 30;
/// Seconds by which the time in a signed request may differ from ours.
pub const CLOCK_SKEW_SECONDS: i64 = 60;
/// Characters of a nonce at the most.
pub const NONCE_CHARS_MAX: usize = 128;
/// Characters of an actor's key at the least.
pub const ACTOR_KEY_CHARS_MIN: usize = 16;
/// Seconds by which the machine's clock may move differently from the time that passes before that is a jump.
pub const CLOCK_JUMP_SECONDS: i64 = 5;
/// Seconds that a jump of the machine's clock must last before times follow it.
pub const CLOCK_JUMP_LASTING_SECONDS: i64 = 30;
/// After a jump was followed, the time for deadlines runs faster or slower by one part in so many until both agree.
pub const CLOCK_SLEW_PARTS: i64 = 10;
/// Seconds by which the clock of a machine may be behind the newest ledger entry, or differ from the database's, when a
/// node starts: with more it waits.
pub const CLOCK_DIFFERENCE_SECONDS_MAX: i64 = 60;
/// Seconds that a database may take to answer a new session, or a question beside a command, before it counts as silent.
pub const DATABASE_SILENCE_SECONDS_MAX: u64 = 15;
/// Seconds after which a loop that looks after runs, actors or checkpoints without success makes a node not ready.
pub const UPKEEP_SILENCE_SECONDS_MAX: i64 = 60;
/// Milliseconds that an answer about readiness is given again: whoever asks more often asks no store.
pub const READINESS_KEPT_MS: i64 = 500;
/// Keys of an actor that count at one time.
pub const ACTOR_KEYS_MAX: usize = 8;
/// Keys of actors that have ended and go together when they are swept.
pub const ENDED_KEYS_SWEPT_MAX: usize = 500;
/// Requests a minute that admin keeps: whoever has fewer can't even sign in to raise them.
pub const ADMIN_QUOTA_MIN: u32 = 10;
/// Tenants that one store holds.
pub const TENANTS_MAX: usize = 10_000;
/// Characters of a tenant's slug.
pub const TENANT_SLUG_CHARS_MAX: usize = 63;
/// Characters of a tenant's name.
pub const TENANT_NAME_CHARS_MAX: usize = 200;
/// Actors and patterns that the registry holds.
pub const ACTORS_MAX: usize = 10_000;
/// Revoked tokens, and as many sign-ins, that a process knows by heart; for more it asks the store.
pub const REVOKED_HELD_MAX: usize = 10_000;
/// Tokens that a process remembers as checked.
pub const TOKENS_KNOWN_MAX: usize = 4_096;
/// How many times larger the window for reading is than the one for everything else.
pub const READ_QUOTA_FACTOR: u32 = 10;
/// Bytes of one stored blob at the most.
pub const BLOB_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Seconds a presigned URL may live at the most.
pub const PRESIGN_SECONDS_MAX: u64 = 3_600;
/// Messages a slow subscriber of the bus may be behind before it is told that it missed some.
pub const BUS_BACKLOG_MAX: usize = 1_024;
/// Bytes of one line of a ledger export at the most.
pub const EXPORT_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Entries that one checkpoint may add; the next one takes the rest.
pub const CHECKPOINT_ENTRIES_MAX: i64 = 200_000;
/// Lanes of a ledger at the most.
pub const LANES_MAX: usize = 1_000;
/// Tries to begin a request under an idempotency key that others use at the same time.
pub const IDEMPOTENCY_TRIES_MAX: u32 = 4;
/// Bytes of one bus message at the most; a hint carries ids, not content.
pub const BUS_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a bus topic's name at the most.
pub const BUS_TOPIC_BYTES_MAX: usize = 256;
/// Topics that one process may listen to at a time.
pub const BUS_TOPICS_MAX: usize = 4_096;
/// Keys that the in-process counters hold at a time; more are refused, never forgotten early.
pub const COUNTER_KEYS_MAX: usize = 100_000;
/// Idempotency keys that a process remembers as used lately; a use before that is known to the store alone.
pub const RECENT_KEYS_MAX: usize = 65_536;
/// Bytes of a counter key at the most.
pub const COUNTER_KEY_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a claim's value at the most.
pub const COUNTER_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Seconds a claim may live at the most.
pub const CLAIM_TTL_SECONDS_MAX: u64 = 30 * 86_400;
/// Hits that one rate window may allow at the most.
pub const RATE_HITS_MAX: u32 = 1_000_000;
/// Seconds of one rate window at the most.
pub const RATE_WINDOW_SECONDS_MAX: u32 = 86_400;
/// Characters of a secret's name at the most.
pub const SECRET_NAME_CHARS_MAX: usize = 128;
/// Bytes of a secret's value at the most.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Bytes a secret must have before its bare value is masked wherever it stands; shorter ones
/// would mask ordinary words.
pub const SECRET_MASK_BYTES_MIN: usize = 6;
/// Encodings within each other behind which a known secret is looked for.
pub const REDACT_DEPTH_MAX: usize = 4;
/// Bytes that are decoded for each byte of a text in which known secrets are looked for.
pub const REDACT_DECODED_RATIO_MAX: usize = 32;
/// Bytes that are decoded at the most of one text or document in which known secrets are looked for.
pub const REDACT_DECODED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of an output that are looked through for known secrets where requests are answered; larger ones go elsewhere.
pub const REDACT_AT_ONCE_BYTES_MAX: usize = 64 * 1024;
/// Signatures of one request and one actor of which one must fit; one with more that could fit is refused.
pub const SIGNATURES_TRIED_MAX: usize = 8;
/// Faults of one document that are told at the most.
pub const SCHEMA_FAULTS_MAX: usize = 16;
/// Characters of a fault's pointer, and of what is said about it.
pub const FAULT_CHARS_MAX: usize = 300;
/// Bytes of a workflow document at the most.
pub const WORKFLOW_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Nodes of a workflow at the most.
pub const WORKFLOW_NODES_MAX: usize = 10_000;
/// Edges of a workflow at the most.
pub const WORKFLOW_EDGES_MAX: usize = 50_000;
/// Characters of a workflow's name at the most.
pub const WORKFLOW_ID_CHARS_MAX: usize = 128;
/// Workflows that one may start through its children and theirs, all in all.
pub const WORKFLOW_FAMILY_MAX: usize = 1_000;
/// Faults of one workflow or patch that are told at the most.
pub const PROBLEMS_MAX: usize = 50;
/// Seconds of a delay, a timeout or an expiry in a workflow at the most.
pub const FLOW_SECONDS_MAX: u32 = 90 * 86_400;
/// Approvals that one question may need at the most.
pub const APPROVALS_NEEDED_MAX: u32 = 10;
/// Patterns of approvers that one question may name at the most.
pub const APPROVERS_MAX: usize = 50;
/// Items of a map that run at a time when the author doesn't say.
pub const MAP_PARALLEL_DEFAULT: u32 = 8;
/// Items of a map that run at a time at the most.
pub const MAP_PARALLEL_MAX: u32 = 100;
/// Nodes that one patch may add.
pub const PATCH_NODES_MAX: usize = 100;
/// Edges that one patch may add.
pub const PATCH_EDGES_MAX: usize = 500;
/// Characters of a patch's justification at the most.
pub const JUSTIFICATION_CHARS_MAX: usize = 2_000;
/// Bytes of one expression at the most.
pub const EXPRESSION_BYTES_MAX: usize = 2_048;
/// Terms of one expression at the most.
pub const EXPRESSION_TERMS_MAX: usize = 256;
/// Nesting of one expression at the most.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Items of a list that an expression may walk over.
pub const EXPRESSION_LIST_MAX: usize = 10_000;
/// Parts of one JSON Schema at the most.
pub const SCHEMA_NODES_MAX: usize = 10_000;
/// Parts of a JSON Schema that may apply to one place of a value, after all references are followed.
pub const SCHEMA_APPLIED_MAX: u64 = 1_000;
/// Bytes of a workflow's document above which it is compiled off the threads that answer requests.
pub const COMPILE_BYTES_ASIDE: usize = 1_024;
/// Steps that counting the parts of a JSON Schema may take.
pub const SCHEMA_STEPS_MAX: usize = 1_000_000;
/// Patterns in one JSON Schema at the most.
pub const SCHEMA_PATTERNS_MAX: usize = 50;
/// Bytes of one compiled pattern of a JSON Schema at the most.
pub const PATTERN_BYTES_MAX: usize = 262_144;
/// Bytes of text in a value times the patterns of the JSON Schema that it is checked with.
pub const SCHEMA_TEXT_MAX: u64 = 2_000_000;
/// Work of one check at the most: places of the value times the parts that may apply to one.
pub const SCHEMA_WORK_MAX: u64 = 10_000_000;
/// Seconds over which refusals of one actor over its quota are summed up in the ledger.
pub const FLOOD_SECONDS: i64 = 60;
/// Actors and operations whose refusals over a quota are summed up at a time.
pub const FLOODS_MAX: usize = 10_000;
/// Work of one rendering at the most, in terms evaluated and 16-byte pieces copied.
pub const EXPRESSION_WORK_MAX: u64 = 1_000_000;
/// Work of an expression without variables when its document is compiled; one that takes more is left to the runs.
pub const CONSTANT_WORK_MAX: u64 = 10_000;
/// Work of all expressions of one plan at the most; what does not fit makes the plan one that is too large.
pub const PLAN_WORK_MAX: u64 = 2_000_000;
/// Work of the expressions in one turn of a run, after which it commits and goes on.
pub const TURN_WORK_MAX: u64 = 200_000;
/// Work of all expressions of a run, as long as one process drives it without a pause.
pub const RUN_WORK_MAX: u64 = 100_000_000;
/// Expressions of one template at the most.
pub const TEMPLATE_EXPRESSIONS_MAX: usize = 256;
/// Tries of a step after the first at the most.
pub const RETRIES_MAX: u32 = 3;
/// Times that a call may be sent anew because the process that made it died.
pub const RESENDS_MAX: u32 = 20;
/// Calls of one run that may be under way at a time.
pub const RUN_CALLS_MAX: usize = 64;
/// Rows that one turn of a run writes before it commits and goes on.
pub const TURN_ROWS_MAX: usize = 400;
/// Signals that one turn of a run takes in.
pub const TURN_SIGNALS_MAX: usize = 100;
/// Items of one map node at the most.
pub const MAP_ITEMS_MAX: usize = 10_000;
/// Runs that may be started inside each other.
pub const RUN_DEPTH_MAX: u32 = 8;
/// Runs that one run may have inside it at the most, all levels together; every node that starts
/// runs gets its share of them, and so does every item of a map.
pub const RUN_DESCENDANTS_MAX: u64 = 100_000;
/// Bytes of one step's output at the most.
pub const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a run's result at the most, and of what all items of a map give together.
pub const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a run's inputs at the most.
pub const RUN_INPUT_BYTES_MAX: usize = 1024 * 1024;
/// Approvals that one run may ask for.
pub const RUN_APPROVALS_MAX: u32 = 1_000;
/// Seconds that an approval waits for a person when nobody says otherwise.
pub const APPROVAL_SECONDS_DEFAULT: u32 = 86_400;
/// Seconds that an approval may wait at the most.
pub const APPROVAL_SECONDS_MAX: u32 = 30 * 86_400;
/// Patches of one run at the most.
pub const RUN_PATCHES_MAX: u32 = 32;
/// Times that a run is read again because a turn was committed while its rows were read.
pub const SNAPSHOT_TRIES_MAX: usize = 20;
/// Runs that repeat each other, one behind the other, at the most.
pub const REPLAY_CHAIN_MAX: usize = 100;
/// Different calls of a map node that a draft tries dry; the others are listed with their inputs.
pub const DRAFT_ITEMS_MAX: usize = 100;
/// Bytes of the calls that one request for approval lists. What does not fit is asked about by itself.
pub const DRAFT_BYTES_MAX: usize = 1024 * 1024;
/// Seconds until a deadline from which on a waiting run is not kept in memory.
pub const PARK_SECONDS_MIN: i64 = 5;
/// Seconds until a run that waits for a signal alone is looked at all the same.
pub const LOOK_AGAIN_SECONDS: i64 = 60;
/// Seconds that a run may take when its workflow doesn't say.
pub const RUN_SECONDS_DEFAULT: u32 = 30 * 86_400;
/// Calls of tools that one process has under way at a time.
pub const CALLS_MAX: usize = 1_024;
/// Calls that one tenant has under way at a time in one process.
pub const TENANT_CALLS_MAX: usize = 512;
/// Calls of one tool under way at a time in one process.
pub const TOOL_CALLS_MAX: usize = 256;
/// Calls to one host under way at a time in one process, whichever tools make them.
pub const HOST_CALLS_MAX: usize = 64;
/// Runs that one process drives at a time; more are refused until some end or wait.
pub const ACTIVE_RUNS_MAX: usize = 10_000;
/// Runs of one tenant that one process drives at a time.
pub const TENANT_RUNS_MAX: usize = 8_000;
/// Calls of one tool that runs in memory make or wait for; runs that would wait for more wait in the store.
pub const TOOL_RUNS_MAX: usize = 2_000;
/// Calls that may wait for one host, or for one tool without a host; a new run that would begin by
/// waiting there too is refused.
pub const CALLS_WAITING_MAX: usize = 10_000;
/// Waiting calls that a process remembers while their runs wait in the store; the runs of more are
/// found again by looking.
pub const CALLS_REMEMBERED_MAX: usize = 50_000;
/// Seconds, at the least, after which a run that waits in the store for a slot is looked at without
/// being told to go on.
pub const SLOT_LOOK_SECONDS: u64 = 30;
/// Runs that wait in the store for a slot and are looked at in one second; the more there are, the
/// later each is.
pub const SLOT_LOOKS_PER_SECOND: usize = 50;
/// Runs that wait in the store for a slot while requests wait for what comes of them.
pub const RUNS_WATCHED_MAX: usize = 4_096;
/// Events of a run that are read at a time for whoever follows it.
pub const FEED_PAGE_MAX: usize = 256;
/// Runs that are looked through for the tools that a rollback would call; a larger one is for those who may call
/// every tool.
pub const UNDO_RUNS_LOOKED_MAX: usize = 1_000;
/// Streams of events that one process keeps open at a time; more are refused.
pub const EVENT_STREAMS_MAX: usize = 256;
/// Streams of events that one process keeps open for one actor; more are refused.
pub const EVENT_STREAMS_PER_ACTOR_MAX: usize = 32;
/// Messages that may wait for one run; a signal beyond that is found by looking.
pub const RUN_INBOX_MAX: usize = 256;
/// Compiled workflows that one process keeps.
pub const WORKFLOWS_KEPT_MAX: usize = 1_000;
/// Steps of one run at the most: its nodes, and the items of its maps. A map that would make more
/// fails before its first item.
pub const RUN_STEPS_MAX: usize = 50_000;
/// Undos of steps that one run may have recorded at the most, those of all its rollbacks together.
pub const RUN_UNDOS_MAX: usize = 100_000;
/// Rows of one table that are read of one run. A run with more is refused, never read in part.
pub const RUN_ROWS_MAX: usize = 250_000;
/// Bytes of a note that a person leaves with a decision.
pub const NOTES_BYTES_MAX: usize = 8 * 1024;
/// The priority of a run when nobody says otherwise; one is most urgent, ten least.
pub const PRIORITY_DEFAULT: i32 = 5;
/// Tries to deliver one message to somebody; the waits between them double.
pub const MESSAGE_TRIES_MAX: i64 = 12;
/// Messages that a process sends at one time, each to another receiver.
pub const MESSAGES_SENT_AT_ONCE_MAX: usize = 32;
/// Of these, messages of one tenant.
pub const MESSAGES_SENT_AT_ONCE_TENANT_MAX: usize = 8;
/// Receivers of one message about a run that waits for a person.
pub const MESSAGE_RECIPIENTS_MAX: usize = 8;
/// Bytes of what would run in a message that asks for a decision; more is left to the page behind its link.
pub const MESSAGE_ACTION_BYTES_MAX: usize = 16 * 1024;
/// Bytes of what a decision is about in a message; more is left to the page behind its link.
pub const MESSAGE_REVIEW_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a text that is summarised at the most.
pub const SUMMARY_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Sentences of a summary at the most.
pub const SUMMARY_SENTENCES_MAX: usize = 50;
/// Bytes of a Markdown document that becomes a PDF at the most; images in the text count.
pub const MARKDOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Nesting of lists and quotes in a Markdown document at the most.
pub const MARKDOWN_DEPTH_MAX: usize = 32;
/// Pages of one PDF at the most.
pub const PDF_PAGES_MAX: usize = 1_000;
/// Images of one PDF at the most.
pub const PDF_IMAGES_MAX: usize = 200;
/// Bytes of all images of one PDF at the most.
pub const PDF_IMAGE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pixels of all images of one PDF at the most, because a small file can unfold into a large one.
pub const PDF_IMAGE_PIXELS_MAX: u64 = 50_000_000;
/// Cells of all tables of one PDF at the most.
pub const PDF_TABLE_CELLS_MAX: usize = 100_000;
/// Receivers of one mail at the most.
pub const MAIL_RECEIVERS_MAX: usize = 100;
/// Characters of a mail's subject at the most.
pub const MAIL_SUBJECT_CHARS_MAX: usize = 500;
/// Bytes of a mail's text, and of its HTML, at the most.
pub const MAIL_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one object that a tool uploads at the most.
pub const UPLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of an object's key at the most.
pub const OBJECT_KEY_BYTES_MAX: usize = 1_024;
/// Buckets to which connections are kept at a time.
pub const BUCKETS_OPEN_MAX: usize = 64;
/// Bytes of a request body that a tool may send over HTTP.
pub const HTTP_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of an answer's body that a tool reads over HTTP.
pub const HTTP_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of all headers of an answer that a tool accepts.
pub const HTTP_ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of an answer that a tool accepts.
pub const HTTP_ANSWER_HEADERS_MAX: usize = 128;
/// Redirects that one request of a tool follows.
pub const HTTP_REDIRECTS_MAX: usize = 5;
/// Milliseconds that making one connection may take, address lookup included.
pub const HTTP_CONNECT_TIMEOUT_MS: u64 = 10_000;
/// Seconds that another side may ask us to wait before the next try.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;
/// Bytes of a file that declares tools.
pub const DECLARED_FILE_BYTES_MAX: usize = 256 * 1024;
/// Tools that one file may declare.
pub const DECLARED_TOOLS_MAX: usize = 100;
/// Pages that one call of a declared tool may read.
pub const DECLARED_PAGES_MAX: usize = 50;
/// Characters of a tool's name at the most.
pub const TOOL_NAME_CHARS_MAX: usize = 128;
/// Milliseconds that one call of a tool may take at the most.
pub const TOOL_TIMEOUT_MS_MAX: u64 = 3_600_000;
/// Steps of a plan that may run without a person; one with more is drafted.
pub const PLAN_STEPS_FREE_MAX: usize = 10;
/// Completed runs of a workflow with others within that are looked through for one that did exactly the same;
/// with none among them it counts as done for the first time.
pub const FIRST_TIME_RUNS_MAX: usize = 50;
/// Reasons of one risk score at the most.
pub const RISK_REASONS_MAX: usize = 160;
/// Times that one text is unwrapped inside another while its risk is scored; what is deeper counts
/// as unreadable.
pub const RISK_LAYERS_MAX: usize = 4;
/// Bytes that are decoded while the risk of one plan is scored; what is beyond counts as unreadable.
pub const RISK_DECODED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a member's name that a reason's pointer shows at the most.
pub const RISK_NAME_BYTES_MAX: usize = 64;
/// Bytes of an input beyond which it counts as large.
pub const RISK_LARGE_INPUT_BYTES: usize = 16 * 1024;
/// Bytes of an input beyond which it counts as huge.
pub const RISK_HUGE_INPUT_BYTES: usize = 256 * 1024;
/// Characters of a goal in words at the most.
pub const GOAL_CHARS_MAX: usize = 8_000;
/// Steps of one plan at the most.
pub const PLAN_STEPS_MAX: usize = 32;
/// Calls of a workflow that are looked at before it runs, items of maps and workflows within included; with more it is
/// of high risk.
pub const PLAN_CALLS_MAX: usize = 256;
/// Nodes that are looked at for them, with those that call nothing.
pub const PLAN_NODES_MAX: usize = 4_096;
/// Bytes of the inputs of those calls.
pub const PLAN_INPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Tools that a plan is looked for among.
pub const PLAN_TOOLS_MAX: usize = 500;
