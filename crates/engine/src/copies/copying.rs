//! Copying files, and creating directories atomically.
//!
//! In: files to copy, and destinations. Out: their copies, durable, with a checksum; a directory
//! that gets its name when all of it is durable.
//!
//! This code blocks, so it runs in jobs on threads that may block. Such a job runs to its end, and
//! removes temporary files, even if its caller is gone.

use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_format::file_name::FileName;
use karst_io::{Env, FileLock, OpenOptions, block_on, report};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parameters of file copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Bytes per read and write.
    pub(crate) chunk_bytes: usize,
    /// Sync the content of a file, but not its name.
    pub(crate) sync: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Manner { chunk_bytes: 1 << 20, sync: true }
    }
}

/// Stop flag of a job, possibly with a parent's flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halt {
    own: Arc<AtomicBool>,
    /// Flag of the parent, which stops this job too.
    of_all: Option<Arc<AtomicBool>>,
}

impl Halt {
    /// Returns a flag that stops on its own, and with `self`.
    pub(crate) fn child(&self) -> Halt {
        Halt { own: Arc::default(), of_all: Some(self.own.clone()) }
    }

    /// Stops the job.
    pub(crate) fn stop(&self) {
        // Ordering: the flag publishes no other data.
        self.own.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the job has to stop.
    ///
    /// # Errors
    /// `Incomplete`: it has to.
    pub(crate) fn check(&self) -> Result<()> {
        let is_stopped = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        match is_stopped(&self.own) || self.of_all.as_ref().is_some_and(is_stopped) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Incomplete, "copying was stopped")),
        }
    }
}

/// Stops a job when its waiting caller is dropped.
pub(crate) struct GivenUp(pub(super) Halt);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `work` on a thread that may block; it ends soon if the future is dropped.
pub(crate) async fn run<T: Send + 'static>(
    env: &Env,
    stop: Halt,
    work: impl FnOnce(&Env, &Halt) -> Result<T> + Send + 'static,
) -> Result<T> {
    let _waits = GivenUp(stop.clone());
    env.run_blocking(move |env| work(env, &stop)).await
}

/// Result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

