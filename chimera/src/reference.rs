//! Tests that compare the reference pages in `docs/reference` with the code.

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use std::fmt::Write;
    use std::path::Path;

    /// The text of `docs/reference/cli.md`.
    fn cli() -> String {
        let mut text = String::from(
            "# Command line\n\nData goes to stdout; messages and log lines go to stderr; progress bars appear only on a terminal. With `--json`, data and errors are JSON; an error is one line `{\"error\": …}` on stderr.\n\n\
         | Exit status | Meaning |\n|---|---|\n| 0 | success |\n| 1 | failure |\n| 2 | usage error |\n| 3 | check failed (`audit verify`, `doctor`) |\n| 4 | invalid configuration |\n| 5 | data folder in use |\n| 130 | stopped by a second signal |\n",
        );
        let mut root = crate::cli::Cli::command().term_width(100);
        root.build();
        describe(&mut text, &mut root, "chimera");
        text
    }

    fn describe(text: &mut String, command: &mut clap::Command, path: &str) {
        let _ = write!(text, "\n## `{path}`\n\n```text\n{}\n```\n", command.render_long_help().to_string().trim_end());
        for inner in command.get_subcommands_mut() {
            let path = format!("{path} {}", inner.get_name());
            describe(text, inner, &path);
        }
    }

    /// Compares a generated page. On a mismatch the expected text is written to `target/` for copying.
    fn assert_generated(file: &str, expected: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = std::fs::read_to_string(root.join("docs").join(file)).unwrap_or_default();
        if found != expected {
            let copy = root.join("target").join(file.replace('/', "-"));
            std::fs::write(&copy, expected).unwrap();
            panic!("docs/{file} is out of date; the expected text is in {}", copy.display());
        }
    }

    #[test]
    fn the_reference_of_settings_is_what_the_table_says() {
        assert_generated("reference/config.md", &crate::config::reference());
    }

    #[test]
    fn the_reference_of_metrics_is_what_the_catalogue_says() {
        assert_generated("reference/metrics.md", &crate::telemetry::metrics_page());
    }

    #[test]
    fn the_reference_of_commands_is_what_the_command_line_says() {
        assert_generated("reference/cli.md", &cli());
    }

    #[test]
    fn the_command_line_is_consistent() {
        crate::cli::Cli::command().debug_assert();
    }
}
