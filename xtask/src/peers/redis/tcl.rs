//! Redis' own tests, in Tcl, which it can run against a running server.
//!
//! In: Debian's source package of Redis, fetched by apt with a configuration of its own. Out: an
//! outcome for each test, from the lines that the suite prints.

use super::{Outcomes, failed, output};
use crate::run::{Result, path_text, step_in};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Its name in `docs/peers.md`.
const SUITE: &str = "redis-tcl";
const VERSION: &str = "7.0.15";

/// Suite and name of each unit: those of the features that are served. The units `auth`, `info`,
/// `limits`, `obuf-limits` and `pubsubshard` have no test for a server that runs already.
pub(super) const UNITS: &[(&str, &str)] = &[
    (SUITE, "unit/bitfield"),
    (SUITE, "unit/bitops"),
    (SUITE, "unit/dump"),
    (SUITE, "unit/expire"),
    (SUITE, "unit/functions"),
    (SUITE, "unit/geo"),
    (SUITE, "unit/hyperloglog"),
    (SUITE, "unit/info-command"),
    (SUITE, "unit/introspection"),
    (SUITE, "unit/introspection-2"),
    (SUITE, "unit/keyspace"),
    (SUITE, "unit/latency-monitor"),
    (SUITE, "unit/multi"),
    (SUITE, "unit/other"),
    (SUITE, "unit/pause"),
    (SUITE, "unit/protocol"),
    (SUITE, "unit/pubsub"),
    (SUITE, "unit/querybuf"),
    (SUITE, "unit/quit"),
    (SUITE, "unit/scan"),
    (SUITE, "unit/scripting"),
    (SUITE, "unit/slowlog"),
    (SUITE, "unit/sort"),
    (SUITE, "unit/tracking"),
    (SUITE, "unit/type/hash"),
    (SUITE, "unit/type/incr"),
    (SUITE, "unit/type/list"),
    (SUITE, "unit/type/list-2"),
    (SUITE, "unit/type/list-3"),
    (SUITE, "unit/type/set"),
    (SUITE, "unit/type/stream"),
    (SUITE, "unit/type/stream-cgroups"),
    (SUITE, "unit/type/string"),
    (SUITE, "unit/type/zset"),
];

/// Tests with these tags are left out: they are of replicas, snapshots, eviction and the insides of
/// Redis' memory.
const TAGS: &str =
    "-needs:repl -needs:debug -needs:pfdebug -needs:save -needs:config-maxmemory -large-memory";

/// Time limit of a unit; the tests that are not reached by then have failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Downloads the sources unless they are there, and returns their folder.
fn source(root: &Path) -> Result<PathBuf> {
    let source = root.join(format!("redis-{VERSION}"));
    if source.join("ready").exists() {
        return Ok(source);
    }
    let apt = root.join("apt");
    for folder in ["state/lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(folder)).map_err(|e| failed(&apt, e))?;
    }
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let list = format!("deb-src [signed-by={key}] http://deb.debian.org/debian bookworm main\n");
    let dir = path_text(&apt)?;
    let settings = format!(
        "Dir::Etc::sourcelist \"{dir}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
         Dir::State \"{dir}/state\";\nDir::State::status \"/var/lib/dpkg/status\";\n\
         Dir::Cache \"{dir}/cache\";\nAPT::Sandbox::User \"root\";\n"
    );
    for (name, text) in [("sources.list", list), ("apt.conf", settings)] {
        fs::write(apt.join(name), text).map_err(|e| failed(&apt, e))?;
    }
    let file = format!("{dir}/apt.conf");
    let env = [("APT_CONFIG", file.as_str())];
    step_in(&apt, "apt-get", &["-qq", "update"], &env)?;
    step_in(&apt, "apt-get", &["-qq", "source", "--download-only", "redis"], &env)?;
    step_in(root, "tar", &["xf", &format!("{dir}/redis_{VERSION}.orig.tar.gz")], &[])?;
    fs::write(source.join("ready"), "").map_err(|e| failed(&source, e))?;
    Ok(source)
}

/// Runs a unit against the server at a port.
pub(super) fn run(root: &Path, unit: &str, port: u16, log: &Path) -> Result<Outcomes> {
    let source = source(root)?;
    let mut command = Command::new("tclsh");
    command
        .args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--durable", "--ignore-encoding", "--ignore-digest", "--clients", "1"])
        .args(["--tags", TAGS, "--single", unit])
        // Without colours.
        .env("TERM", "dumb")
        .current_dir(&source);
    Ok(outcomes(&output(&mut command, log, LIMIT)?))
}

/// Reads the suite's output: `[ok]: NAME (3 ms)` and `[err]: NAME in FILE`, with the reason on the
/// next line.
fn outcomes(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("[ok]: ") {
            outcomes.pass(name.rsplit_once(" (").map_or(name, |(name, _)| name));
        } else if let Some(name) = line.strip_prefix("[err]: ") {
            let name = name.rsplit_once(" in ").map_or(name, |(name, _)| name);
            let why: String = lines.peek().copied().unwrap_or_default().chars().take(200).collect();
            outcomes.fail(name, &why);
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_suite_prints() {
        let text = "[testing]: x\n[ok]: SET (x) and GET (3 ms)\n[ok]: SET (x) and GET (4 ms)\n\
            [err]: DEL in all in tests/unit/a.tcl\nExpected '1' to be '2'\n[ignore]: y: Tag\n";
        let outcomes = outcomes(text);
        assert_eq!(outcomes.lines(), "SET (x) and GET\nSET (x) and GET\n");
        assert_eq!(outcomes.failed["DEL in all"], "Expected '1' to be '2'");
    }
}