/// Passes the bytes of a file from its beginning to `take`, `bytes` of them or all, and returns
/// their checksum. Blocks.
///
/// # Errors
/// The file cannot be read; `Corruption`: it is too short; errors of `take`; the job was stopped.
pub(crate) fn read(
    env: &Env,
    path: &Path,
    bytes: Option<u64>,
    stop: &Halt,
    take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Copied> {
    read_in(env, path, bytes, (stop, Manner::default().chunk_bytes), take)
}

/// Implements [`read`] with chunks of `chunk_bytes`.
fn read_in(
    env: &Env,
    path: &Path,
    bytes: Option<u64>,
    (stop, chunk_bytes): (&Halt, usize),
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Copied> {
    let file = block_on(env, karst_io::open(env, path, OpenOptions::BUFFERED))?;
    let end = bytes.unwrap_or(file.size());
    let (mut at, mut crc32c) = (0, 0);
    while at < end {
        stop.check()?;
        let wanted = (end - at).min(chunk_bytes as u64) as usize;
        let chunk = block_on(env, karst_io::read(env, &file, at, wanted))?;
        if chunk.len() < wanted {
            let found = at + chunk.len() as u64;
            let text = format_args!("the file has {found} bytes, and should have {end}");
            return Err(Error::corruption_at(path, found, text));
        }
        crc32c = crc32c::crc32c_append(crc32c, &chunk);
        take(&chunk)?;
        at += wanted as u64;
    }
    Ok(Copied { bytes: end, crc32c })
}

/// Copies `bytes` of a file, or all. The copy's content is durable, its name is not. `moved` gets
/// each chunk before it is written. Blocks.
///
/// # Errors
/// Those of [`read`]; the copy cannot be written, and may then exist in part.
pub(crate) fn copy(
    env: &Env,
    from: &Path,
    to: &Path,
    bytes: Option<u64>,
    stop: &Halt,
    moved: impl FnMut(&[u8]),
) -> Result<Copied> {
    copy_in(env, from, to, bytes, (stop, Manner::default()), moved)
}

/// Copies a file with these parameters; see [`copy`].
pub(crate) fn copy_in(
    env: &Env,
    from: &Path,
    to: &Path,
    bytes: Option<u64>,
    (stop, manner): (&Halt, Manner),
    mut moved: impl FnMut(&[u8]),
) -> Result<Copied> {
    let mut file = env.fs().create(to)?;
    let copied = read_in(env, from, bytes, (stop, manner.chunk_bytes), |chunk| {
        moved(chunk);
        Ok(file.append(chunk)?)
    })?;
    if manner.sync {
        file.sync()?;
    }
    Ok(copied)
}

/// Creates a hard link to a file, or copies it if links are not supported. Blocks.
///
/// # Errors
/// Those of [`copy`], or the name exists.
pub(crate) fn link_or_copy(env: &Env, from: &Path, to: &Path, stop: &Halt) -> Result<()> {
    match env.fs().link(from, to) {
        Err(e) if e.is_link_unsupported() => copy(env, from, to, None, stop, |_| {}).map(drop),
        linked => Ok(linked?),
    }
}

/// Writes a file. Its content is durable, its name is not. Blocks.
pub(crate) fn write(env: &Env, to: &Path, bytes: &[u8]) -> Result<()> {
    write_in(env, to, bytes, Manner::default())
}

/// Writes a file with these parameters.
pub(crate) fn write_in(env: &Env, to: &Path, bytes: &[u8], manner: Manner) -> Result<()> {
    let mut file = env.fs().create(to)?;
    file.append(bytes)?;
    match manner.sync {
        true => Ok(file.sync()?),
        false => Ok(()),
    }
}

/// A directory under a temporary name, which is removed unless it is finished.
#[derive(Debug)]
pub(crate) struct Staging {
    env: Env,
    directory: PathBuf,
    temporary: PathBuf,
    /// Current path of its files, if they are to be removed.
    unfinished: Option<PathBuf>,
    _lock: Box<dyn FileLock>,
}

impl Staging {
    /// Creates an empty directory beside `directory`, which must not exist. Files of an earlier
    /// attempt are removed if its LOCK names `directory`. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: the directory exists, or has no name, or the temporary name is used by
    /// other files than those of an earlier attempt. `NotFound`: there is no parent. `Locked`: it
    /// is being created.
    pub(crate) fn begin(env: &Env, directory: &Path) -> Result<Staging> {
        let fs = env.fs();
        refuse_existing(env, directory)?;
        let name = directory.file_name().ok_or_else(|| {
            Error::invalid_argument(format!("{}: the path names no directory to create", directory.display()))
        })?;
        if !fs.metadata(parent(directory))?.is_dir {
            let text = format!("{}: the parent is not a directory", directory.display());
            return Err(Error::invalid_argument(text));
        }
        let mut temporary_name = name.to_owned();
        temporary_name.push(".tmp");
        let temporary = directory.with_file_name(temporary_name);
        let was_there = fs.exists(&temporary)?;
        let text = unfinished(env, directory);
        if was_there {
            check_remains(env, &temporary, &text)?;
        }
        fs.create_dir(&temporary)?;
        let locked = fs.lock(&temporary.join(FileName::Lock.to_string()));
        if locked.is_err() && !was_there {
            // Removes only the directory, which stays if it has foreign files.
            let _ = fs.remove_dir(&temporary);
        }
        let lock = locked.map_err(|e| match e.is_locked() {
            true => Error::from(e).with_advice(format!("{} is being made", directory.display())),
            false => Error::from(e),
        })?;
        let unfinished = Some(temporary.clone());
        let mut staging =
            Staging { env: env.clone(), directory: directory.to_owned(), temporary, unfinished, _lock: lock };
        // Again, because both may have changed before the lock was taken.
        check_remains(env, &staging.temporary, &text).inspect_err(|_| staging.unfinished = None)?;
        refuse_existing(env, directory)?;
        // Invariant: LOCK is durable before the first file is written.
        write(env, &staging.temporary.join(FileName::Lock.to_string()), &text)?;
        fs.sync_dir(&staging.temporary)?;
        for name in fs.list_dir(&staging.temporary)? {
            if FileName::parse(&name) != Some(FileName::Lock) {
                fs.remove(&staging.temporary.join(name))?;
            }
        }
        Ok(staging)
    }

    /// Returns the temporary path of a file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temporary.join(name)
    }

    /// Finishes the directory and removes its LOCK, for directories that are no database.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub(crate) fn finish_without_lock(self) -> Result<()> {
        let (fs, lock) = (self.env.fs().clone(), self.directory.join(FileName::Lock.to_string()));
        self.finish()?;
        // Only after the rename, because without it another attempt could begin in the same place.
        // The outcome is ignored, because a remaining LOCK is harmless there.
        let _ = fs.remove(&lock);
        Ok(())
    }

    /// Makes the directory durable and gives it its final name. Blocks.
    ///
    /// # Errors
    /// That fails; no files are left then.
    pub(crate) fn finish(mut self) -> Result<()> {
        let fs = self.env.fs().clone();
        // Invariant: synced before the rename, so a directory with the final name is complete.
        fs.sync_dir(&self.temporary)?;
        fs.rename(&self.temporary, &self.directory)?;
        self.unfinished = Some(self.directory.clone());
        fs.sync_dir(parent(&self.directory))?;
        // Clears LOCK, because the directory can be renamed later, even to an unfinished copy's
        // name.
        write(&self.env, &self.directory.join(FileName::Lock.to_string()), &[])?;
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Some(directory) = self.unfinished.take() else { return };
        let fs = self.env.fs();
        let remove = || {
            // LOCK is removed last, because without it another attempt could begin in the same
            // place. CURRENT is removed first, because the directory may have its final name
            // already, and is no database without it, even if other files stay.
            let lock = FileName::Lock.to_string();
            let mut names = fs.list_dir(&directory)?;
            names.sort_by_key(|name| FileName::parse(name) != Some(FileName::Current));
            for name in names.into_iter().filter(|name| *name != lock) {
                fs.remove(&directory.join(name))?;
            }
            fs.remove(&directory.join(lock))?;
            fs.remove_dir(&directory)
        };
        if let Err(error) = remove() {
            report!(warn, directory = %directory.display(), %error, "an unfinished copy could not be removed");
        }
    }
}

