//! The backend of a command: a server, or the store itself for commands that only read.
//!
//! The store can be read while a server uses it, and after it has stopped. Changes always go to a server,
//! because only the owner of a run may change it.

use crate::compose::{self, Ambient};
use crate::config::Config;
use crate::data_folder;
use crate::failure::{Failure, Outcome};
use async_trait::async_trait;
use chimera_api::answer::{
    DoubtPage, EventDocument, ExecutionPage, InboxPage, RunDocument, RunPage, StepList, WorkItemPage, WorkflowDocument,
    WorkflowPage,
};
use chimera_core::access::ADMIN;
use chimera_core::error::Code;
use chimera_core::flow::run::RunStatus;
use chimera_core::limits::{
    COMMAND_RECONNECTS_MAX, COMMAND_SIGNAL_POLL_INTERVAL, COMMAND_SIGNAL_POLLS_MAX, EVENTS_POLL_INTERVAL, PAGE_ROWS_MAX,
};
use chimera_engine::access::Permit;
use chimera_engine::flow::work::{self, WorkFilter};
use chimera_engine::flow::{self, DoubtFilter, Flow, RunFilter};
use chimera_engine::job::executions::{ExecutionFilter, list_executions};
use futures::stream::{self, BoxStream, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use uuid::Uuid;

/// Events of a run.
pub(crate) type Events = BoxStream<'static, Outcome<Value>>;

#[async_trait]
pub(crate) trait Server: Send + Sync {
    /// Returns the JSON body of the response; `path` has no leading slash.
    async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Outcome<Value>;

    /// Signs in, with the token limited to `scopes` if given.
    async fn sign_in(&self, scopes: Option<Vec<String>>) -> Outcome<Value>;

    /// Subscribes to an event stream, until the server ends it.
    async fn events(&self, path: &str) -> Outcome<Events>;
}

/// A server, called by an operator for another tenant.
struct TenantServer {
    server: Arc<dyn Server>,
    slug: String,
}

impl TenantServer {
    fn path(&self, path: &str) -> String {
        with_query(path, &[("for_tenant", Some(&self.slug))])
    }
}

#[async_trait]
impl Server for TenantServer {
    async fn ask(&self, method: &str, path: &str, body: Option<String>) -> Outcome<Value> {
        self.server.ask(method, &self.path(path), body).await
    }

    async fn sign_in(&self, scopes: Option<Vec<String>>) -> Outcome<Value> {
        self.server.sign_in(scopes).await
    }

    async fn events(&self, path: &str) -> Outcome<Events> {
        self.server.events(&self.path(path)).await
    }
}

#[derive(Clone)]
pub(crate) enum Backend {
    /// A server.
    Server(Arc<dyn Server>),
    /// The store.
    Store(Flow, Permit),
}

impl Backend {
    /// For a command that only reads: the configured server, else the store.
    pub(crate) async fn open_for_reading(config: &Config) -> Outcome<Self> {
        if config.server.is_some() {
            return Self::connect(config, None);
        }
        let opened = compose::reader(config, &Ambient::new()).await;
        let (flow, permit) = opened.map_err(|failure| match failure.code {
            Code::NotFound => {
                failure.hint("chimera dev creates it; --data names another folder, --server URL a server")
            }
            _ => failure,
        })?;
        Ok(Self::Store(flow, permit))
    }

    /// For a command that changes something: the configured server, or the one that uses the data folder.
    pub(crate) fn connect(config: &Config, actor: Option<&str>) -> Outcome<Self> {
        let url = match &config.server {
            Some(url) => url.clone(),
            None => data_folder::address(&config.data_dir)?.unwrap_or_else(|| format!("http://{}", config.listen)),
        };
        let actor = actor.or(config.actor.as_deref()).unwrap_or(ADMIN);
        let key = local_actor_key(config, actor)?;
        let token = config.token.as_ref().map(|token| token.0.as_str());
        Ok(Self::Server(compose::server(&url, actor, key.as_deref(), token)?))
    }

    /// Acts for another tenant. Only a server supports this.
    pub(crate) fn for_tenant(self, slug: &str) -> Self {
        match self {
            Self::Server(server) => Self::Server(Arc::new(TenantServer { server, slug: slug.to_owned() })),
            store @ Self::Store(..) => store,
        }
    }

    pub(crate) async fn sign_in(&self, scopes: Option<Vec<String>>) -> Outcome<Value> {
        match self {
            Self::Server(server) => server.sign_in(scopes).await,
            Self::Store(..) => Err(Failure::new(Code::Internal, "signing in needs a server")),
        }
    }

    /// Sends a request to the server.
    pub(crate) async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Outcome<Value> {
        match self {
            Self::Server(server) => server.ask(method, path, body.map(|body| body.to_string())).await,
            Self::Store(..) => Err(Failure::new(Code::Internal, "this command needs a server")),
        }
    }

    /// A page of workflows.
    pub(crate) async fn workflows(&self, limit: usize, cursor: Option<&str>) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let path = with_query("workflows", &[("limit", Some(&limit.to_string())), ("cursor", cursor)]);
                server.ask("GET", &path, None).await
            }
            Self::Store(flow, permit) => {
                shown(WorkflowPage::from(flow::list_workflows(flow, permit, limit, cursor).await?))
            }
        }
    }

    /// A version of a workflow.
    pub(crate) async fn workflow(&self, id: &str, version: Option<i64>) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let version = version.map(|version| version.to_string());
                let path = with_query(&format!("workflows/{}", percent_encode(id)), &[("version", version.as_deref())]);
                server.ask("GET", &path, None).await
            }
            Self::Store(flow, permit) => {
                shown(WorkflowDocument::from(flow::show_workflow(flow, permit, id, version).await?))
            }
        }
    }

    /// Validates a document and summarizes it.
    pub(crate) async fn check(&self, id: &str, text: &str) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let path = format!("workflows/{}/check", percent_encode(id));
                server.ask("POST", &path, Some(text.to_owned())).await
            }
            Self::Store(flow, permit) => {
                let graph = flow.workflows().check(permit, text).await?;
                Ok(json!({
                    "workflow_id": graph.document.workflow_id, "digest": graph.digest,
                    "nodes": graph.nodes.len(), "edges": graph.edges.len(),
                    "not_startable": graph.unsupported_problem().map(|problem| problem.reason),
                }))
            }
        }
    }

    /// A page of runs.
    pub(crate) async fn runs(&self, filter: RunFilter) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let prefix = filter.id_prefix.map(|prefix| prefix.to_string());
                let pairs = [
                    ("status", filter.status.map(RunStatus::as_str)),
                    ("actor", filter.actor.as_deref()),
                    ("workflow_id", filter.workflow_id.as_deref()),
                    ("id_prefix", prefix.as_deref()),
                    ("in_doubt", filter.in_doubt.then_some("true")),
                    ("limit", Some(&*filter.limit.to_string())),
                    ("cursor", filter.cursor.as_deref()),
                ];
                server.ask("GET", &with_query("runs", &pairs), None).await
            }
            Self::Store(flow, permit) => shown(RunPage::from(flow::list_runs(flow, permit, filter).await?)),
        }
    }

    /// A page of calls in doubt.
    pub(crate) async fn doubts(&self, filter: DoubtFilter) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let pairs = [
                    ("actor", filter.actor.as_deref()),
                    ("tool", filter.tool.as_deref()),
                    ("limit", Some(&*filter.limit.to_string())),
                    ("cursor", filter.cursor.as_deref()),
                ];
                server.ask("GET", &with_query("doubts", &pairs), None).await
            }
            Self::Store(flow, permit) => shown(DoubtPage::from(flow::list_doubts(flow, permit, filter).await?)),
        }
    }

    /// A page of calls that workers execute.
    pub(crate) async fn work(&self, filter: WorkFilter) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let pairs = [
                    ("state", Some(filter.state.as_str())),
                    ("queue", filter.queue.as_deref()),
                    ("limit", Some(&*filter.limit.to_string())),
                    ("cursor", filter.cursor.as_deref()),
                ];
                server.ask("GET", &with_query("work", &pairs), None).await
            }
            Self::Store(flow, permit) => shown(WorkItemPage::from(work::list(flow, permit, filter).await?)),
        }
    }

    /// A page of the actor's own inbox.
    pub(crate) async fn inbox(&self, limit: usize, cursor: Option<&str>) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let pairs = [("limit", Some(&*limit.to_string())), ("cursor", cursor)];
                server.ask("GET", &with_query("inbox", &pairs), None).await
            }
            Self::Store(flow, permit) => shown(InboxPage::from(flow::inbox(flow, permit, limit, cursor).await?)),
        }
    }

    pub(crate) async fn run(&self, run: Uuid) -> Outcome<Value> {
        match self {
            Self::Server(server) => server.ask("GET", &format!("runs/{run}"), None).await,
            Self::Store(flow, permit) => shown(RunDocument::from(flow::show_run(flow, permit, run).await?)),
        }
    }

    /// Waits until the run has an event after number `known`: it has consumed the signal.
    pub(crate) async fn wait_for_event(&self, run: Uuid, known: i64) -> Outcome {
        for _ in 0..COMMAND_SIGNAL_POLLS_MAX {
            if self.run(run).await?["run_seq"].as_i64().is_some_and(|now| now > known) {
                break;
            }
            tokio::time::sleep(COMMAND_SIGNAL_POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The steps of a run.
    pub(crate) async fn steps(&self, run: Uuid) -> Outcome<Value> {
        let mut all = self.steps_from(run, None).await?;
        while let Some(cursor) = all["next_cursor"].as_str().map(str::to_owned) {
            let mut page = self.steps_from(run, Some(&cursor)).await?;
            all["next_cursor"] = page["next_cursor"].take();
            if let (Value::Array(steps), Value::Array(more)) = (&mut all["steps"], page["steps"].take()) {
                steps.extend(more);
            }
        }
        Ok(all)
    }

    /// A page of a run's execution records.
    pub(crate) async fn executions(&self, run: Uuid, limit: usize, cursor: Option<&str>) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let limit = limit.to_string();
                let path =
                    with_query(&format!("runs/{run}/executions"), &[("limit", Some(&*limit)), ("cursor", cursor)]);
                server.ask("GET", &path, None).await
            }
            Self::Store(flow, permit) => {
                let filter = ExecutionFilter { run, limit, cursor };
                shown(list_executions(flow, permit, filter, ExecutionPage::from).await?)
            }
        }
    }

    async fn steps_from(&self, run: Uuid, cursor: Option<&str>) -> Outcome<Value> {
        match self {
            Self::Server(server) => {
                let path = with_query(&format!("runs/{run}/steps"), &[("cursor", cursor)]);
                server.ask("GET", &path, None).await
            }
            Self::Store(flow, permit) => {
                shown(StepList::from(flow::list_steps(flow, permit, run, PAGE_ROWS_MAX, cursor).await?))
            }
        }
    }

    /// The events of a run after number `after`, until it ends. A broken stream reconnects where it
    /// stopped.
    pub(crate) fn follow(&self, run: Uuid, after: i64) -> Events {
        let follower = EventFollower { backend: self.clone(), run, after, open: None, fails: 0, over: false };
        stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await?;
            Some((event, follower))
        })
        .boxed()
    }
}

