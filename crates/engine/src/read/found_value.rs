//! The entry that ends a search for a key, and the value that a reader gets for it.
//!
//! In: an entry's value as it is stored: the value itself, a reference into a blob file, or a
//! wide-column entity. Out: the pinned value that a reader gets.

use super::View;
use karst_base::error::{Error, ErrorKind, Result, Shown};
use karst_format::wide_column::{self, DefaultColumn};
use karst_storage::blob::BlobNeed;
use karst_storage::block::BlockRef;
use karst_storage::table::context::ReadCtx;
use karst_storage::table::needs::{Needs, Stop};
use karst_storage::value::Value;

/// The entry below the merge operands; without operands, the answer.
#[derive(Debug)]
pub(super) enum Base {
    /// A deletion, or no older entry.
    Nothing,
    Value(Value),
    /// The reference to a value in a blob file.
    Blob(Value),
    /// A wide-column entity; its default column is the value.
    Entity(Value),
}

/// Returns a blob value; stops while it is not in memory.
pub(super) fn read_blob(ctx: &ReadCtx<'_>, needs: &mut Needs, need: BlobNeed) -> Result<BlockRef, Stop> {
    let key = need.key();
    let value = needs.blob(ctx, need)?;
    needs.release_key(key);
    Ok(value)
}

/// Returns the value of `base`; `read_blob` stops if a blob file has to be read.
pub(super) fn existing_value(
    view: &View<'_>,
    user_key: &[u8],
    base: &Base,
    read_blob: impl FnOnce(BlobNeed) -> Result<BlockRef, Stop>,
) -> Result<Option<Value>, Stop> {
    let blob = |reference: &[u8]| -> Result<Value, Stop> {
        let need = BlobNeed::new(view.ctx.blobs(), view.version(), user_key, reference)?;
        Ok(Value::whole_blob(read_blob(need)?))
    };
    Ok(match base {
        Base::Nothing => None,
        Base::Value(value) => Some(value.clone()),
        Base::Blob(reference) => Some(blob(reference)?),
        Base::Entity(entity) => Some(match default_column(entity, user_key)? {
            DefaultColumn::Absent => Value::empty(),
            DefaultColumn::Inline(range) => entity.slice(range),
            DefaultColumn::Blob(range) => blob(&entity[range])?,
        }),
    })
}

#[cold]
fn default_column(entity: &[u8], user_key: &[u8]) -> Result<DefaultColumn> {
    wide_column::default_column(entity).map_err(|c| {
        Error::with_source(
            ErrorKind::Corruption,
            format!("wide-column entity of key {}: {c}", Shown(user_key)),
            c,
        )
    })
}

/// Cuts the write time off a timed put's value, where it is packed behind the value.
#[cold]
pub(super) fn without_packed_seqno(value: &Value) -> Result<Value> {
    match value.len().checked_sub(size_of::<u64>()) {
        Some(end) => Ok(value.slice(0..end)),
        None => Err(Error::new(
            ErrorKind::Corruption,
            format!(
                "timed value of {} bytes is shorter than the sequence number packed into it",
                value.len()
            ),
        )),
    }
}
