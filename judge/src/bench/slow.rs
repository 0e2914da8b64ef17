//! Slow storage for all engines: the FUSE mount of `slowfs`, which delays each read.

use super::data::read_through;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A mounted folder; unmounted when dropped.
pub(super) struct SlowMount {
    pub(super) path: PathBuf,
    backing: PathBuf,
    server: Child,
}

impl SlowMount {
    /// Mounts `backing` with `latency_us` added to each read.
    pub(super) fn new(program: &Path, backing: &Path, latency_us: u64) -> Result<Self, String> {
        let path = backing.with_extension(format!("slow-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let server = Command::new(program)
            .arg("--backing")
            .arg(backing)
            .arg("--mount")
            .arg(&path)
            .args(["--latency-us", &latency_us.to_string(), "--buffer-writes"])
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot run {}: {e} (slow storage: --slowfs BIN)", program.display()))?;
        let mount = SlowMount { path, backing: backing.to_path_buf(), server };
        let until = Instant::now() + Duration::from_secs(10);
        while !mount.path.join("CURRENT").exists() {
            if Instant::now() > until {
                return Err(format!("{} did not mount {}", program.display(), mount.path.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(mount)
    }

    /// Reads the backing files into the page cache, so that a read through the mount takes only the
    /// configured latency.
    pub(super) fn warm(&self) -> Result<(), String> {
        read_through(&self.backing)
    }
}

impl Drop for SlowMount {
    fn drop(&mut self) {
        // Errors are ignored because `drop` cannot return them; a folder that remains fails the
        // next run.
        let _ = Command::new("fusermount3").arg("-u").arg(&self.path).status();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir(&self.path);
    }
}
