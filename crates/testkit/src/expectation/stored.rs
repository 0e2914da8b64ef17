//! An [`Expectation`] as bytes: counts and lengths as little-endian u32, strings and keys
//! length-prefixed. Read back by the build that wrote it, from its own folder; damage is still an
//! error.

use super::{Expectation, FamilyExpectation, Walk};
use crate::subject::{Move, ReadSettings};

const MAGIC: &[u8; 8] = b"karstex1";
const NOWHERE: u32 = u32::MAX;

impl Expectation {
    /// Returns the bytes of a file for [`Expectation::decode`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_count(&mut out, self.families.len());
        for family in &self.families {
            put_bytes(&mut out, family.name.as_bytes());
            put_count(&mut out, family.entries.len());
            for (key, value) in &family.entries {
                put_bytes(&mut out, key);
                put_bytes(&mut out, value);
            }
            put_count(&mut out, family.absent.len());
            family.absent.iter().for_each(|key| put_bytes(&mut out, key));
            put_count(&mut out, family.walks.len());
            for walk in &family.walks {
                put_option(&mut out, walk.settings.lower_bound.as_deref());
                put_option(&mut out, walk.settings.upper_bound.as_deref());
                out.push(u8::from(walk.settings.prefix_same_as_start));
                put_count(&mut out, walk.steps.len());
                for (step, at) in &walk.steps {
                    put_move(&mut out, step);
                    out.extend_from_slice(&at.unwrap_or(NOWHERE).to_le_bytes());
                }
            }
        }
        out
    }

    /// Decodes the output of [`Expectation::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut input = Input { rest: bytes };
        if input.take(MAGIC.len())? != MAGIC {
            return Err("not an expectation".into());
        }
        let mut families = Vec::new();
        for _ in 0..input.count()? {
            let name = String::from_utf8(input.bytes()?.to_vec()).map_err(|e| e.to_string())?;
            let mut family = FamilyExpectation { name, ..Default::default() };
            for _ in 0..input.count()? {
                family.entries.push((input.bytes()?.to_vec(), input.bytes()?.to_vec()));
            }
            for _ in 0..input.count()? {
                family.absent.push(input.bytes()?.to_vec());
            }
            for _ in 0..input.count()? {
                let settings = ReadSettings {
                    lower_bound: input.option()?,
                    upper_bound: input.option()?,
                    prefix_same_as_start: input.take(1)?[0] != 0,
                };
                let mut steps = Vec::new();
                for _ in 0..input.count()? {
                    let step = input.step()?;
                    let at = Some(input.count()?).filter(|at| *at != NOWHERE);
                    if at.is_some_and(|at| at as usize >= family.entries.len()) {
                        return Err("a walk leads outside the entries".into());
                    }
                    steps.push((step, at));
                }
                family.walks.push(Walk { settings, steps });
            }
            families.push(family);
        }
        if !input.rest.is_empty() {
            return Err(format!("{} bytes too many", input.rest.len()));
        }
        Ok(Expectation { families })
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a test database has fewer than 2^32 of anything");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_option(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    put_bytes(out, bytes.unwrap_or_default());
}

fn put_move(out: &mut Vec<u8>, step: &Move) {
    let (tag, key): (u8, &[u8]) = match step {
        Move::First => (0, &[]),
        Move::Last => (1, &[]),
        Move::Seek(key) => (2, key),
        Move::SeekForPrev(key) => (3, key),
        Move::Next => (4, &[]),
        Move::Prev => (5, &[]),
    };
    out.push(tag);
    put_bytes(out, key);
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("an expectation ends early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn count(&mut self) -> Result<u32, String> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| "four bytes were taken")?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let len = self.count()?;
        self.take(len as usize)
    }

    fn option(&mut self) -> Result<Option<Vec<u8>>, String> {
        let present = self.take(1)?[0] != 0;
        let bytes = self.bytes()?;
        Ok(present.then(|| bytes.to_vec()))
    }

    fn step(&mut self) -> Result<Move, String> {
        let tag = self.take(1)?[0];
        let key = self.bytes()?.to_vec();
        Ok(match tag {
            0 => Move::First,
            1 => Move::Last,
            2 => Move::Seek(key),
            3 => Move::SeekForPrev(key),
            4 => Move::Next,
            5 => Move::Prev,
            other => return Err(format!("no move {other}")),
        })
    }
}
