//! Memory of the process, as the operating system counts it.

use karstdb::io::Env;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// File in which Linux tells a process about itself.
const STATUS: &str = "/proc/self/status";

/// Last sample, in bytes; 0 before the first one, and where the system has no such figure.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    resident: AtomicU64,
    resident_peak: AtomicU64,
    used_peak: AtomicU64,
}

impl Memory {
    /// Memory of the process that is resident.
    pub(crate) fn resident(&self) -> u64 {
        self.resident.load(Ordering::Relaxed)
    }

    /// The most memory that was resident.
    pub(crate) fn resident_peak(&self) -> u64 {
        self.resident_peak.load(Ordering::Relaxed)
    }

    /// Notes the memory that the server uses, and returns the most that it has used.
    pub(crate) fn note_used(&self, bytes: u64) -> u64 {
        self.used_peak.fetch_max(bytes, Ordering::Relaxed).max(bytes)
    }

    /// Takes a sample, on a thread that may block.
    pub(crate) async fn sample(&self, env: &Env) {
        let read = env.run_blocking(|env| env.fs().read_file(Path::new(STATUS)));
        if let Ok(text) = read.await {
            let text = String::from_utf8_lossy(&text);
            self.resident.store(bytes_of(&text, "VmRSS:").unwrap_or(0), Ordering::Relaxed);
            self.resident_peak.store(bytes_of(&text, "VmHWM:").unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// Value of a line `name  123 kB`, in bytes.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karstdb::io::block_on;

    #[test]
    fn sizes_are_read_from_their_lines() {
        let text = "Name:\tkarst\nVmHWM:\t    2000 kB\nVmRSS:\t    1000 kB\nThreads:\t3\n";
        assert_eq!(bytes_of(text, "VmRSS:"), Some(1_024_000));
        assert_eq!((bytes_of(text, "VmSwap:"), bytes_of(text, "Threads:")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_knows_its_memory() {
        let (memory, env) = (Memory::default(), Env::posix());
        block_on(&env, memory.sample(&env));
        assert!(memory.resident() > 1 << 20 && memory.resident_peak() >= memory.resident());
        assert_eq!((memory.note_used(5), memory.note_used(3)), (5, 5));
    }
}
