//! The folder of files that declare tools.
//!
//! `*.toml` in the folder itself are the default tenant's, those in `tenants/SLUG` another tenant's. `disabled.toml` names
//! tools that must not be called. A file is used as a whole or not at all: while it is broken, its last usable content
//! stays.

use super::flow::read;
use async_trait::async_trait;
use chimera_connect::flow::ToolDependencies;
use chimera_connect::flow::declared::{self, FileTool};
use chimera_core::access::tenant::is_slug;
use chimera_core::error::io_reason;
use chimera_core::limits::{DECLARED_FILE_BYTES_MAX, DECLARED_FILES_MAX};
use chimera_core::text::sanitize_message;
use chimera_engine::flow::port::{DeclarationProblem, Declarations, DeclaredTool, Tool, ToolSource};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// What the name of a tenant's own tool begins with. No other tool's does, so a tenant's tool can't pass for one.
const TENANT_PREFIX: &str = "tenant.";

/// The folder of the tenants' folders.
const TENANTS: &str = "tenants";

/// The file that names tools that must not be called.
const DISABLED: &str = "disabled.toml";

/// The files that declare tools, and what they said when they were read last.
#[derive(Clone)]
pub(super) struct ToolFolder {
    folder: Option<PathBuf>,
    toolbox: ToolDependencies,
    /// Names of tools that are part of the program.
    built_in: Arc<BTreeSet<String>>,
    known: Arc<Mutex<BTreeMap<PathBuf, KnownFile>>>,
}

/// A file as it was read last.
#[derive(Clone, Default)]
struct KnownFile {
    /// What `content` and `problem` were read from.
    read: Option<FileStamp>,
    /// What was seen last.
    seen: Option<FileStamp>,
    /// The last usable content.
    content: Option<FileContent>,
    problem: Option<String>,
}

#[derive(Clone)]
enum FileContent {
    Tools(Vec<DeclaredTool>),
    Disabled(BTreeMap<String, String>),
}

/// What changes when a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that is put in the place of another one has another number, whatever its time and size are.
    inode: u64,
    /// When its content or its times were set: seconds and nanoseconds.
    changed: (i64, i64),
}

/// A file to read.
struct ToolFile {
    path: PathBuf,
    /// Relative to the folder.
    name: String,
    tenant: Option<String>,
}

impl ToolFolder {
    pub(super) fn new(folder: Option<PathBuf>, toolbox: ToolDependencies, built_in: BTreeSet<String>) -> Self {
        Self { folder, toolbox, built_in: Arc::new(built_in), known: Arc::default() }
    }

    /// Whether a problem concerns another tenant than the default one.
    pub(super) fn is_of_tenant(problem: &DeclarationProblem) -> bool {
        Path::new(&problem.file).starts_with(TENANTS)
    }

