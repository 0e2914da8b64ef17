//! State of scripts: the cache of EVAL, the scripts that run, and the number of
//! virtual machines.
//!
//! Locks: those of the cache and of the list are held for single operations.

use crate::lua::Script;
use crate::wrong::Wrong;
use async_lock::{Semaphore, SemaphoreGuardArc};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum number of scripts that were only run, and not loaded, as in Redis 7.4.
const EVALUATED_AT_MOST: usize = 500;
/// Maximum number of their bytes.
const EVALUATED_BYTES: usize = 64 << 20;
/// Maximum number of bytes of scripts that were loaded.
const LOADED_BYTES: usize = 256 << 20;
/// Maximum number of scripts that run at the same time, for each thread.
const MACHINES: usize = 64;

/// The scripts of a server.
pub(crate) struct Scripts {
    cache: Mutex<Cache>,
    running: Mutex<Vec<Arc<RunningScript>>>,
    /// Number of scripts that have run for longer than the threshold.
    slow: AtomicUsize,
    machines: Arc<Semaphore>,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<String, (Arc<Script>, bool)>,
    /// Hashes of scripts that were not loaded, the one that has run last at the end.
    evaluated: VecDeque<String>,
    evaluated_bytes: usize,
    loaded_bytes: usize,
}

impl Cache {
    fn evict(&mut self) {
        while self.evaluated.len() > EVALUATED_AT_MOST || self.evaluated_bytes > EVALUATED_BYTES {
            let Some(oldest) = self.evaluated.pop_front() else { return };
            if let Some((script, _)) = self.scripts.remove(&oldest) {
                self.evaluated_bytes -= script.text.len();
            }
        }
    }
}

/// A script or a function that runs.
#[derive(Debug)]
pub(crate) struct RunningScript {
    pub(crate) is_function: bool,
    /// Hash of the script, or name of the function.
    pub(crate) name: String,
    /// The client's command.
    pub(crate) command: Vec<Vec<u8>>,
    /// Environment's monotonic time at which it began.
    pub(crate) since: Duration,
    is_slow: AtomicBool,
    /// [`READING`], [`WRITING`] or [`KILLED`].
    state: AtomicU8,
}

/// It has called no command that writes.
const READING: u8 = 0;
/// It has begun to write, and is not killed any more.
const WRITING: u8 = 1;
/// It is to end, and writes nothing.
const KILLED: u8 = 2;

impl RunningScript {
    /// Notes that it is about to write. Returns false if it was killed, and may not.
    pub(crate) fn note_write(&self) -> bool {
        self.change(WRITING) || self.state.load(Ordering::Relaxed) == WRITING
    }

    /// Has it end. Returns false if it has written, and goes on.
    fn kill(&self) -> bool {
        self.change(KILLED) || self.is_killed()
    }

    fn change(&self, to: u8) -> bool {
        self.state.compare_exchange(READING, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True after SCRIPT KILL or FUNCTION KILL.
    pub(crate) fn is_killed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == KILLED
    }

    /// True once it has run for longer than the threshold.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }
}

/// A script in the list of those that run, until it is dropped.
pub(crate) struct Listed<'a> {
    scripts: &'a Scripts,
    pub(crate) script: Arc<RunningScript>,
}

