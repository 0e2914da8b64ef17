//! Values from the bytes of DUMP into the store, for RESTORE and for imports.
//!
//! In: the bytes of a value without their footer. Out: writes of an [`Access`]. A value is checked
//! as a whole before anything of it is written.

use super::dump_streams::{self, BYTES_OF_WRITE, Parts, bad_format, too_many};
use super::pace::Pace;
use super::zsets::score_argument;
use crate::rdb::{BadPayload, Field, Reader, StreamReader, Type};
use crate::store::{Access, Key, Kind, Lifetime, Millis, ScoreRule, Scored, Side};
use crate::wrong::Wrong;
use std::collections::BTreeMap;

/// Maximum number of elements that are written by one call, and of their bytes.
const ELEMENTS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 1 << 20;

/// Reads a whole value, so that nothing is written of one that is damaged, or whose writes would
/// take more than `at_most` bytes of memory. Returns its type.
pub(crate) async fn check(body: &[u8], at_most: usize) -> Result<Kind, Wrong> {
    if let Some(reader) = StreamReader::new(body).map_err(bad_format)? {
        return dump_streams::check(reader, at_most).await.map(|()| Kind::Stream);
    }
    let mut bytes = 0;
    let (mut reader, mut pace) = (Reader::new(body).map_err(bad_format)?, Pace::default());
    let (has_scores, mut is_score) = (reader.of() == Type::SortedSet, false);
    while reader.of() == Type::ExpiringHash {
        let Some(field) = reader.next_field().map_err(bad_format)? else { return Ok(Kind::Hash) };
        bytes += field.name.len() + field.value.len() + 2 * BYTES_OF_WRITE;
        if bytes > at_most {
            return Err(too_many());
        }
        pace.step().await;
    }
    while let Some(part) = reader.next().map_err(bad_format)? {
        if has_scores && is_score {
            score(&part)?;
        }
        is_score = !is_score;
        bytes += part.len() + BYTES_OF_WRITE;
        if bytes > at_most {
            return Err(too_many());
        }
        pace.step().await;
    }
    Ok(match reader.of() {
        Type::String => Kind::String,
        Type::List => Kind::List,
        Type::Set => Kind::Set,
        Type::Hash | Type::ExpiringHash => Kind::Hash,
        Type::SortedSet => Kind::SortedSet,
        Type::Stream => Kind::Stream,
    })
}

/// Parses the score of a member.
fn score(part: &[u8]) -> Result<f64, Wrong> {
    score_argument(part).map_err(|_| bad_format(BadPayload))
}

/// Writes a value that was checked to a key that is absent, with an expiry that has not come. With
/// `part` a collection is committed whenever its writes take that many bytes, so that its size is
/// not limited by the memory; others may then see a part of it.
pub(crate) async fn write(
    access: &mut Access,
    key: &Key,
    body: &[u8],
    expiry: Option<Millis>,
    part: Option<usize>,
) -> Result<(), Wrong> {
    let parts = Parts { bytes: part, expiry };
    if let Some(reader) = StreamReader::new(body).map_err(bad_format)? {
        dump_streams::restore(access, key, reader, parts).await?;
        return parts.set_expiry(access, key).await;
    }
    let mut reader = Reader::new(body).map_err(bad_format)?;
    match reader.of() {
        Type::String => {
            let text = reader.next().map_err(bad_format)?.unwrap_or_default();
            let lifetime = expiry.map_or(Lifetime::Forever, Lifetime::Until);
            return access.set_string(key, &text, lifetime).await;
        }
        Type::ExpiringHash => write_fields(access, key, &mut reader, parts).await?,
        _ => write_collection(access, key, &mut reader, parts).await?,
    }
    parts.set_expiry(access, key).await
}

/// Writes the fields of a hash with their expiries, as far as these have not come.
async fn write_fields(
    access: &mut Access,
    key: &Key,
    reader: &mut Reader<'_>,
    of: Parts,
) -> Result<(), Wrong> {
    let (mut pace, now) = (Pace::default(), access.now());
    loop {
        // The last of a name counts.
        let (mut fields, mut bytes, mut steps) = (BTreeMap::new(), 0, 0);
        while steps < ELEMENTS_AT_ONCE && bytes < BYTES_AT_ONCE {
            let Some(Field { name, value, expiry }) = reader.next_field().map_err(bad_format)? else { break };
            (bytes, steps) = (bytes + name.len() + value.len(), steps + 1);
            fields.insert(name, (value, expiry));
        }
        if steps == 0 {
            return Ok(());
        }
        let is_over = |expiry: &Option<Millis>| expiry.is_some_and(|at| at <= now);
        let over = fields.iter().filter(|(_, (_, expiry))| is_over(expiry));
        let over: Vec<Vec<u8>> = over.map(|(name, _)| name.to_vec()).collect();
        let living = fields.iter().filter(|(_, (_, expiry))| !is_over(expiry));
        let living = living.map(|(name, (value, expiry))| {
            (&name[..], &value[..], expiry.map_or(Lifetime::Forever, Lifetime::Until))
        });
        access.put_elements_each(key, Kind::Hash, living).await?;
        // Those of their names that came before.
        if !over.is_empty() {
            access.delete_elements(key, Kind::Hash, &over).await?;
        }
        if of.is_full(access) {
            of.commit(access, key).await?;
        }
        pace.steps(steps).await;
    }
}

/// Writes the elements of any other collection.
async fn write_collection(
    access: &mut Access,
    key: &Key,
    reader: &mut Reader<'_>,
    of: Parts,
) -> Result<(), Wrong> {
    let mut pace = Pace::default();
    loop {
        let (mut parts, mut bytes) = (Vec::new(), 0);
        // Pairs are not torn.
        while parts.len() < ELEMENTS_AT_ONCE && bytes < BYTES_AT_ONCE || parts.len() % 2 == 1 {
            let Some(part) = reader.next().map_err(bad_format)? else { break };
            bytes += part.len();
            parts.push(part);
        }
        if parts.is_empty() {
            break;
        }
        match reader.of() {
            Type::List => drop(access.list_push(key, Side::Right, &parts).await?),
            Type::Set => {
                let members = parts.iter().map(|member| (&member[..], &[][..]));
                access.put_elements(key, Kind::Set, members).await?;
            }
            Type::SortedSet => {
                let pairs = parts.as_chunks().0.iter();
                let pairs = pairs.map(|[member, text]| Ok((member.to_vec(), score(text)?)));
                let pairs: Vec<Scored> = pairs.collect::<Result<_, Wrong>>()?;
                access.put_scores(key, &pairs, ScoreRule::default()).await?;
            }
            _ => {
                let pairs = parts.as_chunks().0.iter().map(|[field, value]| (&field[..], &value[..]));
                access.put_elements(key, Kind::Hash, pairs).await?;
            }
        }
        if of.is_full(access) {
            of.commit(access, key).await?;
        }
        pace.steps(parts.len()).await;
    }
    Ok(())
}
