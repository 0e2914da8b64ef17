//! Linking or copying an external file into the database's directory.
//!
//! In: its path, and its new path. Out: a hard link, or a copy; its bytes are durable, and its name
//! is once the directory is synced.
//!
//! Invariant: this runs in a job that closing waits for, and ends soon when the database is being
//! closed. No bytes are written after the end of the job.

use crate::background::Background;
use karst_base::error::{Error, Result};
use karst_base::options::DbOptions;
use karst_io::{Env, FileWriter, OpenOptions, WriterOptions};
use std::path::Path;

/// Bytes copied per read.
const PIECE_BYTES: u64 = 1 << 20;

/// Method of bringing a file into the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Copy,
    /// A hard link.
    Link,
    /// A hard link, or a copy if links are not supported.
    LinkOrCopy,
}

/// Links or copies the file `from` to `to`, synced.
///
/// # Errors
/// The file cannot be read, linked, written or synced. A part of it may be at `to` then. `Closed`:
/// the database is being closed.
pub(crate) async fn bring(
    background: &Background,
    options: &DbOptions,
    (from, to): (&Path, &Path),
    way: Way,
) -> Result<()> {
    background.check_open()?;
    let env = background.env();
    if way != Way::Copy {
        let (first, second) = (from.to_owned(), to.to_owned());
        let fsync = options.use_fsync;
        let link = move |env: &Env| -> karst_io::Result<()> {
            env.fs().link(&first, &second)?;
            // The program that wrote the file may not have synced it.
            let file = env.fs().open_positional(&second)?;
            if fsync { file.sync_all() } else { file.sync() }
        };
        match env.run_blocking(link).await {
            Err(error) if error.is_link_unsupported() && way == Way::LinkOrCopy => {}
            linked => return Ok(linked?),
        }
    }
    let writing = WriterOptions { fsync: options.use_fsync, ..WriterOptions::default() };
    let mut copy = FileWriter::create(env, to, writing).await?;
    let copied = fill(background, from, &mut copy).await;
    // Finished after an error too, because writes in flight would reach the disk after the job's
    // end.
    let finished = copy.finish().await;
    copied?;
    finished?;
    Ok(())
}

async fn fill(background: &Background, from: &Path, copy: &mut FileWriter) -> Result<()> {
    let env = background.env();
    let file = karst_io::open(env, from, OpenOptions::BUFFERED).await?;
    let mut at = 0;
    while at < file.size() {
        background.check_open()?;
        let bytes = karst_io::read(env, &file, at, PIECE_BYTES as usize).await?;
        if bytes.is_empty() {
            return Err(Error::corruption_at(from, at, "the file has become shorter"));
        }
        at += bytes.len() as u64;
        copy.append(bytes.to_vec()).await?;
    }
    copy.sync().await?;
    Ok(())
}
