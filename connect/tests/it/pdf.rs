//! PDFs as read by other programs: `qpdf`, `pdftotext`, `pdftoppm`.

use crate::fixtures::{blobs, call, call_of, execute, owned};
use chimera_connect::flow::local_tools;
use chimera_engine::flow::TenantBlobs;
use chimera_engine::flow::port::{Blobs, Tool};
use chimera_testkit::seeded::Seeded;
use chimera_testkit::suite::blobs::{all, incoming};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

struct PdfFixture {
    home: TempDir,
    blobs: Arc<dyn Blobs>,
    owned: TenantBlobs,
    tool: Arc<dyn Tool>,
}

impl PdfFixture {
    fn new() -> Self {
        let home = TempDir::new().unwrap();
        let blobs = blobs(&home.path().join("blobs"));
        let owned = owned(&blobs);
        let tools = local_tools(owned.clone()).unwrap();
        let tool = tools.into_iter().find(|tool| tool.spec().name == "local.markdown_to_pdf").unwrap();
        Self { home, blobs, owned, tool }
    }

    /// Renders a PDF; returns the output and the file.
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

const SAMPLE: &str = include_str!("sample.markdown");

/// CORE-061
#[tokio::test]
async fn a_whole_document_is_sound_and_its_text_reads_back() {
    let desk = PdfFixture::new();
    let (output, file) = desk.make(&json!({"markdown": SAMPLE, "language": "en"})).await;
    check(&file);
    let text = text_of(&file);
    for part in [
        "Quarterly report",
        "bold words, italic words, both at once, inline code",
        "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
        "Съешь же ещё этих мягких французских булок",
        "Zażółć gęślą",
        "Größe, Übermut, äußerst. Türkçe: İğüşöç. “Quotes” — and dashes…",
        "• First item",
        "◦ Nested item",
        "▪ Third level",
        "10. Ten",
        "☑ A task that is done",
        "12,345.67   code in a cell",
        "let greeting = \"Привет, мир\";",
        "A quotation that spans several lines, with stress.",
        "A remote image stays a link: the logo",
        "3/3",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&text).contains(&squeezed(part)), "{part} is missing in\n{text}");
    }
    assert_eq!((&output["title"], &output["pages"]), (&json!("Quarterly report"), &json!(3)));
    assert_eq!(output["missing_characters"], json!([]));
    let last = text.split('\u{c}').nth(2).unwrap();
    assert!(last.trim_start().starts_with("After a page break"), "{last}");
}

#[tokio::test]
async fn fonts_are_embedded_as_subsets_that_know_their_characters() {
    let desk = PdfFixture::new();
    let (output, file) = desk.make(&json!({"markdown": SAMPLE})).await;
    let fonts = run("pdffonts", &[file.to_str().unwrap()]);
    let lines: Vec<&str> = fonts.lines().skip(2).collect();
    assert_eq!(lines.len(), 3, "{fonts}");
    for line in lines {
        assert!(line.contains("+DejaVuSans") && line.contains("CID TrueType"), "{line}");
        assert!(line.contains("yes yes yes"), "embedded, a subset, with Unicode: {line}");
    }
    assert!(output["bytes"].as_u64().unwrap() < 100_000, "subsets keep it small: {}", output["bytes"]);
}

