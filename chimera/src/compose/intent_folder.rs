//! The folder of files that define intents: `*.json`, one intent each.
//!
//! A running server looks at it every few seconds. A file that can't be used is reported once, and its last usable content
//! stays; when the server starts, it must be usable.

use super::flow::{invalid, read};
use crate::failure::{Failure, Outcome};
use chimera_core::error::{Code, io_reason};
use chimera_core::intent::{IntentCatalog, IntentDefinition};
use chimera_core::json;
use chimera_core::limits::{INTENT_DEFINITIONS_MAX, INTENT_FILE_BYTES_MAX, INTENT_FILES_INTERVAL};
use chimera_engine::intent::IntentRouter;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The files of the folder, and their last usable content.
pub(super) struct IntentFolder {
    folder: PathBuf,
    usable: BTreeMap<PathBuf, Value>,
    /// What was reported last, so that it is not reported again.
    problems: Vec<String>,
}

impl IntentFolder {
    /// Reads the folder for a server that starts, and sets what the router accepts.
    pub(super) fn open(folder: PathBuf, router: &IntentRouter) -> Outcome<Self> {
        let mut opened = Self { folder, usable: BTreeMap::new(), problems: Vec::new() };
        let (catalog, problems) = opened.look();
        if let Some(problem) = problems.first() {
            return Err(invalid("flow.intents_dir", problem));
        }
        router.set_catalog(catalog.map_err(|problem| Failure::new(Code::Internal, problem))?);
        Ok(opened)
    }

    /// Follows changes of the folder until stopped.
    pub(super) async fn keep(mut self, router: Arc<IntentRouter>, mut stopped: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => return,
                () = tokio::time::sleep(INTENT_FILES_INTERVAL) => {}
            }
            let before = self.usable.clone();
            let (kept, looked) = match tokio::task::spawn_blocking(move || {
                let looked = self.look();
                (self, looked)
            })
            .await
            {
                Ok(looked) => looked,
                Err(_) => return,
            };
            self = kept;
            let (catalog, problems) = looked;
            if problems != self.problems {
                problems.iter().for_each(|problem| tracing::warn!(problem, "a file of an intent is not used"));
                self.problems = problems;
            }
            match catalog {
                Ok(catalog) if self.usable != before => {
                    tracing::info!(intents = catalog.iter().count(), "the intents were read again");
                    router.set_catalog(catalog);
                }
                Ok(_) => {}
                Err(problem) => tracing::warn!(problem, "the intents could not be read again"),
            }
        }
    }

    /// Reads the folder: the intents that it defines now, and what is wrong with its files.
    fn look(&mut self) -> (Result<IntentCatalog, String>, Vec<String>) {
        let mut problems = Vec::new();
        match list(&self.folder) {
            Ok(files) => self.refresh(&files, &mut problems),
            // A folder that can't be listed at this moment removes nothing.
            Err(reason) => problems.push(format!("{}: {reason}", self.folder.display())),
        }
        let catalog = IntentCatalog::built_in().map_err(|error| error.to_string());
        let catalog = catalog.map(|mut catalog| {
            for (path, document) in &self.usable {
                let read = IntentDefinition::read(document.clone()).and_then(|intent| catalog.clone().with(intent));
                match read {
                    Ok(more) => catalog = more,
                    Err(error) => problems.push(format!("{}: {error}", path.display())),
                }
            }
            catalog
        });
        (catalog, problems)
    }

    fn refresh(&mut self, files: &[PathBuf], problems: &mut Vec<String>) {
        self.usable.retain(|path, _| files.contains(path));
        if files.len() > INTENT_DEFINITIONS_MAX {
            problems.push(format!("{}: more than {INTENT_DEFINITIONS_MAX} files", self.folder.display()));
        }
        for path in files.iter().take(INTENT_DEFINITIONS_MAX) {
            let document = read(path, INTENT_FILE_BYTES_MAX)
                .and_then(|text| json::parse_exact(text).map_err(|error| error.to_string()));
            let checked = document.and_then(|document| {
                let read = IntentDefinition::read(document.clone()).map_err(|error| error.to_string());
                read.map(|_| document)
            });
            match checked {
                Ok(document) => {
                    self.usable.insert(path.clone(), document);
                }
                Err(reason) => problems.push(format!("{}: {reason}", path.display())),
            }
        }
    }
}

/// The files of a folder that define intents, by name.
fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| io_reason(&error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| io_reason(&error))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|extension| extension == "json") && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(name: &str) -> String {
        let schema = json!({"type": "object"});
        json!({"type": name, "schema": schema, "capability": "leads:enrich", "dispatch": {"workflow": "w"}}).to_string()
    }

    /// INTENT-007
    #[test]
    fn a_file_defines_an_intent_and_a_broken_one_keeps_its_last_content() {
        let folder = tempfile::tempdir().unwrap();
        let mut opened =
            IntentFolder { folder: folder.path().to_owned(), usable: BTreeMap::new(), problems: Vec::new() };
        let mut names = || {
            let (catalog, problems) = opened.look();
            let names: Vec<String> = catalog.unwrap().iter().map(|intent| intent.name.clone()).collect();
            (names.into_iter().filter(|name| name.starts_with("lead.")).collect::<Vec<_>>(), problems.len())
        };
        assert_eq!(names(), (vec![], 0));
        let file = folder.path().join("lead.json");
        std::fs::write(&file, definition("lead.enrich")).unwrap();
        std::fs::write(folder.path().join("notes.txt"), "no intent").unwrap();
        assert_eq!(names(), (vec!["lead.enrich".to_owned()], 0));
        std::fs::write(&file, "{").unwrap();
        assert_eq!(names(), (vec!["lead.enrich".to_owned()], 1));
        std::fs::write(&file, definition("lead.score")).unwrap();
        assert_eq!(names(), (vec!["lead.score".to_owned()], 0));
        std::fs::write(folder.path().join("other.json"), definition("lead.score")).unwrap();
        assert_eq!(names(), (vec!["lead.score".to_owned()], 1), "a type has one definition");
        std::fs::remove_file(folder.path().join("other.json")).unwrap();
        let built_in = folder.path().join("built_in.json");
        std::fs::write(&built_in, definition("workflow.start")).unwrap();
        assert_eq!(names(), (vec!["lead.score".to_owned()], 1), "a built-in intent is not replaced");
        std::fs::remove_file(&file).unwrap();
        std::fs::remove_file(&built_in).unwrap();
        assert_eq!(names(), (vec![], 0));
    }
}