struct EventFollower {
    backend: Backend,
    run: Uuid,
    after: i64,
    open: Option<Events>,
    fails: u32,
    over: bool,
}

impl EventFollower {
    async fn next(&mut self) -> Option<Outcome<Value>> {
        loop {
            if let Some(events) = &mut self.open {
                match events.next().await {
                    Some(Ok(event)) => {
                        self.after = event["run_seq"].as_i64().unwrap_or(self.after);
                        self.fails = 0;
                        return Some(Ok(event));
                    }
                    Some(Err(failure)) if self.fails >= COMMAND_RECONNECTS_MAX => {
                        self.over = true;
                        self.open = None;
                        return Some(Err(failure));
                    }
                    Some(Err(_)) => {
                        self.open = None;
                        self.fails += 1;
                        tokio::time::sleep(EVENTS_POLL_INTERVAL * self.fails).await;
                    }
                    None => (self.open, self.over) = (None, true),
                }
            }
            if self.over {
                return None;
            }
            if self.open.is_none() {
                match self.reopen().await {
                    Ok(events) => self.open = Some(events),
                    // A missing run or a server that stays unreachable is an error.
                    Err(failure) if self.fails == 0 || self.fails >= COMMAND_RECONNECTS_MAX => {
                        self.over = true;
                        return Some(Err(failure));
                    }
                    Err(_) => {
                        self.fails += 1;
                        tokio::time::sleep(EVENTS_POLL_INTERVAL * self.fails).await;
                    }
                }
            }
        }
    }