#[tokio::test]
async fn links_lead_where_they_say_and_headings_are_an_outline() {
    let desk = PdfFixture::new();
    let (_, file) =
        desk.make(&json!({"markdown": format!("{SAMPLE}\n[evil](javascript:alert(1)) [file](/etc/passwd)")})).await;
    let urls = run("pdfinfo", &["-url", file.to_str().unwrap()]);
    assert!(urls.contains("https://example.org/report?q=1") && urls.contains("https://example.org/logo.png"), "{urls}");
    let plain = Command::new("qpdf").args(["--qdf", file.to_str().unwrap(), "-"]).output().unwrap().stdout;
    let inside = String::from_utf8_lossy(&plain).matches("/Dest ").count();
    assert_eq!(inside, 6, "five headings and the link to one of them");
    assert!(!urls.contains("javascript") && !urls.contains("passwd"), "{urls}");
    let told: Value =
        serde_json::from_str(&run("qpdf", &["--json=1", "--json-key=outlines", file.to_str().unwrap()])).unwrap();
    let top = &told["outlines"][0];
    let titles: Vec<&str> = top["kids"].as_array().unwrap().iter().map(|kid| kid["title"].as_str().unwrap()).collect();
    assert_eq!((top["title"].as_str(), titles), (Some("Quarterly report"), vec!["Lists", "Table", "Code"]));
    assert_eq!(top["kids"][2]["kids"][0]["title"], "After a page break");
    assert_eq!(top["kids"][2]["kids"][0]["destpageposfrom1"], 3);
    let info = run("pdfinfo", &[file.to_str().unwrap()]);
    assert!(info.contains("Title:           Quarterly report") && info.contains("A4"), "{info}");
    assert!(!info.contains("CreationDate"), "no clock: {info}");
}

/// CORE-061
#[tokio::test]
async fn the_same_markdown_gives_the_same_bytes() {
    let (one, other) = (PdfFixture::new(), PdfFixture::new());
    let input = json!({"markdown": SAMPLE});
    let (first, _) = one.make(&input).await;
    for desk in [&one, &other] {
        assert_eq!(desk.make(&input).await.0, first);
    }
    let (letter, file) = one.make(&json!({"markdown": SAMPLE, "page_size": "Letter", "title": "Named"})).await;
    assert_ne!(letter["sha256"], first["sha256"]);
    assert!(run("pdfinfo", &[file.to_str().unwrap()]).contains("612 x 792 pts (letter)"));
    assert_eq!(letter["title"], "Named");
}

#[tokio::test]
async fn a_dry_run_tells_pages_and_bytes_and_stores_nothing() {
    let desk = PdfFixture::new();
    let dry = execute(&*desk.tool, &call(1), &json!({"markdown": SAMPLE, "dry_run": true})).await.unwrap();
    let id = dry["simulated_output"]["artifact"].as_str().unwrap().parse().unwrap();
    assert_eq!(desk.blobs.stat(id).await.unwrap(), None);
    assert_eq!(dry["would_execute"], "keep a PDF of 3 pages as an artifact");
    let (real, _) = desk.make(&json!({"markdown": SAMPLE})).await;
    assert_eq!(dry["simulated_output"], real);
}

#[tokio::test]
async fn long_tables_code_and_quotes_go_on_over_pages_and_lose_nothing() {
    let desk = PdfFixture::new();
    let mut markdown = String::from("| Number | Words |\n|---:|---|\n");
    for number in 0..150 {
        markdown.push_str(&format!("| row{number} | some words about row {number} that fill a part of the line |\n"));
    }
    // A row that no page can hold.
    markdown.push_str(&format!("| huge | {} |\n\n```\n", "verylong ".repeat(2_000)));
    (0..150).for_each(|number| markdown.push_str(&format!("code{number}\n")));
    markdown.push_str("```\n\n");
    (0..150).for_each(|number| markdown.push_str(&format!("> quote{number}\n>\n")));
    let (output, file) = desk.make(&json!({"markdown": markdown})).await;
    check(&file);
    let text = text_of(&file);
    for number in 0..150 {
        for word in ["row", "code", "quote"] {
            let word = format!("{word}{number}");
            assert!(text.split_whitespace().any(|seen| seen == word), "{word}");
        }
    }
    assert_eq!(text.split_whitespace().filter(|word| *word == "verylong").count(), 2_000);
    let pages: Vec<&str> = text.split('\u{c}').collect();
    assert_eq!(pages.len() - 1, output["pages"].as_u64().unwrap() as usize);
    let heads = pages.iter().filter(|page| page.contains("Number") && page.contains("Words")).count();
    assert!(heads >= 4, "the head of a table is repeated: {heads}");
}

