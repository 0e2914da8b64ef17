//! Copying files, and directories that are there whole or not at all.
//!
//! In: files to copy, and where. Out: their copies, durable, with a checksum; a directory that gets
//! its name when all of it is durable.
//!
//! This code blocks, so it runs in jobs on threads that may block. Such a job runs to its end, and
//! removes what is not to stay, even if its caller is gone.

use karst_base::error::{Error, ErrorKind, Result};
use karst_base::sync::atomic::{AtomicBool, Ordering};
use karst_format::file_name::FileName;
use karst_io::{Env, FileLock, OpenOptions, block_on, report};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How files are copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Bytes that are read and written at a time.
    pub(crate) chunk_bytes: usize,
    /// What is written is durable, but for its name.
    pub(crate) sync: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Manner { chunk_bytes: 1 << 20, sync: true }
    }
}

/// Whether a job is to end before it is done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Halt {
    own: Arc<AtomicBool>,
    /// It is to end with this too.
    of_all: Option<Arc<AtomicBool>>,
}

impl Halt {
    /// One that is stopped by itself, and when this is.
    pub(crate) fn child(&self) -> Halt {
        Halt { own: Arc::default(), of_all: Some(self.own.clone()) }
    }

    /// Has the job end.
    pub(crate) fn stop(&self) {
        // Ordering: nothing is told with it.
        self.own.store(true, Ordering::Relaxed);
    }

    /// Goes on unless it is to end.
    ///
    /// # Errors
    /// `Incomplete`: it is.
    pub(crate) fn check(&self) -> Result<()> {
        let is_stopped = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        match is_stopped(&self.own) || self.of_all.as_ref().is_some_and(is_stopped) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Incomplete, "copying was stopped")),
        }
    }
}

/// Has a job end when whoever waits for it is given up.
pub(crate) struct GivenUp(pub(super) Halt);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Has a thread that may block do `work`, which ends soon if the future is dropped.
pub(crate) async fn run<T: Send + 'static>(
    env: &Env,
    stop: Halt,
    work: impl FnOnce(&Env, &Halt) -> Result<T> + Send + 'static,
) -> Result<T> {
    let _waits = GivenUp(stop.clone());
    env.run_blocking(move |env| work(env, &stop)).await
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

/// Hands the bytes of a file from its beginning to `take`, `bytes` of them or all there are, and
/// gives their checksum. Blocks.
///
/// # Errors
/// It cannot be read; `Corruption`: it is shorter; what `take` says; it was stopped.
pub(crate) fn read(
    env: &Env,
    path: &Path,
    bytes: Option<u64>,
    stop: &Halt,
    take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Copied> {
    read_in(env, path, bytes, (stop, Manner::default().chunk_bytes), take)
}

/// The same, with so many bytes at a time.
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

/// Copies a file, `bytes` of it or all. The copy is durable but for its name. `moved` is shown
/// each stretch before it is written. Blocks.
///
/// # Errors
/// As [`read`], and the copy cannot be written; then it may be there in part.
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

/// The same in another manner.
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

/// Gives a file a second name, or copies it where there can be none. Blocks.
///
/// # Errors
/// As [`copy`], or something has that name.
pub(crate) fn link_or_copy(env: &Env, from: &Path, to: &Path, stop: &Halt) -> Result<()> {
    match env.fs().link(from, to) {
        Err(e) if e.is_link_unsupported() => copy(env, from, to, None, stop, |_| {}).map(drop),
        linked => Ok(linked?),
    }
}

/// Writes a file. It is durable but for its name. Blocks.
pub(crate) fn write(env: &Env, to: &Path, bytes: &[u8]) -> Result<()> {
    write_in(env, to, bytes, Manner::default())
}

/// The same in another manner.
pub(crate) fn write_in(env: &Env, to: &Path, bytes: &[u8], manner: Manner) -> Result<()> {
    let mut file = env.fs().create(to)?;
    file.append(bytes)?;
    match manner.sync {
        true => Ok(file.sync()?),
        false => Ok(()),
    }
}

/// A directory that is being made under another name, and is gone unless it is finished.
#[derive(Debug)]
pub(crate) struct Staging {
    env: Env,
    directory: PathBuf,
    temporary: PathBuf,
    /// Where its files are at the moment, if they are to be removed.
    unfinished: Option<PathBuf>,
    _lock: Box<dyn FileLock>,
}

impl Staging {
    /// Begins with an empty directory beside `directory`, which must not be there. What is left of
    /// an earlier attempt is removed if its LOCK names `directory`. Blocks.
    ///
    /// # Errors
    /// `InvalidArgument`: the directory is there, or has no name, or what has the other name is not
    /// of an earlier attempt. `NotFound`: there is no parent. `Locked`: it is being made.
    pub(crate) fn begin(env: &Env, directory: &Path) -> Result<Staging> {
        let fs = env.fs();
        refuse_existing(env, directory)?;
        let name = directory.file_name().ok_or_else(|| {
            Error::invalid_argument(format!("{}: this names no directory to make", directory.display()))
        })?;
        if !fs.metadata(parent(directory))?.is_dir {
            let text = format!("{}: its parent is no directory", directory.display());
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
            // Why no more: with somebody else's files in it, it stays.
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

    /// Where a file of it is to be.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temporary.join(name)
    }

    /// The same without LOCK in it, for what is no database.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(crate) fn finish_without_lock(self) -> Result<()> {
        let (fs, lock) = (self.env.fs().clone(), self.directory.join(FileName::Lock.to_string()));
        self.finish()?;
        // Why only now: without it another one could begin in the same place. Why its outcome does
        // not matter: it harms nobody there.
        let _ = fs.remove(&lock);
        Ok(())
    }

    /// Makes it durable and gives it its name. Blocks.
    ///
    /// # Errors
    /// It cannot be; nothing is left of it then.
    pub(crate) fn finish(mut self) -> Result<()> {
        let fs = self.env.fs().clone();
        // Invariant: before it has its name; so what has the name is whole.
        fs.sync_dir(&self.temporary)?;
        fs.rename(&self.temporary, &self.directory)?;
        self.unfinished = Some(self.directory.clone());
        fs.sync_dir(parent(&self.directory))?;
        // Because the directory can be renamed later, even to the name of an unfinished copy.
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
            // Why it goes last: without it another one could begin in the same place. Why CURRENT
            // goes first: should the rest not go, it may have its name already, and is no database.
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

/// The directory that it is in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses a directory that is there. Blocks.
///
/// # Errors
/// `InvalidArgument`: it is.
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

/// Refuses a directory with files that are not of an unfinished copy, whose LOCK has `text`.
///
/// Other files are refused, because a closed database can have that name.
fn check_remains(env: &Env, directory: &Path, text: &[u8]) -> Result<()> {
    let names = env.fs().list_dir(directory)?;
    let lock = FileName::Lock.to_string();
    let is_its = names.contains(&lock) && env.fs().read_file(&directory.join(&lock))? == text;
    let is_foreign = |name: &&String| **name != lock && !(is_its && FileName::parse(name).is_some());
    match names.iter().find(is_foreign) {
        Some(name) => {
            let text =
                format!("{}: in the way, and not of an unfinished copy", directory.join(name).display());
            Err(Error::invalid_argument(text))
        }
        None => Ok(()),
    }
}
