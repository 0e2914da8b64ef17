//! `karstdb import SOURCE DB`: what a Redis server holds into a database of `karstdb serve`.
//!
//! Input: an RDB file or the URL of a running server, and a database directory that no server has
//! open. Output: counts by type; on a terminal the progress. The exit code is 0 if everything was
//! imported. SIGINT and SIGTERM end the import once what was received is written.

mod client;
mod live;
mod url;

use crate::output::{Fault, is_watched, note, say, to_stderr};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use karst_server::{ImportOptions, Imported, Importer};
use karstdb::Options;
use karstdb::io::{Env, block_on};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use url::Url;

const ABOUT: &str = "Import what a Redis server holds, from the running server or from an RDB file";
const HELP: &str = "\
Imports all keys, with their expiries, and the libraries of functions into the database in DB, which is
created if it does not exist and is the one that `karstdb serve DB` serves. No server may have it open.

SOURCE is an RDB file, of Redis up to 7.4 or Valkey 8, or the URL of a server:
redis://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE]. A server is read by SCAN, DUMP and PEXPIRETIME (before
Redis 7: PTTL): a key is imported as it is when it is read, so clients should not write meanwhile.
Without DATABASE all databases are imported. The password may be in the environment, as REDISCLI_AUTH;
that of the command line is in the list of processes.

Keys that are in DB already stay as they are, unless --replace is given. An import that was interrupted
is completed by a second one with --replace. The exit code is 0 if everything was imported.";

/// Time between two lines of progress.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// Returns the definition of the command line.
pub(crate) fn command() -> Command {
    let of = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    Command::new("import")
        .about(ABOUT)
        .long_about(HELP)
        .arg(Arg::new("SOURCE").required(true).help("An RDB file, or redis://HOST:PORT"))
        .arg(
            Arg::new("DB")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The database's directory"),
        )
        .arg(of("replace", "").num_args(0).action(ArgAction::SetTrue).help("Replace keys that are in DB"))
        .arg(
            of("databases", "N")
                .default_value("16")
                .value_parser(value_parser!(u16).range(1..))
                .help("Number of databases of DB; keys of others are refused"),
        )
        .arg(
            of("options", "NAME=VALUE;...")
                .default_value("")
                .help("Options of the database, by RocksDB's names"),
        )
}

/// The progress on a terminal, and the wish to stop.
struct Watch {
    is_watched: bool,
    told: Instant,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn new() -> Result<Self, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let registered = signal_hook::flag::register(signal, stop.clone());
            registered.map_err(|e| Fault::Failed(format!("cannot handle signals: {e}")))?;
        }
        Ok(Self { is_watched: is_watched(), told: Instant::now(), stop })
    }

    /// True once a signal has come.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Shows how far the import is, a few times in a second.
    fn show(&mut self, text: impl FnOnce() -> String) {
        if self.is_watched && self.told.elapsed() >= PROGRESS_PERIOD {
            self.told = Instant::now();
            to_stderr(format_args!("\r\x1b[K{}", text()));
        }
    }

    /// Ends the line of the progress.
    fn end(&self) {
        if self.is_watched {
            to_stderr(format_args!("\r\x1b[K"));
        }
    }
}

/// End of a source.
enum End {
    /// Everything was read; this many keys went while they were read.
    Complete { vanished: u64 },
    /// A signal came.
    Stopped,
}

