//! Lists: their width, short ids, ages, suggestions, empty states, colours.

use crate::support::Workspace;
use serde_json::Value;

const ECHO: &str = r#"local.echo={"value":1}"#;

/// Starts a run of two steps and returns its id.
fn start(place: &Workspace) -> String {
    let started = place.json(&["act", "--step", ECHO, "--step", ECHO, "--step", r#"local.summarize={"text":"A. B."}"#]);
    started["run_id"].as_str().unwrap().to_owned()
}

fn first_word(text: &str, line: usize) -> &str {
    text.lines().nth(line).and_then(|line| line.split(' ').next()).unwrap_or_default()
}

#[test]
fn lists_fit_the_width_and_wide_lists_show_everything() {
    let place = Workspace::new().with_actors().env("COLUMNS", "80");
    let server = place.dev_with_examples(&[]);
    let run = start(&place);
    let views = [
        &["runs", "list"][..],
        &["runs", "steps", &run],
        &["workflow", "list"],
        &["actor", "list"],
        &["tenant", "list"],
        &["audit", "list"],
        &["inbox"],
    ];
    for view in views {
        let listed = place.run(view);
        assert_eq!(listed.status, 0, "{view:?}: {}", listed.stderr);
        assert!(listed.stdout.lines().count() > 1, "{view:?}: {}", listed.stdout);
        for line in listed.stdout.lines() {
            assert!(line.chars().count() <= 80, "{view:?}: {line}");
            assert!(!line.contains(&run) && !line.contains('\u{1b}') && !line.ends_with(' '), "{view:?}: {line:?}");
        }
        let wide = place.run(&[view, &["-o", "wide"]].concat()).stdout;
        assert!(!wide.contains('…') && !wide.contains(" ago"), "{view:?}: {wide}");
        assert!(wide.lines().next().unwrap().len() >= listed.stdout.lines().next().unwrap().len(), "{view:?}");
    }
    let listed = place.run(&["runs", "list"]).stdout;
    assert!(listed.contains("local.echo ×2 · local.s"), "{listed}");
    assert!(listed.contains(" ago") || listed.contains(" now"), "{listed}");
    assert!(place.run(&["runs", "list", "-o", "wide"]).stdout.contains(&run));
    let painted = place.run(&["runs", "list", "--color", "always"]).stdout;
    assert!(painted.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{painted:?}");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn a_short_id_names_its_run_wherever_an_id_is_taken() {
    let place = Workspace::new().with_actors();
    let server = place.dev(&[]);
    let url = format!("http://{}", server.address);
    let empty = place.run(&["runs", "list"]);
    assert_eq!(empty.stderr, "no runs yet; chimera act 'GOAL' or chimera act --workflow ID starts one\n");
    let runs = [start(&place), start(&place), start(&place)];
    let listed = place.run(&["runs", "list"]).stdout;
    for (line, run) in runs.iter().rev().enumerate() {
        let short = first_word(&listed, line + 1);
        assert!(run.starts_with(short) && short.len() < 20, "{listed}");
        for more in [&[][..], &["--server", &url]] {
            let shown = place.json(&[&["runs", "show", short], more].concat());
            assert_eq!(shown["run_id"], run.as_str());
        }
        assert_eq!(place.json(&["audit", "list", "--subject-id", short])["items"][0]["subject_id"], run.as_str());
    }
    let waiting = place.json(&["act", "--step", ECHO, "--level", "L0"]);
    let (run, approval) = (waiting["run_id"].as_str().unwrap(), &waiting["approvals"][0]["approval_id"]);
    let (short, approval) = (&run[..18], &approval.as_str().unwrap()[..23]);
    let rejected = place.json(&["runs", "reject", short, "--approval", approval, "--as", "user_ada"]);
    assert_eq!(rejected["approval_status"], "denied");
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn an_ambiguous_or_unknown_id_is_repeated_with_what_to_do() {
    let place = Workspace::new().with_actors();
    let server = place.dev(&[]);
    // At most one of these starts falls between two of the intervals that eight digits name.
    let runs = [start(&place), start(&place), start(&place)];
    let pair = runs.windows(2).find(|pair| pair[0][..8] == pair[1][..8]).unwrap();
    let ambiguous = place.run(&["runs", "show", &pair[0][..8]]);
    assert_eq!(ambiguous.status, 1);
    assert!(ambiguous.stderr.contains(&format!("`{}` is ambiguous: it begins the ids of", &pair[0][..8])));
    assert!(pair.iter().all(|run| ambiguous.stderr.contains(run.as_str())), "{}", ambiguous.stderr);
    for (id, words) in [
        ("00000000-0000", "error[NOT_FOUND]: no run `00000000-0000`\n"),
        ("00000000-0000-7000-8000-000000000000", "error[NOT_FOUND]: no run `00000000-0000-7000-8000-000000000000`\n"),
        ("01", "error[NOT_FOUND]: `01` is not a run id, and too short to begin one\n"),
        ("note", "error[NOT_FOUND]: `note` is not a run id\n"),
    ] {
        let refused = place.run(&["runs", "cancel", id]);
        assert!(refused.status == 1 && refused.stderr.starts_with(words), "{id}: {}", refused.stderr);
    }
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn mistyped_names_get_a_suggestion() {
    let place = Workspace::new().with_actors();
    let server = place.dev_with_examples(&[]);
    start(&place);
    let url = format!("http://{}", server.address);
    for (command, close) in [
        (&["act", "--workflow", "publish-with-aproval"][..], "(did you mean publish-with-approval?)"),
        (&["act", "--step", "local.sumarize={}"], "(did you mean local.summarize?)"),
        (&["workflow", "show", "file-may"], "no workflow `file-may` (did you mean file-many?)"),
        (&["workflow", "share", "file-may"], "no workflow `file-may` (did you mean file-many?)"),
        (&["runs", "list", "--workflow", "file-may"], "no runs: no workflow `file-may` (did you mean file-many?)"),
        (&["runs", "list", "--actor", "admni"], "no runs of actor `admni` (did you mean admin?)"),
        (&["runs", "list", "--status", "complete"], "a similar value exists: 'completed'"),
        (&["runs", "list", "--for-tenant", "defalt"], "no tenant `defalt` (did you mean default?)"),
        (&["tenant", "show", "defalt"], "no tenant `defalt` (did you mean default?)"),
        (&["audit", "list", "--tenant", "defalt"], "no tenant `defalt` (did you mean default?)"),
        (&["actor", "show", "user_aad"], "(did you mean user_ada?)"),
    ] {
        let said = place.run(command);
        assert!(said.stderr.contains(close), "{command:?}: {}", said.stderr);
        let over = place.run(&[command, &["--server", &url]].concat());
        assert!(over.stderr.contains(close), "{command:?} over HTTP: {}", over.stderr);
    }
    let hidden = place.run(&["act", "--workflow", "publish-with-aproval", "--as", "n8n_workflow_demo"]);
    assert!(
        hidden.stderr.contains("no workflow `publish-with-aproval`\n"),
        "without workflows.read: {}",
        hidden.stderr
    );
    assert_eq!(server.stop().0, Some(0));
}

#[test]
fn the_next_page_is_the_same_command_with_its_cursor() {
    let place = Workspace::new().with_actors();
    let server = place.dev(&[]);
    let runs = [start(&place), start(&place)];
    let first = place.run(&["runs", "list", "--limit", "1", "--status", "completed"]);
    let command = first.stderr.strip_prefix("next page: chimera ").unwrap().trim_end();
    assert!(command.starts_with("runs list --limit 1 --status completed --cursor "), "{command}");
    let words: Vec<&str> = command.split(' ').collect();
    assert!(runs[0].starts_with(first_word(&place.run(&words).stdout, 1)));
    let entries = place.run(&["audit", "list", "--limit", "2"]);
    assert!(entries.stderr.starts_with("next page: chimera audit list --limit 2 --after "), "{}", entries.stderr);
    let page: Value = place.json(&["audit", "list", "--limit", "2"]);
    assert_eq!(page["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(server.stop().0, Some(0));
}