    async fn reopen(&mut self) -> Outcome<Events> {
        match &self.backend {
            Backend::Server(server) => server.events(&format!("runs/{}/events?after={}", self.run, self.after)).await,
            Backend::Store(flow, permit) => Ok(poll_events(flow.clone(), permit.clone(), self.run, self.after)),
        }
    }
}

/// Polls the store for the events of a run.
fn poll_events(flow: Flow, permit: Permit, run: Uuid, after: i64) -> Events {
    let pages = stream::unfold(Some((flow, permit, after)), move |state| async move {
        let (flow, permit, after) = state?;
        loop {
            match flow::feed(&flow, &permit, run, after).await {
                Err(error) => return Some((vec![Err(error.into())], None)),
                Ok(feed) if feed.over => return None,
                Ok(feed) if feed.after == after => tokio::time::sleep(EVENTS_POLL_INTERVAL).await,
                Ok(feed) => {
                    let events = feed.events.into_iter().map(|event| shown(EventDocument::from(event))).collect();
                    return Some((events, Some((flow, permit, feed.after))));
                }
            }
        }
    });
    pages.flat_map(stream::iter).boxed()
}

/// What a server would answer.
pub(crate) fn shown(answer: impl Serialize) -> Outcome<Value> {
    serde_json::to_value(answer).map_err(|_| Failure::new(Code::Internal, "the answer can't be written"))
}

