//! Concurrent reads of parts of one file.
//!
//! In: futures, or spans of a file. Out: their results, in order; and the error for a file that
//! ended too early.

use crate::budget;
use crate::open_files::Shared;
use karst_base::error::{Error, Result};
use karst_base::stats::Ticker;
use karst_io::RandomAccessFile;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Size of a read in bytes, unless a block or record is larger.
pub(crate) const SPAN_BYTES: u64 = 512 << 10;
/// Number of concurrent reads of that size; up to sixteen times as many if they are shorter.
const SPANS: u64 = 4;

/// Splits the bytes of a file from `start` to `end` into spans for [`read_spans`].
pub(crate) fn spans(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (start..end).step_by(SPAN_BYTES as usize);
    starts.map(move |start| (start, end.min(start + SPAN_BYTES)))
}

/// Reads spans of a file (start included, end excluded), a few at the same time, and passes each to
/// `visit`, in order, with its start.
///
/// # Errors
/// The file cannot be read, or ends before a span does; those of `visit`.
pub(crate) async fn read_spans(
    shared: &Shared,
    file: &Arc<dyn RandomAccessFile>,
    spans: impl IntoIterator<Item = (u64, u64)>,
    mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut spans = spans.into_iter().peekable();
    while let Some(first) = spans.next() {
        let (mut some, mut bytes) = (vec![first], first.1 - first.0);
        while let Some((start, end)) =
            spans.next_if(|(start, end)| some.len() < 64 && bytes + (end - start) <= SPANS * SPAN_BYTES)
        {
            some.push((start, end));
            bytes += end - start;
        }
        let _charge = shared.charge(budget::READS, bytes as usize);
        let read =
            |(start, end): &(u64, u64)| karst_io::read(&shared.env, file, *start, (end - start) as usize);
        let mut reads: Vec<_> = some.iter().map(read).collect();
        for ((start, end), read) in some.iter().zip(join_all(&mut reads).await) {
            let read = read?;
            if read.len() as u64 != end - start {
                return Err(short(file, *start, end - start, read.len()));
            }
            shared.stats.record(Ticker::VerifyChecksumReadBytes, read.len() as u64);
            visit(*start, &read)?;
        }
    }
    Ok(())
}

/// Returns the error for a file that ended inside a read.
pub fn short(file: &Arc<dyn RandomAccessFile>, start: u64, wanted: u64, got: usize) -> Error {
    Error::corruption_at(file.path(), start, format_args!("file ends {got} bytes on, {wanted} were expected"))
}

/// Polls all futures together; returns their results in order.
pub(crate) async fn join_all<F: Future + Unpin>(futures: &mut [F]) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().map(|result| result.expect("all are ready")).collect()
}
