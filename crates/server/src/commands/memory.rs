//! MEMORY, and its estimate of the bytes that a key takes.
//!
//! Values are on the disk, so that the number is of what is stored before compression: the key's
//! record, and for a collection its elements with their keys. Those of a large collection are
//! estimated by some of them, as Redis does it.

use super::table::Id;
use super::{Call, containers, operation, streams};
use crate::numbers::integer_argument;
use crate::store::Kind;
use crate::wrong::Wrong;

/// Number of elements that the estimate reads without SAMPLES, and at most.
const SAMPLES: u64 = 5;
const SAMPLES_AT_MOST: u64 = 10_000;
/// Bytes of a key's record beside its name and value: database, type, expiry, version and count.
const RECORD: u64 = 40;
/// Bytes of an element's key beside its name: the version of its collection, and a list's position.
const ELEMENT: u64 = 16;

pub(super) async fn memory(call: &mut Call<'_>) -> Result<(), Wrong> {
    match &*call.word(1) {
        "help" => containers::help(call, Id::Memory),
        "stats" => operation::memory_stats(call),
        "doctor" => operation::memory_report(call),
        "malloc-stats" => call.out.verbatim("Stats not supported for the current allocator"),
        _ => return usage(call).await,
    }
    Ok(())
}

async fn usage(call: &mut Call<'_>) -> Result<(), Wrong> {
    let samples = match call.args.len() {
        3 => SAMPLES,
        5 if call.is(3, "samples") => match integer_argument(&call.args[4])? {
            0 => SAMPLES_AT_MOST,
            number @ 1.. => number.unsigned_abs().min(SAMPLES_AT_MOST),
            _ => return Err(Wrong::syntax()),
        },
        _ => return Err(Wrong::syntax()),
    };
    call.access.pin();
    let key = call.key(2);
    let Some(kind) = call.access.kind(&key).await? else {
        call.out.null();
        return Ok(());
    };
    let value = match kind {
        Kind::String => call.access.string(&key).await?.map_or(0, |value| value.len() as u64),
        Kind::Stream => streams::memory(call, samples, ELEMENT).await?,
        kind => {
            let count = call.access.length(&key, kind).await?;
            let lengths: Vec<u64> = if kind == Kind::List {
                let read = call.access.list_range(&key, 0..samples.min(count)).await?;
                read.iter().map(|element| element.len() as u64).collect()
            } else {
                let (_, read) = call.access.scan_elements(&key, kind, 0, samples as usize).await?;
                read.iter().map(|(name, value)| (name.len() + value.len()) as u64).collect()
            };
            let (sum, read) = (lengths.iter().sum::<u64>(), lengths.len().max(1) as u64);
            count.saturating_mul(ELEMENT + sum / read)
        }
    };
    let bytes = RECORD + key.name.len() as u64 + value;
    call.out.integer(i64::try_from(bytes).unwrap_or(i64::MAX));
    Ok(())
}