    /// Reads what is declared now.
    pub(super) fn look(&self, at_once: bool) -> Declarations {
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        let is_complete = self.folder.as_deref().is_none_or(|folder| list(folder, &mut files, &mut problems));
        for file in files.drain(files.len().min(DECLARED_FILES_MAX)..) {
            let reason = format!("there are more than {DECLARED_FILES_MAX} files");
            problems.push(DeclarationProblem { file: file.name, reason, is_in_use: false });
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder that can't be listed at this moment removes nothing.
        if is_complete {
            known.retain(|path, _| files.iter().any(|file| file.path == *path));
        }
        let mut found = Declarations { problems, ..Declarations::default() };
        for file in &files {
            let entry = known.entry(file.path.clone()).or_default();
            self.refresh(file, entry, at_once);
        }
        for (path, entry) in &*known {
            let name = self.folder.as_deref().and_then(|folder| path.strip_prefix(folder).ok()).unwrap_or(path);
            add(&mut found, &name.to_string_lossy(), entry);
        }
        found
    }

    /// Reads a file again if it changed.
    fn refresh(&self, file: &ToolFile, entry: &mut KnownFile, at_once: bool) {
        let seen = match stamp(&file.path) {
            Ok(seen) => seen,
            Err(reason) => {
                // Read again as soon as it can be.
                (entry.read, entry.problem) = (None, Some(reason));
                return;
            }
        };
        let is_settled = entry.seen.replace(seen) == Some(seen);
        if !at_once && (!is_settled || entry.read == Some(seen)) {
            return;
        }
        let content = self.parse(file, entry);
        // Written to in the meantime: what was read may be half of it.
        if stamp(&file.path) != Ok(seen) {
            return;
        }
        entry.read = Some(seen);
        match content {
            Ok(content) => (entry.content, entry.problem) = (Some(content), None),
            Err(reason) => entry.problem = Some(sanitize_message(reason)),
        }
    }

    fn parse(&self, file: &ToolFile, entry: &KnownFile) -> Result<FileContent, String> {
        let text = read(&file.path, DECLARED_FILE_BYTES_MAX)?;
        if file.tenant.is_none() && file.name == DISABLED {
            let disabled = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
            return Ok(FileContent::Disabled(disabled));
        }
        // What the process is configured with belongs to the default tenant.
        let elsewhere = BTreeMap::new();
        let base_urls = if file.tenant.is_none() { &self.toolbox.base_urls } else { &elsewhere };
        let toolbox = ToolDependencies { base_urls: base_urls.clone(), ..self.toolbox.clone() };
        let declared = declared::file_tools(&text, &file.name, &toolbox)
            .map_err(|error| format!("{}: {}", error.key, error.reason))?;
        let before = match &entry.content {
            Some(FileContent::Tools(tools)) => tools.as_slice(),
            _ => &[],
        };
        let name: Arc<str> = Arc::from(file.name.as_str());
        let mut tools = Vec::with_capacity(declared.len());
        for FileTool { tool, definition } in declared {
            self.check_name(file, &*tool)?;
            let is_same = |before: &&DeclaredTool| before.tool.spec() == tool.spec();
            tools.push(before.iter().find(is_same).cloned().unwrap_or_else(|| DeclaredTool {
                tenant: file.tenant.clone(),
                file: Arc::clone(&name),
                document: definition,
                tool,
            }));
        }
        Ok(FileContent::Tools(tools))
    }

    fn check_name(&self, file: &ToolFile, tool: &dyn Tool) -> Result<(), String> {
        let name = &tool.spec().name;
        let refused = |why: &str| Err(format!("tool.{name}.name: {why}"));
        match (&file.tenant, name.starts_with(TENANT_PREFIX)) {
            (Some(_), false) => refused("the name of a tenant's tool must begin with `tenant.`"),
            (None, true) => refused("only tools in `tenants/SLUG` have names that begin with `tenant.`"),
            _ if self.built_in.contains(name) => refused("this is the name of a built-in tool"),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ToolSource for ToolFolder {
    async fn read(&self, at_once: bool) -> Result<Declarations, String> {
        let folder = self.clone();
        let found = tokio::task::spawn_blocking(move || folder.look(at_once)).await;
        found.map_err(|error| format!("the tool files could not be read: {error}"))
    }

    fn restore(&self, document: &Value) -> Result<Arc<dyn Tool>, String> {
        declared::restore(document, &self.toolbox).map_err(|error| error.to_string())
    }
}

/// Adds what a file declares, unless another file of the same owner has declared one of its tools.
fn add(found: &mut Declarations, name: &str, entry: &KnownFile) {
    let mut problem = entry.problem.clone();
    let mut is_in_use = false;
    match &entry.content {
        None => {}
        Some(FileContent::Disabled(disabled)) => {
            is_in_use = true;
            found.disabled.extend(disabled.clone());
        }
        Some(FileContent::Tools(tools)) => {
            let is_taken = |tool: &&DeclaredTool| {
                let twin = |other: &&DeclaredTool| {
                    other.tenant == tool.tenant && other.tool.spec().name == tool.tool.spec().name
                };
                found.tools.iter().any(|other| twin(&other))
            };
            match tools.iter().find(is_taken) {
                Some(tool) => {
                    let tool = &tool.tool.spec().name;
                    problem.get_or_insert_with(|| format!("duplicate tool name {tool}: another file declares it"));
                }
                None => {
                    is_in_use = true;
                    found.tools.extend(tools.iter().cloned());
                }
            }
        }
    }
    let file = name.to_owned();
    found.problems.extend(problem.map(|reason| DeclarationProblem { file, reason, is_in_use }));
}

/// The files of a folder and of its tenants' folders, in the order of their names. Returns whether these are all.
fn list(folder: &Path, files: &mut Vec<ToolFile>, problems: &mut Vec<DeclarationProblem>) -> bool {
    let mut is_complete = list_one(folder, None, files, problems);
    let entries = match std::fs::read_dir(folder.join(TENANTS)) {
        Ok(entries) => entries,
        Err(error) => return is_complete && error.kind() == ErrorKind::NotFound,
    };
    let mut slugs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    slugs.sort();
    for path in slugs {
        let slug = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if is_slug(&slug) {
            is_complete &= list_one(&path, Some(&slug), files, problems);
        } else {
            let reason = "the name of a tenant's folder is the tenant's slug".to_owned();
            problems.push(DeclarationProblem { file: format!("{TENANTS}/{slug}"), reason, is_in_use: false });
        }
    }
    is_complete
}

fn list_one(
    folder: &Path,
    tenant: Option<&str>,
    files: &mut Vec<ToolFile>,
    problems: &mut Vec<DeclarationProblem>,
) -> bool {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let file = tenant.map_or_else(|| ".".to_owned(), |slug| format!("{TENANTS}/{slug}"));
            problems.push(DeclarationProblem { file, reason: io_reason(&error), is_in_use: true });
            return false;
        }
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = tenant.map_or_else(|| name.clone(), |slug| format!("{TENANTS}/{slug}/{name}"));
        files.push(ToolFile { path, name, tenant: tenant.map(str::to_owned) });
    }
    true
}

fn stamp(path: &Path) -> Result<FileStamp, String> {
    let found = path.metadata().map_err(|error| io_reason(&error))?;
    let changed = (found.ctime(), found.ctime_nsec());
    Ok(FileStamp { modified: found.modified().ok(), bytes: found.len(), inode: found.ino(), changed })
}