#[tokio::test]
async fn images_come_from_artifacts_and_the_document_but_not_from_the_network() {
    let desk = PdfFixture::new();
    let source = SAMPLE.split_once("base64,").unwrap().1.split_once(')').unwrap().0;
    let png = base64_of(source);
    let artifact = desk.owned.put(&call(1), "image/png", incoming(&png)).await.unwrap().id;
    let markdown =
        format!("![one]({artifact})\n\ntext ![two](data:image/png;base64,{source}) more\n\n- ![three]({artifact})");
    let (_, file) = desk.make(&json!({"markdown": markdown})).await;
    check(&file);
    let list = run("pdfimages", &["-list", file.to_str().unwrap()]);
    assert_eq!(list.lines().filter(|line| line.split_whitespace().nth(2) == Some("image")).count(), 3, "{list}");

    let photo = desk.home.path().join("photo");
    run("pdftoppm", &["-jpeg", "-r", "20", "-singlefile", file.to_str().unwrap(), photo.to_str().unwrap()]);
    let jpeg = std::fs::read(photo.with_extension("jpg")).unwrap();
    let artifact = desk.owned.put(&call(1), "image/jpeg", incoming(&jpeg)).await.unwrap().id;
    let (_, file) = desk.make(&json!({"markdown": format!("![a photo]({artifact})")})).await;
    check(&file);
    let list = run("pdfimages", &["-list", file.to_str().unwrap()]);
    assert!(list.contains(" jpeg "), "{list}");

    let missing = format!("cas://sha256:{}", "0".repeat(64));
    for (markdown, code) in [
        (format!("![x]({missing})"), "NOT_FOUND"),
        ("![x](cas://sha256:zz)".to_owned(), "MALFORMED_ARGS"),
        ("![x](data:image/png;base64,AAAA)".to_owned(), "VALIDATION_FAILED"),
        (format!("![x](data:image/png;base64,{})", source.replacen("AAAA", "AAAB", 1)), "VALIDATION_FAILED"),
    ] {
        let error = execute(&*desk.tool, &call(1), &json!({"markdown": markdown})).await.unwrap_err();
        assert_eq!(error.body.code, code, "{markdown}");
    }
}

#[tokio::test]
async fn odd_documents_become_sound_files_too() {
    let desk = PdfFixture::new();
    let wide = format!("{}\n{}\n{}", "|a".repeat(60), "|-".repeat(60), "|word".repeat(60));
    let deep: String = (0..20).map(|depth| format!("{}- deep{depth}\n", "  ".repeat(depth))).collect();
    for markdown in [
        "",
        "\n\n\\newpage\n",
        "-",
        "1.\n2.",
        "> ",
        "``` \n```",
        "| |\n|-|\n",
        "# \n\ntext",
        "漢字 and 😀 and e\u{301} and a\u{200b}b and \u{202e}rtl \u{0}",
        "<div onclick='x'>html</div>\n\n<!-- quiet -->\n\na <b>b</b>",
        "[a][missing] ![b][missing] [c](<>)",
        &"word".repeat(2_000),
        &format!("`{}`", "x".repeat(5_000)),
        &wide,
        &deep,
    ] {
        let (output, file) = desk.make(&json!({"markdown": markdown})).await;
        check(&file);
        assert!(output["pages"].as_u64().unwrap() >= 1, "{markdown}");
    }
    let (output, file) = desk.make(&json!({"markdown": "漢字 и 🦀"})).await;
    assert_eq!(output["missing_characters"], json!(["字", "漢", "🦀"]));
    assert!(text_of(&file).contains("漢字 и 🦀"), "a box on paper still copies as the character");
}