impl Listed<'_> {
    /// Notes that it has run for longer than the threshold.
    pub(crate) fn set_slow(&self) {
        if !self.script.is_slow.swap(true, Ordering::Relaxed) {
            self.scripts.slow.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.scripts.running.lock().retain(|other| !Arc::ptr_eq(other, &self.script));
        if self.script.is_slow() {
            self.scripts.slow.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The error of commands while a script or a function runs for too long.
fn busy(is_function: bool) -> Wrong {
    let container = if is_function { "FUNCTION" } else { "SCRIPT" };
    Wrong::new(format!(
        "BUSY Redis is busy running a script. You can only call {container} KILL or SHUTDOWN NOSAVE."
    ))
}

impl Scripts {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            cache: Mutex::default(),
            running: Mutex::default(),
            slow: AtomicUsize::new(0),
            machines: Arc::new(Semaphore::new(MACHINES * threads)),
        }
    }

    /// Waits until another machine may run. The caller has no locks on keys.
    pub(crate) async fn permit(&self) -> SemaphoreGuardArc {
        self.machines.acquire_arc().await
    }

    /// The script of this hash, which has run last from now on.
    pub(crate) fn find(&self, sha: &str) -> Option<Arc<Script>> {
        let mut cache = self.cache.lock();
        let (script, is_loaded) = cache.scripts.get(sha)?.clone();
        if !is_loaded && cache.evaluated.back().is_none_or(|last| last != sha) {
            cache.evaluated.retain(|other| other != sha);
            cache.evaluated.push_back(sha.to_owned());
        }
        Some(script)
    }

    /// True if the script of this hash is known.
    pub(crate) fn has(&self, sha: &str) -> bool {
        self.cache.lock().scripts.contains_key(sha)
    }

    /// Keeps a script: one that is loaded until SCRIPT FLUSH, others as long as there is room.
    ///
    /// # Errors
    /// The scripts that were loaded have too many bytes.
    pub(crate) fn add(&self, script: &Arc<Script>, is_loaded: bool) -> Result<(), Wrong> {
        let mut cache = self.cache.lock();
        let (sha, bytes) = (&script.sha, script.text.len());
        let known = cache.scripts.get(sha).map(|(_, was_loaded)| *was_loaded);
        if is_loaded && known != Some(true) {
            if cache.loaded_bytes + bytes > LOADED_BYTES {
                return Err(Wrong::err("the loaded scripts exceed 256 MiB; SCRIPT FLUSH removes them"));
            }
            cache.loaded_bytes += bytes;
            if known == Some(false) {
                cache.evaluated.retain(|other| other != sha);
                cache.evaluated_bytes -= bytes;
            }
            cache.scripts.insert(sha.clone(), (script.clone(), true));
        } else if !is_loaded && known.is_none() {
            cache.scripts.insert(sha.clone(), (script.clone(), false));
            cache.evaluated.push_back(sha.clone());
            cache.evaluated_bytes += bytes;
            cache.evict();
        }
        Ok(())
    }

    /// Forgets all scripts.
    pub(crate) fn flush(&self) {
        let forgotten = std::mem::take(&mut *self.cache.lock());
        drop(forgotten);
    }

    /// Number of scripts, and of their bytes.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let cache = self.cache.lock();
        (cache.scripts.len(), cache.evaluated_bytes + cache.loaded_bytes)
    }

    /// Lists a script that begins.
    pub(crate) fn begin(
        &self,
        is_function: bool,
        name: String,
        command: Vec<Vec<u8>>,
        since: Duration,
    ) -> Listed<'_> {
        let script = Arc::new(RunningScript {
            is_function,
            name,
            command,
            since,
            is_slow: false.into(),
            state: READING.into(),
        });
        self.running.lock().push(script.clone());
        Listed { scripts: self, script }
    }

    /// A script that runs: one that is slow if there is one.
    pub(crate) fn running(&self) -> Option<Arc<RunningScript>> {
        let running = self.running.lock();
        running.iter().find(|script| script.is_slow()).or(running.first()).cloned()
    }

    /// Returns the error of other commands if a script has run for too long.
    pub(crate) fn check_busy(&self) -> Result<(), Wrong> {
        if !self.is_busy() {
            return Ok(());
        }
        match self.running().filter(|script| script.is_slow()) {
            Some(script) => Err(busy(script.is_function)),
            None => Ok(()),
        }
    }

    /// True if a script has run for too long.
    pub(crate) fn is_busy(&self) -> bool {
        self.slow.load(Ordering::Relaxed) > 0
    }

    /// Kills the scripts, or the functions, that have run for too long and have not written.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn kill(&self, is_function: bool) -> Result<(), Wrong> {
        let running = self.running.lock();
        let slow: Vec<_> = running.iter().filter(|script| script.is_slow()).collect();
        if slow.is_empty() {
            return Err(Wrong::new("NOTBUSY No scripts in execution right now."));
        }
        let has_written = |script: &RunningScript| script.state.load(Ordering::Relaxed) == WRITING;
        let (of_kind, others): (Vec<_>, Vec<_>) =
            slow.into_iter().partition(|script| script.is_function == is_function);
        // All of them, and not only the first.
        let killed = of_kind.iter().filter(|script| script.kill()).count();
        if killed > 0 {
            Ok(())
        } else if others.iter().any(|script| !has_written(script)) {
            Err(busy(!is_function))
        } else {
            Err(Wrong::new(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can \
                 either wait the script termination or kill the server in a hard way using the SHUTDOWN \
                 NOSAVE command.",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lua::sha1_hex;

    fn script(text: &str) -> Arc<Script> {
        Arc::new(Script::new(sha1_hex(text.as_bytes()), text.as_bytes()).unwrap())
    }

    #[test]
    fn the_oldest_of_many_evaluated_scripts_is_forgotten() {
        let scripts = Scripts::new(1);
        let all: Vec<_> = (0..EVALUATED_AT_MOST + 1).map(|n| script(&format!("return {n}"))).collect();
        scripts.add(&all[0], true).unwrap();
        for script in &all[1..] {
            scripts.add(script, false).unwrap();
        }
        assert!(all.iter().all(|script| scripts.has(&script.sha)));
        // The one that has run last stays.
        assert!(scripts.find(&all[1].sha).is_some());
        let more = script("return 'more'");
        scripts.add(&more, false).unwrap();
        let forgotten: Vec<_> = (0..all.len()).filter(|at| !scripts.has(&all[*at].sha)).collect();
        assert_eq!(forgotten, [2]);
        // One that is loaded afterwards stays too.
        scripts.add(&all[3], true).unwrap();
        for n in 0..EVALUATED_AT_MOST {
            scripts.add(&script(&format!("return -{n}")), false).unwrap();
        }
        assert!(scripts.has(&all[0].sha) && scripts.has(&all[3].sha) && !scripts.has(&all[4].sha));
        assert_eq!(scripts.sizes().0, EVALUATED_AT_MOST + 2);
        scripts.flush();
        assert_eq!(scripts.sizes(), (0, 0));
    }

    #[test]
    fn a_slow_script_that_has_not_written_is_killed() {
        let scripts = Scripts::new(1);
        let text = |killed: Result<(), Wrong>| killed.unwrap_err().text().to_owned();
        let listed = scripts.begin(false, "x".to_owned(), Vec::new(), Duration::ZERO);
        assert!(text(scripts.kill(false)).starts_with("NOTBUSY") && scripts.check_busy().is_ok());
        listed.set_slow();
        assert!(text(scripts.check_busy()).starts_with("BUSY"));
        assert!(text(scripts.kill(true)).contains("SCRIPT KILL"));
        assert!(scripts.kill(false).is_ok() && listed.script.is_killed());
        assert!(!listed.script.note_write(), "it was killed");
        drop(listed);
        let listed = scripts.begin(false, "y".to_owned(), Vec::new(), Duration::ZERO);
        listed.set_slow();
        assert!(listed.script.note_write() && listed.script.note_write());
        assert!(text(scripts.kill(false)).starts_with("UNKILLABLE") && !listed.script.is_killed());
        drop(listed);
        assert!(!scripts.is_busy() && scripts.running().is_none());
    }
}
