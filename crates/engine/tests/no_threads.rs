//! Operation without available threads: opening for writing needs a minimum of threads, fails with
//! an error below it, and works with exactly these; reading needs none.
//!
//! The environment refuses the threads. If the test runs as root with util-linux installed, the
//! operating system does too: the test's program runs again as another user, with a limit of one
//! process.

use karst_engine::{CompactRangeOptions, Db, ErrorKind, FlushOptions, Options};
use karst_io::Env;
use karst_io::testing::ThreadAllowance;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

const DIRECTORY: &str = "KARST_NO_THREADS_DIR";
const TEST: &str = "opening_says_that_the_operating_system_has_no_threads";

fn options(allowance: &Arc<ThreadAllowance>) -> Options {
    let env = Env::builder().thread_allowance(allowance.clone()).build();
    Options::new().env(env).db(|db| db.create_if_missing = true)
}

/// Writes until there was a flush and a compaction, and reads.
fn use_it(db: &Db) {
    for round in 0..3u64 {
        (0..100u64).for_each(|key| db.put(key.to_be_bytes(), round.to_be_bytes()).unwrap());
        db.flush(&FlushOptions::default()).unwrap();
    }
    db.compact_range(&CompactRangeOptions::default(), None::<&[u8]>, None::<&[u8]>).unwrap();
    assert_eq!(db.get(7u64.to_be_bytes()).unwrap().unwrap().as_ref(), 2u64.to_be_bytes());
}

#[test]
fn opening_needs_two_threads_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for threads in [0, 1] {
        let refused = Db::open(&path, &options(&ThreadAllowance::new(threads))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Io);
        assert!(refused.to_string().contains("start thread"), "{refused}");
        assert!(!path.exists(), "nothing was made");
    }
    let allowance = ThreadAllowance::new(2);
    let db = Db::open(&path, &options(&allowance)).unwrap();
    use_it(&db);
    db.close().unwrap();
    drop(db);
    // The next opening finds and removes the files left behind, without any further thread.
    let db = Db::open(&path, &options(&ThreadAllowance::new(2))).unwrap();
    db.close().unwrap();
    drop(db);
    let db = Db::open_read_only(&path, &options(&ThreadAllowance::new(0))).unwrap();
    assert_eq!(db.get(7u64.to_be_bytes()).unwrap().unwrap().as_ref(), 2u64.to_be_bytes());
}

const AS_ANOTHER: [&str; 4] = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];

/// Returns true if this process may switch to another user.
fn may_be_another() -> bool {
    Command::new(AS_ANOTHER[0])
        .args(&AS_ANOTHER[1..])
        .args(["prlimit", "--nproc=100", "true"])
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs this program again as another user with a limit of `processes`. A timeout kills it if it
/// hangs.
fn confined(program: &Path, directory: &Path, processes: &str) -> Output {
    Command::new("timeout")
        .args(["--signal=KILL", "300"])
        .args(AS_ANOTHER)
        .arg("prlimit")
        .arg(format!("--nproc={processes}"))
        .arg(program)
        .args([TEST, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap()
}

#[test]
fn opening_says_that_the_operating_system_has_no_threads() {
    let options = Options::new().db(|db| db.create_if_missing = true);
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        match Db::open(Path::new(&directory).join("db"), &options) {
            Ok(db) => {
                use_it(&db);
                println!("opened");
            }
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    if !may_be_another() {
        return eprintln!("not checked: neither root nor util-linux here");
    }
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    // A copy, because the other user may not be able to reach the original.
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    std::fs::set_permissions(directory.path(), all).unwrap();
    let free = confined(&program, directory.path(), "100");
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said(&free).contains("opened"), "{free:?}");
    for processes in ["1", "2"] {
        std::fs::remove_dir_all(directory.path().join("db")).unwrap_or_default();
        let output = confined(&program, directory.path(), processes);
        assert!(said(&output).contains("start thread karst-"), "{output:?}");
    }
}
