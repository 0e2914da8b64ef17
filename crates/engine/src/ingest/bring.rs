//! A file from outside comes into the database's directory.
//!
//! In: its path, and the one that it gets. Out: a second name for it, or a copy; its bytes are
//! durable, and its name is once the directory is synced.
//!
//! Invariant: it is a part of a job that closing waits for, and ends soon when the database is
//! being closed. Nothing is written behind the end of the job.

use crate::background::Background;
use karst_base::error::{Error, Result};
use karst_base::options::DbOptions;
use karst_io::{Env, FileWriter, OpenOptions, WriterOptions};
use std::path::Path;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// By which way a file comes into the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Copy,
    /// By a second name.
    Link,
    /// By a second name, or by a copy where it can have none.
    LinkOrCopy,
}

/// Has the file `from`, synced, at `to` too.
///
/// # Errors
/// It cannot be read, linked, written or synced. A part of it may be at `to` then. `Closed`: the
/// database is being closed.
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
    // Also after an error, because writes in flight would reach the disk behind the end of the job.
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
