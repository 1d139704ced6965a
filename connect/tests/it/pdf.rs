//! PDFs as other programs read them: `qpdf`, `pdftotext`, `pdftoppm`.

use crate::given::{blobs, call, execute};
use chimera_connect::flow::local_tools;
use chimera_engine::port::{Blobs, Tool};
use chimera_testkit::suite::blobs::all;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

struct Desk {
    home: TempDir,
    blobs: Arc<dyn Blobs>,
    tool: Arc<dyn Tool>,
}

impl Desk {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let blobs = blobs(&home.path().join("blobs"));
        let tools = local_tools(Arc::clone(&blobs)).unwrap();
        let tool = tools.into_iter().find(|tool| tool.spec().name == "local.markdown_to_pdf").unwrap();
        Self { home, blobs, tool }
    }

    /// Makes a PDF; gives the output and the file.
    async fn make(&self, input: &Value) -> (Value, PathBuf) {
        let output = execute(&*self.tool, &call(1), input).await.unwrap();
        let id = output["artifact"].as_str().unwrap().parse().unwrap();
        let bytes = all(self.blobs.get(id).await.unwrap()).await.unwrap();
        assert_eq!(output["bytes"], bytes.len());
        let file = self.home.path().join(format!("{}.pdf", output["sha256"].as_str().unwrap()));
        std::fs::write(&file, bytes).unwrap();
        (output, file)
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|_| panic!("{program} is missing"));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program}: {told}{}", String::from_utf8_lossy(&output.stderr));
    told
}

fn check(file: &std::path::Path) {
    let told = run("qpdf", &["--check", file.to_str().unwrap()]);
    assert!(told.contains("No syntax or stream encoding errors"), "{told}");
}

fn text_of(file: &std::path::Path) -> String {
    run("pdftotext", &["-layout", "-enc", "UTF-8", file.to_str().unwrap(), "-"])
}

const SAMPLE: &str = include_str!("sample.md");

#[tokio::test]
async fn a_whole_document_is_sound_and_its_text_reads_back() {
    let desk = Desk::new();
    let (output, file) = desk.make(&json!({"markdown": SAMPLE})).await;
    check(&file);
    if let Ok(keep) = std::env::var("KEEP_PDF") {
        std::fs::copy(&file, keep).unwrap();
    }
    let text = text_of(&file);
    for part in ["Quarterly report"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert_eq!(output["title"], "Quarterly report");
}
