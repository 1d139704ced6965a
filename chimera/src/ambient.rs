//! The only module that reads the system clock, randomness and environment.
//!
//! Everything else takes them as arguments, so that tests and the simulator can supply their own.

mod clock;
mod compare;
pub(crate) mod watch;

pub(crate) use clock::SystemClock;
pub(crate) use compare::ClockDisagreement;

use chimera_engine::port::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// Randomness of the operating system, fetched a few hundred bytes at a time: a run needs dozens of
/// ids and salts, and each fetch is a system call.
#[derive(Debug, Default)]
pub(crate) struct SystemRandom;

/// Bytes that one thread has fetched and not given out yet.
struct RandomBuffer {
    bytes: [u8; FETCH_BYTES],
    left: usize,
}

const FETCH_BYTES: usize = 512;

thread_local! {
    static FETCHED: RefCell<RandomBuffer> = const { RefCell::new(RandomBuffer { bytes: [0; FETCH_BYTES], left: 0 }) };
}

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        // Long keys, and a thread that is ending, fetch for themselves.
        if bytes.len() > 32 || FETCHED.try_with(|fetched| fetched.borrow_mut().take(bytes)).is_err() {
            fetch(bytes);
        }
    }
}

impl RandomBuffer {
    /// Gives bytes out, each once: what was given is wiped.
    fn take(&mut self, bytes: &mut [u8]) {
        if self.left < bytes.len() {
            fetch(&mut self.bytes);
            self.left = FETCH_BYTES;
        }
        let given = &mut self.bytes[self.left - bytes.len()..self.left];
        bytes.copy_from_slice(given);
        given.fill(0);
        self.left -= bytes.len();
    }
}

#[allow(clippy::disallowed_methods)] // the one place that draws random bytes
fn fetch(bytes: &mut [u8]) {
    // Without randomness no id and no key is safe, and there is nobody to ask instead.
    if getrandom::fill(bytes).is_err() {
        std::process::abort();
    }
}

/// What the environment says, as far as it concerns us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The variables whose names begin with `CHIMERA_`.
    pub(crate) settings: BTreeMap<String, String>,
    /// The user's home folder.
    pub(crate) home: Option<String>,
    /// Whether the user asked for plain output.
    pub(crate) no_color: bool,
    /// The width of the output, if the user says so.
    pub(crate) columns: Option<usize>,
    /// The words of the command line after the program's name.
    pub(crate) args: Vec<String>,
}

impl Environment {
    /// Reads the environment of this process. A value that is not UTF-8 is kept with replacement
    /// characters, so that it is refused as a wrong value and not silently passed over.
    #[allow(clippy::disallowed_methods)] // the one place that reads the environment
    pub(crate) fn read() -> Self {
        let settings = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| name.starts_with("CHIMERA_") || crate::config::aliases().any(|alias| alias == name))
            .collect();
        let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = given("HOME").map(|home| home.to_string_lossy().into_owned());
        let columns = given("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
        let args = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        Self { settings, home, no_color: given("NO_COLOR").is_some(), columns, args }
    }
}

/// Whether a person can answer.
pub(crate) fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Whether words go to a person's terminal.
pub(crate) fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether data goes to a person's terminal.
pub(crate) fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns and rows of the terminal that data goes to, if it goes to one.
pub(crate) fn stdout_size() -> Option<(usize, usize)> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten()?;
    Some(usable(size.ws_col, size.ws_row))
}

/// A terminal that doesn't know its size says zero.
fn usable(columns: u16, rows: u16) -> (usize, usize) {
    let known = |given: u16, usual| if given == 0 { usual } else { usize::from(given).max(10) };
    (known(columns, 80), known(rows, 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_is_taken_for_a_usual_one() {
        assert_eq!((usable(0, 0), usable(1, 1), usable(120, 50)), ((80, 24), (10, 10), (120, 50)));
    }

    #[test]
    fn randomness_differs_from_draw_to_draw() {
        assert_ne!(SystemRandom.salt(), SystemRandom.salt());
    }
}