/// The local key of an actor: from the settings, which belongs to the configured actor, or from the data
/// folder.
pub(crate) fn local_actor_key(config: &Config, actor: &str) -> Outcome<Option<String>> {
    let set = || config.hmac_key.as_ref().map(|key| key.0.clone());
    let kept = || data_folder::existing_actor_key(&config.data_dir, actor);
    if actor == config.actor.as_deref().unwrap_or(ADMIN) {
        return Ok(set().or(kept()?));
    }
    Ok(kept()?.or_else(set))
}

/// Parses a run id.
pub(crate) fn parse_run_id(text: &str) -> Outcome<Uuid> {
    Uuid::parse_str(text).map_err(|_| not_a_run_id(text))
}

pub(crate) fn not_a_run_id(text: &str) -> Failure {
    Failure::new(Code::NotFound, format!("`{text}` is not a run id")).hint("chimera runs list shows all runs")
}

/// Appends the query parameters that have a value.
fn with_query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = path.to_owned();
    for (name, value) in pairs {
        if let Some(value) = value {
            let mark = if text.contains('?') { '&' } else { '?' };
            let _ = write!(text, "{mark}{name}={}", percent_encode(value));
        }
    }
    text
}

/// Percent-encodes text for a URL.
pub(crate) fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_an_address_is_escaped() {
        assert_eq!(with_query("runs", &[("status", None), ("actor", Some("a b&c"))]), "runs?actor=a%20b%26c");
        assert_eq!(percent_encode("ä/../x"), "%C3%A4%2F..%2Fx");
    }
}