/// Runs the program.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Fault> {
    let source = matches.get_one::<String>("SOURCE").expect("clap asks for it");
    let path = matches.get_one::<PathBuf>("DB").expect("clap asks for it");
    let text = matches.get_one::<String>("options").map_or("", String::as_str);
    let options = ImportOptions {
        databases: matches.get_one::<u16>("databases").copied().unwrap_or(16),
        replaces: matches.get_flag("replace"),
        db: Options::new().set_all(text).map_err(|e| Fault::Usage(e.to_string()))?,
    };
    let url = Url::parse(source).map_err(Fault::Usage)?;
    // Before the threads of the database, because they inherit that these signals are handled.
    let mut watch = Watch::new()?;
    let (env, begun) = (Env::posix(), Instant::now());
    let (ended, imported) = match &url {
        // The source is there before a database is made.
        Some(url) => {
            let mut source = live::Source::connect(url, options.databases, watch.stop.clone())?;
            with_importer(path, &options, &env, async |importer| source.import(importer, &mut watch).await)
        }
        None => {
            let file = File::open(source).map_err(|e| Fault::Failed(format!("{source}: {e}")))?;
            with_importer(path, &options, &env, async |importer| {
                read_file(file, importer, &mut watch).await.map_err(|fault| fault.of(source))
            })
        }
    }?;
    watch.end();
    // Nobody may read it, and the import has failed or not in spite of that.
    let told = tell(&imported, begun.elapsed(), &ended);
    match ended {
        Ok(End::Complete { .. }) => left_out(&imported)?,
        Ok(End::Stopped) => return Err(Fault::Failed(format!("interrupted; {AGAIN}"))),
        Err(fault @ Fault::Failed(_)) if imported.keys() > 0 => {
            note!("karstdb: {AGAIN}");
            return Err(fault);
        }
        Err(fault) => return Err(fault),
    }
    told
}

const AGAIN: &str = "the import is not complete: the same command with --replace completes it";

/// Opens the database, imports, and closes the database whatever comes.
fn with_importer(
    path: &Path,
    options: &ImportOptions,
    env: &Env,
    import: impl AsyncFnOnce(&mut Importer) -> Result<End, Fault>,
) -> Result<(Result<End, Fault>, Imported), Fault> {
    let importing = async {
        let mut importer = Importer::open(path, options, env).await?;
        let ended = import(&mut importer).await;
        match (importer.close().await, ended) {
            (Ok(imported), ended) => Ok((ended, imported)),
            (Err(_), Err(fault)) => Err(fault),
            (Err(error), Ok(_)) => Err(Fault::Failed(format!("{}: {error}", path.display()))),
        }
    };
    block_on(env, importing)
}

async fn read_file(file: File, importer: &mut Importer, watch: &mut Watch) -> Result<End, Fault> {
    // Of a pipe it is 0.
    let size = file.metadata().map_or(0, |of| of.len());
    let on_progress = |imported: &Imported, read: u64| {
        watch.show(|| {
            let percent = (read * 100).checked_div(size).map(|percent| format!("{percent} %, "));
            format!("importing: {}{} keys", percent.unwrap_or_default(), imported.keys())
        });
        if watch.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    match importer.read_file(file, on_progress).await {
        Ok(true) => Ok(End::Complete { vanished: 0 }),
        Ok(false) => Ok(End::Stopped),
        Err(error) => Err(Fault::Failed(error.to_string())),
    }
}

/// Prints the counts.
fn tell(imported: &Imported, time: Duration, ended: &Result<End, Fault>) -> Result<(), Fault> {
    let seconds = time.as_secs_f64();
    say!("{} keys of {} bytes imported in {seconds:.1} s", imported.keys(), imported.bytes)?;
    let vanished = if let Ok(End::Complete { vanished }) = ended { *vanished } else { 0 };
    for (count, text) in [
        (imported.strings, "strings"),
        (imported.lists, "lists"),
        (imported.sets, "sets"),
        (imported.hashes, "hashes"),
        (imported.sorted_sets, "sorted sets"),
        (imported.streams, "streams"),
        (imported.libraries, "libraries of functions"),
        (imported.expired, "keys left out, because they have expired"),
        (vanished, "keys left out, because they were gone when they were read"),
    ] {
        if count > 0 {
            say!("{count:>12} {text}")?;
        }
    }
    Ok(())
}

/// Says what was to be imported and was not; that is a fault.
fn left_out(imported: &Imported) -> Result<(), Fault> {
    imported.refusals.iter().for_each(|refusal| note!("karstdb: refused: {refusal}"));
    match (imported.existing, imported.refused) {
        (0, 0) => Ok(()),
        (existing, 0) => Err(Fault::Failed(format!(
            "{existing} keys were there already and stay as they were; --replace replaces them"
        ))),
        (0, refused) => Err(Fault::Failed(format!("{refused} keys or libraries were refused"))),
        (existing, refused) => Err(Fault::Failed(format!(
            "{existing} keys were there already and stay as they were, and {refused} keys or libraries were \
             refused"
        ))),
    }
}