#[tokio::test]
async fn no_mixture_of_marks_brings_the_tool_down() {
    const PARTS: &[&str] = &[
        "# ",
        "> ",
        "- ",
        "1. ",
        "  ",
        "\n",
        "\n\n",
        "|",
        "|-|-|\n",
        "| a | b |\n",
        "```\n",
        "`",
        "**",
        "*",
        "~~",
        "[",
        "](",
        "https://x.example)",
        "](#a)",
        "![",
        "<br>",
        "<b>",
        "<!-- x -->",
        "\\newpage",
        "---\n",
        "- [x] ",
        "word",
        "длинное слово",
        "é",
        "\u{301}",
        "\u{200d}",
        "漢",
        "🦀",
        "\t",
        "    ",
        "&amp;",
        "\\",
        "\u{0}",
        "\u{feff}",
        "=\n",
    ];
    let desk = PdfFixture::new();
    let random = Seeded::new(11);
    for round in 0..300 {
        let markdown: String = (0..random.below(60)).map(|_| *random.pick(PARTS)).collect();
        let outcome = execute(&*desk.tool, &call(1), &json!({"markdown": markdown, "dry_run": true})).await;
        assert!(outcome.is_ok(), "round {round}: {markdown:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_table_in_a_list_stands_beside_its_bullet() {
    let desk = PdfFixture::new();
    let (_, file) = desk.make(&json!({"markdown": "1. | head |\n   |---|\n   | cell |\n2. next"})).await;
    let lines: Vec<String> = text_of(&file).lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&"1.head".to_owned()) && lines.contains(&"2.next".to_owned()), "{lines:?}");
}

#[tokio::test]
async fn a_document_beyond_the_limits_is_refused() {
    let desk = PdfFixture::new();
    for markdown in ["x".repeat(4 * 1024 * 1024 + 1), "a\n\n\\newpage\n\n".repeat(1_001), "> ".repeat(40) + "x"] {
        let error = execute(&*desk.tool, &call(1), &json!({"markdown": markdown})).await.unwrap_err();
        assert_eq!((error.body.code.as_str(), error.body.retryable), ("PAYLOAD_TOO_LARGE", false));
    }
    for bad in [
        json!({}),
        json!({"markdown": 1}),
        json!({"markdown": "a", "page_size": "A0"}),
        json!({"markdown": "a", "language": "e n"}),
    ] {
        assert!(desk.tool.spec().input.check(&bad).is_err(), "{bad}");
    }
}

fn base64_of(text: &str) -> Vec<u8> {
    let mut decoder = Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    decoder.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    decoder.wait_with_output().unwrap().stdout
}

#[tokio::test]
async fn an_image_of_another_tenant_is_not_found_until_the_tenant_has_put_it_itself() {
    let desk = PdfFixture::new();
    let png = base64_of(SAMPLE.split_once("base64,").unwrap().1.split_once(')').unwrap().0);
    let artifact = desk.owned.put(&call(1), "image/png", incoming(&png)).await.unwrap();
    let input = |address: &str| json!({"markdown": format!("![x]({address})")});
    let neighbour = call_of("globex", 2);
    let theirs = execute(&*desk.tool, &neighbour, &input(&artifact.id.to_string())).await.unwrap_err();
    let absent = format!("cas://sha256:{}", "0".repeat(64));
    let nobodys = execute(&*desk.tool, &neighbour, &input(&absent)).await.unwrap_err();
    assert_eq!(theirs.body.code, "NOT_FOUND");
    assert_eq!(theirs.to_string().replace(&artifact.id.to_string(), "X"), nobodys.to_string().replace(&absent, "X"));
    // Storing content that another tenant has reveals nothing, and makes it this tenant's too.
    assert_eq!(desk.owned.put(&neighbour, "image/png", incoming(&png)).await.unwrap(), artifact);
    assert_eq!(desk.owned.put(&neighbour, "image/png", incoming(&png)).await.unwrap(), artifact);
    execute(&*desk.tool, &neighbour, &input(&artifact.id.to_string())).await.unwrap();
}
