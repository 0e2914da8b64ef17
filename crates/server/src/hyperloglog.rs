//! HyperLogLog: an estimate of the number of different elements, in the byte format that Redis
//! keeps in a string, so that values move between servers.
//!
//! In: strings of any bytes, and elements. Out: registers, estimates and strings. Nothing here
//! needs another module.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `HYLL` |
//! | 1 | 0: dense, 1: sparse |
//! | 3 | 0 |
//! | 8 | the last estimate, little-endian; the highest bit says that it is out of date |
//! | ... | dense: 16,384 registers of 6 bits each, from the lowest bit of the first byte on |
//! | ... | sparse: runs of equal registers, see [`Run`] |

/// Bits of a hash that choose the register.
const INDEX_BITS: u32 = 14;
/// Number of registers.
pub(crate) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that the registers are made from.
const RANK_BITS: u32 = 64 - INDEX_BITS;
/// Bits of a register.
const WIDTH: usize = 6;
const MAGIC: &[u8] = b"HYLL";
/// Length of what stands before the registers, in bytes.
const HEADER: usize = 16;
const DENSE_LENGTH: usize = HEADER + REGISTERS * WIDTH / 8;
/// Length in bytes above which registers are kept dense, as Redis has it by default.
const SPARSE_AT_MOST: usize = 3000;
/// Largest register that a sparse string can have.
const SPARSE_REGISTER_AT_MOST: u8 = 32;
/// Byte with the mark of an estimate that is out of date.
const STALE_AT: usize = 15;
const STALE: u8 = 0x80;
/// Seed of the hash function, which all servers share.
const SEED: u64 = 0xadc8_3b19;

/// Refusals of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRegisters {
    /// The string has no header of this format.
    NoHyperLogLog,
    /// The header is right, and the runs behind it are not.
    Corrupt,
}

/// A run of equal registers in a sparse string.
enum Run {
    /// `00nnnnnn`: n + 1 registers of 0; `01nnnnnn nnnnnnnn`: the same with 14 bits.
    Zeros(usize),
    /// `1vvvvvnn`: n + 1 registers of v + 1.
    Values(u8, usize),
}

/// The registers of one value.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Registers {
    values: Vec<u8>,
    is_dense: bool,
}

impl Registers {
    /// Registers of no element.
    pub(crate) fn new() -> Self {
        Self { values: vec![0; REGISTERS], is_dense: false }
    }

    /// Decodes a string.
    pub(crate) fn decode(text: &[u8]) -> Result<Self, BadRegisters> {
        let mut decoded = Self::new();
        let body = checked(text)?;
        decoded.is_dense = is_dense(text);
        match decoded.is_dense {
            true => decoded.unpack(body),
            false => decoded.expand(body).ok_or(BadRegisters::Corrupt)?,
        }
        Ok(decoded)
    }

    fn unpack(&mut self, body: &[u8]) {
        // Four registers are three bytes.
        for (four, bytes) in self.values.chunks_exact_mut(4).zip(body.chunks_exact(3)) {
            let bits = bytes.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
            for (number, register) in four.iter_mut().enumerate() {
                *register = (bits >> (WIDTH * number)) as u8 & 0x3f;
            }
        }
    }

    fn expand(&mut self, mut body: &[u8]) -> Option<()> {
        let mut rest = &mut self.values[..];
        while let Some((run, behind)) = first_run(body) {
            body = behind;
            let (value, length) = match run {
                Run::Zeros(length) => (0, length),
                Run::Values(value, length) => (value, length),
            };
            let (registers, more) = rest.split_at_mut_checked(length)?;
            registers.fill(value);
            rest = more;
        }
        (rest.is_empty() && body.is_empty()).then_some(())
    }

    /// Encodes them, with the mark that there is no estimate.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let is_small = self.values.iter().all(|register| *register <= SPARSE_REGISTER_AT_MOST);
        match is_small && !self.is_dense {
            true => self.sparse().unwrap_or_else(|| self.dense()),
            false => self.dense(),
        }
    }

    fn sparse(&self) -> Option<Vec<u8>> {
        let mut text = header(1);
        for run in self.values.chunk_by(|a, b| a == b) {
            let value = run.first().copied().unwrap_or(0);
            match (value, run.len()) {
                (0, length @ ..=64) => text.push((length - 1) as u8),
                (0, length) => text.extend((0x4000 | (length - 1) as u16).to_be_bytes()),
                (value, _) => {
                    text.extend(run.chunks(4).map(|run| 0x80 | (value - 1) << 2 | (run.len() - 1) as u8));
                }
            }
            if text.len() > SPARSE_AT_MOST {
                return None;
            }
        }
        Some(text)
    }

    fn dense(&self) -> Vec<u8> {
        let mut text = header(0);
        for four in self.values.chunks_exact(4) {
            let bits = four.iter().rev().fold(0u32, |bits, register| bits << WIDTH | u32::from(*register));
            text.extend(&bits.to_le_bytes()[..3]);
        }
        text
    }

    /// Adds an element. Returns true if a register has changed.
    pub(crate) fn add(&mut self, element: &[u8]) -> bool {
        let hash = hash(element);
        let rank = (hash >> INDEX_BITS | 1 << RANK_BITS).trailing_zeros() as u8 + 1;
        match self.values.get_mut((hash & (REGISTERS as u64 - 1)) as usize) {
            Some(register) if *register < rank => {
                *register = rank;
                true
            }
            _ => false,
        }
    }

    /// Adds the elements of another value.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.values.iter_mut().zip(&other.values).for_each(|(mine, other)| *mine = (*mine).max(*other));
        self.is_dense |= other.is_dense;
    }

    /// Estimates the number of different elements, by the method of Ertl ("New cardinality
    /// estimation algorithms for HyperLogLog sketches", algorithm 6).
    pub(crate) fn estimate(&self) -> u64 {
        let mut counts = [0u32; 1 << WIDTH];
        for register in &self.values {
            counts[usize::from(register & 0x3f)] += 1;
        }
        let registers = REGISTERS as f64;
        let count = |rank: u32| f64::from(counts[rank as usize]);
        let mut z = registers * tau((registers - count(RANK_BITS + 1)) / registers);
        for rank in (1..=RANK_BITS).rev() {
            z = (z + count(rank)) * 0.5;
        }
        z += registers * sigma(count(0) / registers);
        // 1 / (2 ln 2)
        let alpha = 0.721_347_520_444_481_7;
        (alpha * registers * registers / z).round() as u64
    }
}

