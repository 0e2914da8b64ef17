//! The states that a crash may leave during and after an operation, each on a machine of its own.

use karst_engine::{Db, Error, ErrorKind, Options};
use karst_io::{CrashStates, Journal, Simulation};
use karst_testkit::asked::long;
use std::path::{Path, PathBuf};

/// The short form opens one in this many states.
const SHARE: u64 = 7;
/// Number of first changes of the operation whose states are all opened.
const FIRST: usize = 4;

/// A state that a crash has left.
pub(crate) struct State {
    /// Number of changes of the disk before it.
    pub(crate) at: usize,
    pub(crate) machine: Simulation,
    /// Description for messages.
    pub(crate) what: String,
    /// A file whose content the crash garbled.
    damaged: Option<PathBuf>,
}

impl State {
    /// Opens the database in `/db`. Returns `None` if it is rightly refused. Compat: a complete but
    /// wrong record of the MANIFEST is refused, as by RocksDB.
    pub(crate) fn open(&self, options: &Options) -> Option<Db> {
        let refuses = self.damaged.as_ref().is_some_and(|file| file.starts_with("/db"));
        match Db::open("/db", options) {
            Ok(db) => Some(db),
            Err(e) if refuses && e.kind() == ErrorKind::Corruption => None,
            Err(e) => self.fail(&e),
        }
    }

    pub(crate) fn fail(&self, error: &Error) -> ! {
        panic!("{}: {error}", self.what)
    }
}

fn indifferent(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
}

/// Passes states to `check`: all at `done` and at the first changes after `begun`, some of those
/// between, and a few later ones. The long form passes all.
pub(crate) fn each_state(
    (journal, name, seed): (&Journal, &str, u64),
    (begun, done): (usize, usize),
    mut check: impl FnMut(&State),
) {
    let mut states = CrashStates::new(journal, indifferent);
    loop {
        let at = states.boundary();
        if at >= begun {
            let point = states.point(seed);
            for state in 0..point.len() {
                let share = if at > done { 8 * SHARE } else { SHARE };
                let always = at == done || at < begun + FIRST;
                if !long() && !always && !point.hash(state).is_multiple_of(share) {
                    continue;
                }
                let (after, state_is) = (states.last_change(), point.what(state));
                check(&State {
                    at,
                    machine: Simulation::with_image(&point.image(state), seed),
                    what: format!("{name}, seed {seed}, boundary {at} after {after}: {state_is}"),
                    damaged: point.damaged(state).map(Path::to_owned),
                });
            }
        }
        if !states.advance() {
            return;
        }
    }
}
