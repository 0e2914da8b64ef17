//! Commands: runs and echoes them, stops at the first that fails, and finds programs.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Result of a task: an error is one message for the user.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// Environment of a build that is optimised for compile time: for tests that run for seconds and
/// whose features no other build has. Halves the time of the build.
pub(crate) const UNOPTIMISED: [(&str, &str); 2] =
    [("CARGO_PROFILE_DEV_OPT_LEVEL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")];

/// The root of this checkout.
pub(crate) fn repository_root() -> PathBuf {
    // The variable is read at run time, because checkouts may share a target directory and so the
    // program that one of them built.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&xtask).parent().expect("xtask sits in the repository").to_path_buf()
}

/// Returns a new seed for each run: the time in milliseconds, so that seeds counted up from it do
/// not reach the next run's.
pub(crate) fn fresh_seed() -> u64 {
    since_epoch().as_millis() as u64 % 1_000_000_000_000
}

pub(crate) fn since_epoch() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

pub(crate) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| format!("{}: the path is not UTF-8", path.display()))
}

/// Installs Debian packages if apt-get runs as root, else returns an error with the command.
pub(crate) fn install(packages: &[&str]) -> Result {
    if packages.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !found("apt-get") || !succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]) {
        return Err(format!("missing: {}\n  install with: sudo {line}", packages.join(", ")));
    }
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(packages);
    let noninteractive = [("DEBIAN_FRONTEND", "noninteractive")];
    step("apt-get", &["update", "-qq"], &[])
        .and_then(|()| step("apt-get", &args, &noninteractive))
        .map_err(|e| format!("{e}\n  install by hand with: sudo {line}"))
}

/// Folder of this workspace's builds: `$CARGO_TARGET_DIR`, else `target` in the repository.
pub(crate) fn target_dir() -> PathBuf {
    let asked = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    asked.unwrap_or_else(|| repository_root().join("target"))
}

/// Folder of builds that outlive a clone: `$KARST_CACHE`, else `~/.cache/karstdb`.
pub(crate) fn cache_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("KARST_CACHE") {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    PathBuf::from(home).join(".cache/karstdb")
}

/// Returns an error if the disk has too little space: `gigabytes` for the target directory, less
/// its present size, and two for temporary files.
pub(crate) fn check_room(gigabytes: u64) -> Result {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| repository_root().join("target"));
    let taken = number_of("du", &["-s", "--block-size=1G"], &target).unwrap_or_default();
    for (path, wanted) in [(target, gigabytes.saturating_sub(taken)), (std::env::temp_dir(), 2)] {
        let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let free = number_of("df", &["--output=avail", "--block-size=1G"], existing);
        if let Some(free) = free.filter(|free| *free < wanted) {
            return Err(format!(
                "{}: {free} GB of room are left, and about {wanted} GB are needed; builds of earlier runs may be deleted: {}",
                path.display(),
                cache_dir().display()
            ));
        }
    }
    Ok(())
}

/// Returns the number that begins the last line a program prints for a path, if any.
fn number_of(program: &str, args: &[&str], path: &Path) -> Option<u64> {
    let output = Command::new(program).args(args).arg(path).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().last()?.split_whitespace().next()?.parse().ok()
}

/// True if a program is on the PATH.
pub(crate) fn found(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs a command without its output, and returns true if it succeeds.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// Runs a command in the repository root, and prints it and its time. Returns an error if it fails.
pub(crate) fn step(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result {
    step_in(&repository_root(), program, args, env)
}

/// Like [`step`], in another folder.
pub(crate) fn step_in(dir: &Path, program: &str, args: &[&str], env: &[(&str, &str)]) -> Result {
    let shown: Vec<String> = env
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .chain(std::iter::once(program.to_string()))
        .chain(args.iter().map(|a| a.to_string()))
        .collect();
    let shown = shown.join(" ");
    let mut command = Command::new(program);
    // Cargo sets these for xtask itself; a nested cargo must choose its own toolchain and target.
    for inherited in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(inherited);
    }
    command.args(args).envs(env.iter().copied()).current_dir(dir);
    let start = Instant::now();
    let failed = |e: std::io::Error| format!("cannot run {program}: {e}");
    let status = if let Some(stop) = BESIDE.get() {
        if stop.load(Ordering::Relaxed) {
            return Err(format!("not run, because another step has failed: {shown}"));
        }
        let output = command.stdin(Stdio::null()).output().map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        println!("\n==> {shown}\n{}{}", text(&output.stderr), text(&output.stdout));
        output.status
    } else {
        println!("\n==> {shown}");
        command.status().map_err(failed)?
    };
    println!("<== {:.1} s: {shown}", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("failed ({status}): {shown}")) }
}

thread_local! {
    /// On a thread of [`at_once`], the flag that is true if a task has failed. Steps of such a
    /// thread print their output in one piece when they end.
    static BESIDE: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
}

/// Runs all `tasks` at the same time, the first on this thread, and returns the error of the first
/// that failed. After a failure the other tasks end with their current step.
pub(crate) fn at_once(tasks: &[&(dyn Fn() -> Result + Sync)]) -> Result {
    // One for the whole program, because a failure ends it.
    static FAILED: AtomicBool = AtomicBool::new(false);
    let run = |task: &(dyn Fn() -> Result + Sync)| {
        let outcome = task();
        if outcome.is_err() {
            FAILED.store(true, Ordering::Relaxed);
        }
        outcome
    };
    let Some((first, others)) = tasks.split_first() else { return Ok(()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|task| {
                scope.spawn(move || {
                    BESIDE.set(Some(&FAILED));
                    run(*task)
                })
            })
            .collect();
        let mut outcome = run(*first);
        for other in others {
            let next = other.join().unwrap_or_else(|_| Err("a task panicked".into()));
            outcome = outcome.and(next);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_beside_others_end_with_the_first_failure() {
        let fails = || step("sh", &["-c", "exit 3"], &[]);
        let goes_on = || loop {
            step("sh", &["-c", "echo a step beside others"], &[])?;
        };
        let error = at_once(&[&fails, &goes_on]).unwrap_err();
        assert!(error.contains("exit 3"), "{error}");
    }
}
