//! Memory of the process, as the operating system counts it, and its limit.
//!
//! The limit is kept by the capacity of the block cache, which is the largest part of the memory
//! and the only one that can be given back at any time: each sample above the limit makes it
//! smaller, and each sample well below makes it larger again, up to its share of the limit.
//! Memtables, open tables and buffers of jobs count in that capacity
//! ([`karstdb::Options::one_memory_budget`]).

use karstdb::BlockCache;
use karstdb::io::Env;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// File in which Linux tells a process about itself.
const STATUS: &str = "/proc/self/status";

/// Minimum of a limit of the memory of the process, in bytes.
pub(super) const LIMIT_AT_LEAST: u64 = 64 << 20;

/// Limit of the resident memory.
#[derive(Debug)]
pub(super) struct Limit {
    bytes: u64,
    cache: BlockCache,
}

impl Limit {
    /// A limit in bytes, with a block cache of its share.
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, cache: BlockCache::new(share_of_cache(bytes)) }
    }

    pub(super) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Share of the clients, in bytes.
    pub(super) fn share_of_clients(&self) -> u64 {
        self.bytes / 4
    }
}

/// Share of the block cache, in bytes.
fn share_of_cache(limit: u64) -> usize {
    usize::try_from(limit / 8 * 5).unwrap_or(usize::MAX)
}

/// Capacity of the block cache behind a sample of the resident memory. Freed memory leaves the
/// process only after some seconds, so that a step is a part of what is too much.
fn fitted(capacity: usize, resident: u64, limit: u64) -> usize {
    let (full, bytes) = (share_of_cache(limit), |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX));
    let capacity = match resident > limit {
        true => capacity.saturating_sub(bytes((resident - limit) / 4)),
        // Not up to the limit, so that it does not swing around it.
        false => capacity.saturating_add(bytes((limit / 16 * 15).saturating_sub(resident) / 8)),
    };
    capacity.clamp(full / 8, full)
}

/// Last sample, in bytes; 0 before the first one, and where the system has no such figure.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    limit: Option<Limit>,
    resident: AtomicU64,
    resident_peak: AtomicU64,
    used_peak: AtomicU64,
}

impl Memory {
    pub(super) fn new(limit: Option<Limit>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Limit of the resident memory and capacity of the block cache of now, in bytes; `None`
    /// without a limit.
    pub(crate) fn limit(&self) -> Option<(u64, u64)> {
        self.limit.as_ref().map(|limit| (limit.bytes, limit.cache.capacity_bytes() as u64))
    }

    /// Default of `maxmemory-clients`, in bytes.
    pub(crate) fn share_of_clients(&self) -> u64 {
        self.limit.as_ref().map_or(0, Limit::share_of_clients)
    }

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

    /// Takes a sample, on a thread that may block, and fits the block cache to it.
    pub(crate) async fn sample(&self, env: &Env) {
        let read = env.run_blocking(|env| env.fs().read_file(Path::new(STATUS)));
        if let Ok(text) = read.await {
            let text = String::from_utf8_lossy(&text);
            self.resident.store(bytes_of(&text, "VmRSS:").unwrap_or(0), Ordering::Relaxed);
            self.resident_peak.store(bytes_of(&text, "VmHWM:").unwrap_or(0), Ordering::Relaxed);
        }
        if let Some(limit) = &self.limit
            && self.resident() > 0
        {
            let capacity = limit.cache.capacity_bytes();
            let fitted = fitted(capacity, self.resident(), limit.bytes);
            if fitted != capacity {
                limit.cache.set_capacity(fitted);
            }
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
    fn the_cache_gives_memory_back_and_gets_it_again() {
        const MIB: u64 = 1 << 20;
        let (limit, full) = (160 * MIB, 100 << 20);
        assert_eq!(fitted(full, 150 * MIB, limit), full);
        let less = fitted(full, 200 * MIB, limit);
        assert_eq!(less, 90 << 20);
        assert_eq!(fitted(less, 155 * MIB, limit), less, "it does not swing around the limit");
        assert_eq!(fitted(less, 110 * MIB, limit), 95 << 20);
        assert_eq!(fitted(full, 10_000 * MIB, limit), full / 8);
        assert_eq!(fitted(full / 8, 0, limit), (full / 8) + (150 << 20) / 8);
        assert_eq!(fitted(usize::MAX, u64::MAX, 0), 0);
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
