//! The device's own limit: fio with io_uring on the same files, at the same depth, request size and
//! alignment.

use super::measure::Figures;
use std::path::Path;
use std::process::Command;

/// One fio job.
pub(super) struct Job<'a> {
    /// Folder whose files with one of `endings` are read.
    pub(super) folder: &'a Path,
    pub(super) endings: &'a [&'a str],
    pub(super) sequential: bool,
    pub(super) direct: bool,
    /// Threads, each with a ring and `depth` reads in flight of its own.
    pub(super) threads: usize,
    pub(super) depth: usize,
    /// Reads per submission, and completions waited for at a time.
    pub(super) batch: usize,
    pub(super) request_bytes: usize,
    pub(super) align_bytes: usize,
    pub(super) seconds: f64,
}

impl Job<'_> {
    pub(super) fn run(&self) -> Result<Figures, String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))? {
            let entry = entry.map_err(|e| e.to_string())?;
            let name = entry.path().display().to_string();
            let long = entry.metadata().map_err(|e| e.to_string())?.len() > 4 * self.request_bytes as u64;
            if long && self.endings.iter().any(|ending| name.ends_with(ending)) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return Err(format!("{}: no files to read", self.folder.display()));
        }
        let output = Command::new("fio")
            .arg("--name=same-files")
            .arg(format!("--filename={}", names.join(":")))
            .arg(format!("--rw={}", if self.sequential { "read" } else { "randread" }))
            .arg(format!("--direct={}", u8::from(self.direct)))
            .arg("--ioengine=io_uring")
            .arg(format!("--numjobs={}", self.threads))
            .arg("--group_reporting")
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--iodepth_batch_submit={}", self.batch))
            .arg(format!("--iodepth_batch_complete_min={}", self.batch))
            .arg(format!("--bs={}", self.request_bytes))
            .arg(format!("--blockalign={}", self.align_bytes))
            .arg(format!("--runtime={}", self.seconds.ceil()))
            .args(["--time_based", "--readonly", "--norandommap", "--randrepeat=0", "--output-format=json"])
            .output()
            .map_err(|e| format!("cannot run fio (apt-get install fio): {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let read = text.split("\"read\" : {").nth(1);
        let number = |text: Option<&str>, name: &str| -> Option<f64> {
            let rest = text?.split(&format!("\"{name}\" : ")).nth(1)?;
            rest.split([',', '\n', '}']).next()?.trim().parse().ok()
        };
        let parsed = (|| {
            let rate = number(read, "iops")?;
            let total = number(read, "total_ios")?;
            let bytes = number(read, "io_bytes")?;
            let seconds = number(read, "runtime")? / 1000.0;
            // fio's percentages are of the run time of all threads together.
            let percent = self.threads as f64 * seconds * 1e4;
            let user = number(Some(&text), "usr_cpu")? * percent;
            let system = number(Some(&text), "sys_cpu")? * percent;
            Some(Figures {
                operations: rate * seconds,
                seconds,
                user_us: user,
                system_us: system,
                reads: Some(total),
                bytes: Some(bytes),
                ..Figures::default()
            })
        })();
        parsed.ok_or_else(|| format!("fio said: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Returns the longest time of one buffered append of 4 KiB, in milliseconds, at
/// `bytes_per_second`. Appends to a file in `folder`, which is created and removed.
pub(super) fn worst_write_ms(folder: &Path, bytes_per_second: f64, seconds: f64) -> Result<f64, String> {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(folder).map_err(io)?;
    let output = Command::new("fio")
        .arg("--name=append")
        .arg(format!("--directory={}", folder.display()))
        .arg(format!("--rate={}", bytes_per_second.max(4096.0) as u64))
        .arg(format!("--runtime={}", seconds.ceil()))
        .args(["--rw=write", "--bs=4096", "--ioengine=psync", "--direct=0", "--size=1g", "--time_based"])
        .args(["--fallocate=none", "--output-format=json"])
        .output()
        .map_err(|e| format!("cannot run fio (apt-get install fio): {e}"))?;
    std::fs::remove_dir_all(folder).map_err(io)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let worst = (|| {
        let latencies = text.split("\"write\" : {").nth(1)?.split("\"lat_ns\" : {").nth(1)?;
        let rest = latencies.split("\"max\" : ").nth(1)?;
        rest.split([',', '\n', '}']).next()?.trim().parse::<f64>().ok()
    })();
    worst
        .map(|ns| ns / 1e6)
        .ok_or_else(|| format!("fio said: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