/// The estimate that a string has; `None` if it is out of date.
pub(crate) fn kept_estimate(text: &[u8]) -> Result<Option<u64>, BadRegisters> {
    checked(text)?;
    let estimate = text.get(8..HEADER).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    Ok(estimate.filter(|_| text.get(STALE_AT).is_some_and(|byte| byte & STALE == 0)))
}

/// Checks the header, and returns what follows it.
fn checked(text: &[u8]) -> Result<&[u8], BadRegisters> {
    let is_right = text.starts_with(MAGIC) && text.get(4).is_some_and(|encoding| *encoding <= 1);
    let body = text.get(HEADER..).filter(|_| is_right).ok_or(BadRegisters::NoHyperLogLog)?;
    match is_dense(text) && text.len() != DENSE_LENGTH {
        true => Err(BadRegisters::NoHyperLogLog),
        false => Ok(body),
    }
}

fn is_dense(text: &[u8]) -> bool {
    text.get(4) == Some(&0)
}

fn header(encoding: u8) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.push(encoding);
    header.resize(HEADER, 0);
    header[STALE_AT] = STALE;
    header
}

fn first_run(body: &[u8]) -> Option<(Run, &[u8])> {
    let (&first, rest) = body.split_first()?;
    match first {
        0x80.. => Some((Run::Values((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1), rest)),
        0x40.. => {
            let (&second, rest) = rest.split_first()?;
            Some((Run::Zeros((usize::from(first & 0x3f) << 8 | usize::from(second)) + 1), rest))
        }
        _ => Some((Run::Zeros(usize::from(first) + 1), rest)),
    }
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// MurmurHash64A of an element.
fn hash(element: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let (words, rest) = element.as_chunks();
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(FACTOR);
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        hash = (hash ^ (word ^ word >> SHIFT).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Registers {
        let mut registers = Registers::new();
        for number in 0..count {
            registers.add(number.to_string().as_bytes());
        }
        registers
    }

    #[test]
    fn registers_come_back_from_both_forms() {
        for count in [0, 1, 10, 100, 1000, 3000, 100_000] {
            let registers = of(count);
            let text = registers.encode();
            let back = Registers::decode(&text).unwrap();
            assert!(back.values == registers.values && back.encode() == text, "{count}");
            assert_eq!(Registers::decode(&registers.dense()).unwrap().values, registers.values);
            assert_eq!(kept_estimate(&text), Ok(None));
        }
        assert!(of(100).encode().len() < SPARSE_AT_MOST && of(100_000).encode().len() == DENSE_LENGTH);
    }

    #[test]
    fn estimates_are_near() {
        assert_eq!((of(0).estimate(), of(1).estimate(), of(100).estimate()), (0, 1, 100));
        for count in [1000u32, 20_000, 200_000] {
            let estimate = of(count).estimate() as f64;
            assert!((estimate / f64::from(count) - 1.0).abs() < 0.03, "{count}: {estimate}");
        }
        let mut both = of(1000);
        both.merge(&of(2000));
        assert!(both == of(2000));
    }

    #[test]
    fn strings_that_are_none_are_refused() {
        let good = of(100).encode();
        for length in 0..HEADER {
            assert_eq!(Registers::decode(&good[..length]).err(), Some(BadRegisters::NoHyperLogLog));
        }
        for length in HEADER..good.len() {
            assert_eq!(Registers::decode(&good[..length]).err(), Some(BadRegisters::Corrupt));
        }
        assert_eq!(Registers::decode(&[&good[..], b"\x00"].concat()).err(), Some(BadRegisters::Corrupt));
        let dense = of(100_000).encode();
        assert_eq!(Registers::decode(&dense[..dense.len() - 1]).err(), Some(BadRegisters::NoHyperLogLog));
        let mut other = good.clone();
        other[4] = 2;
        assert_eq!(kept_estimate(&other), Err(BadRegisters::NoHyperLogLog));
        assert_eq!(kept_estimate(b"text"), Err(BadRegisters::NoHyperLogLog));
    }

    #[test]
    fn any_register_of_a_dense_string_has_an_estimate() {
        let mut text = of(0).dense();
        text[HEADER..].fill(0xff);
        Registers::decode(&text).unwrap().estimate();
    }
}