/// Returns the parent directory of `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns an error if the directory exists. Blocks.
///
/// # Errors
/// `InvalidArgument`: it exists.
pub(crate) fn refuse_existing(env: &Env, directory: &Path) -> Result<()> {
    match env.fs().exists(directory)? {
        true => Err(Error::invalid_argument(format!("{} exists already", directory.display()))),
        false => Ok(()),
    }
}

/// The LOCK of an unfinished copy that is to be `directory`.
fn unfinished(env: &Env, directory: &Path) -> Vec<u8> {
    let directory = env.fs().canonical(directory);
    [b"karstdb.unfinished\n", directory.as_os_str().as_encoded_bytes()].concat()
}

/// Returns an error if the directory has files other than those of an unfinished copy, whose LOCK
/// has `text`.
///
/// Other files are refused, because a closed database can have that name.
fn check_remains(env: &Env, directory: &Path, text: &[u8]) -> Result<()> {
    let names = env.fs().list_dir(directory)?;
    let lock = FileName::Lock.to_string();
    let is_its = names.contains(&lock) && env.fs().read_file(&directory.join(&lock))? == text;
    let is_foreign = |name: &&String| **name != lock && !(is_its && FileName::parse(name).is_some());
    match names.iter().find(is_foreign) {
        Some(name) => {
            let text = format!(
                "{}: the file exists, and is not part of an unfinished copy",
                directory.join(name).display()
            );
            Err(Error::invalid_argument(text))
        }
        None => Ok(()),
    }
}
