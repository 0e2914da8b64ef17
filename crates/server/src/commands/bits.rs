//! Strings as arrays of bits: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP and the BITFIELD family. Bit
//! 0 is the highest bit of the first byte.

use super::Call;
use super::pace::Pace;
use super::strings::{STRING_AT_MOST, change};
use crate::numbers::{integer, integer_argument};
use crate::store::{Classes, Lifetime};
use crate::wrong::Wrong;
use std::ops::Range;

/// Number of bytes of a string that count as one step of a [`Pace`].
const BYTES_A_STEP: usize = 4096;
/// Number of bytes in which a field of at most 64 bits can lie.
const WINDOW: usize = 9;

/// Parses the offset of a bit; `#n` is the nth multiple of `unit`, if there is one.
fn offset(argument: &[u8], unit: Option<u64>) -> Result<u64, Wrong> {
    let (digits, unit) = match (argument, unit) {
        ([b'#', digits @ ..], Some(unit)) => (digits, unit),
        _ => (argument, 1),
    };
    let number = integer(digits).and_then(|number| u64::try_from(number).ok());
    let offset = number.and_then(|number| number.checked_mul(unit));
    offset.filter(|offset| offset / 8 < STRING_AT_MOST).ok_or(Wrong::bit_offset())
}

fn bit_at(value: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| value.get(at)).copied().unwrap_or(0);
    byte >> (7 - offset % 8) & 1 == 1
}

pub(super) async fn set_bit(call: &mut Call<'_>) -> Result<(), Wrong> {
    let offset = offset(&call.args[2], None)?;
    let on = match &call.args[3][..] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Wrong::err("bit is not an integer or out of range")),
    };
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    let before = old.as_ref().is_some_and(|old| bit_at(old, offset));
    let at = (offset / 8) as usize;
    if before != on || old.as_ref().is_none_or(|old| old.len() <= at) {
        let mut value = old.map(|old| old.to_vec()).unwrap_or_default();
        value.resize(value.len().max(at + 1), 0);
        let mask = 0x80 >> (offset % 8);
        if let Some(byte) = value.get_mut(at) {
            *byte = if on { *byte | mask } else { *byte & !mask };
        }
        change(call, &key, &value, "setbit").await?;
    }
    call.out.integer(before.into());
    Ok(())
}

pub(super) async fn get_bit(call: &mut Call<'_>) -> Result<(), Wrong> {
    let offset = offset(&call.args[2], None)?;
    let value = call.access.string(&call.key(1)).await?;
    call.out.integer(value.is_some_and(|value| bit_at(&value, offset)).into());
    Ok(())
}

/// True if the range of an argument is in bits, and false if it is in bytes.
fn is_in_bits(call: &Call<'_>, at: usize) -> Result<bool, Wrong> {
    match &*call.word(at) {
        "bit" => Ok(true),
        "byte" => Ok(false),
        _ => Err(Wrong::syntax()),
    }
}

/// The bits from `start` to `end`, both included, in units of bits or bytes of a string of `length`
/// bytes. Negative ones count from its end.
fn bits_of(start: i64, end: i64, is_bit: bool, length: usize) -> Range<u64> {
    let unit = if is_bit { 1 } else { 8 };
    let units = length as i64 * 8 / unit;
    let place = |at: i64| if at < 0 { at.saturating_add(units).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(units - 1));
    if start > end {
        return 0..0;
    }
    (start * unit).cast_unsigned()..((end + 1) * unit).cast_unsigned()
}

/// Parts of a range of bits: its whole bytes, and the bits before and behind them.
fn split(bits: &Range<u64>) -> (Range<u64>, Range<usize>, Range<u64>) {
    let (first, last) = (bits.start.div_ceil(8), bits.end / 8);
    match first <= last {
        true => (bits.start..first * 8, first as usize..last as usize, last * 8..bits.end),
        false => (bits.clone(), 0..0, 0..0),
    }
}

pub(super) async fn count(call: &mut Call<'_>) -> Result<(), Wrong> {
    let Some(value) = call.access.string(&call.key(1)).await? else {
        call.out.integer(0);
        return Ok(());
    };
    let bits = match call.args.len() {
        2 => 0..value.len() as u64 * 8,
        4 | 5 => {
            let (start, end) = (integer_argument(&call.args[2])?, integer_argument(&call.args[3])?);
            match (start < 0 && end < 0 && start > end, call.args.len() == 5) {
                (true, _) => 0..0,
                (false, true) => bits_of(start, end, is_in_bits(call, 4)?, value.len()),
                (false, false) => bits_of(start, end, false, value.len()),
            }
        }
        _ => return Err(Wrong::syntax()),
    };
    let (before, bytes, behind) = split(&bits);
    let mut found = before.chain(behind).filter(|bit| bit_at(&value, *bit)).count() as u64;
    let mut pace = Pace::default();
    for part in value.get(bytes).unwrap_or_default().chunks(BYTES_A_STEP) {
        found += part.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        pace.step().await;
    }
    call.out.integer(found.cast_signed());
    Ok(())
}

pub(super) async fn position(call: &mut Call<'_>) -> Result<(), Wrong> {
    let wanted = match integer_argument(&call.args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Wrong::err("The bit argument must be 1 or 0.")),
    };
    let Some(value) = call.access.string(&call.key(1)).await? else {
        call.out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    if call.args.len() > 6 {
        return Err(Wrong::syntax());
    }
    let number = |at: usize| call.args.get(at).map(|argument| integer_argument(argument)).transpose();
    let start = number(3)?;
    let is_bit = call.args.len() == 6 && is_in_bits(call, 5)?;
    let end = number(4)?;
    let bits = bits_of(start.unwrap_or(0), end.unwrap_or(-1), is_bit, value.len());
    let found = first_of(&value, wanted, &bits).await;
    // Zeros follow a string whose end was not given.
    let follows = !wanted && end.is_none() && !bits.is_empty();
    let found = found.or_else(|| follows.then_some(bits.end));
    call.out.integer(found.map_or(-1, u64::cast_signed));
    Ok(())
}

/// The first bit of this value in a range.
async fn first_of(value: &[u8], wanted: bool, bits: &Range<u64>) -> Option<u64> {
    let (before, bytes, behind) = split(bits);
    let within = |mut bits: Range<u64>| bits.find(|bit| bit_at(value, *bit) == wanted);
    if let Some(found) = within(before) {
        return Some(found);
    }
    let (none, mut pace) = (if wanted { 0 } else { 0xff }, Pace::default());
    let mut begins = bytes.start;
    for part in value.get(bytes).unwrap_or_default().chunks(BYTES_A_STEP) {
        if let Some(at) = part.iter().position(|byte| *byte != none) {
            let first = (begins + at) as u64 * 8;
            return within(first..first + 8);
        }
        begins += part.len();
        pace.step().await;
    }
    within(behind)
}

/// Operations of BITOP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

pub(super) async fn operate(call: &mut Call<'_>) -> Result<(), Wrong> {
    let operation = match &*call.word(1) {
        "and" => Operation::And,
        "or" => Operation::Or,
        "xor" => Operation::Xor,
        "not" => Operation::Not,
        _ => return Err(Wrong::syntax()),
    };
    let sources = call.keys(3..call.args.len());
    if operation == Operation::Not && sources.len() != 1 {
        return Err(Wrong::err("BITOP NOT must be called with a single source key."));
    }
    let (mut result, mut pace) = (None, Pace::default());
    for key in &sources {
        let value = call.access.string(key).await?;
        let value = value.as_ref().map_or(&[][..], |value| value);
        match &mut result {
            None => result = Some(value.to_vec()),
            Some(result) => combine(operation, result, value, &mut pace).await,
        }
        pace.step().await;
    }
    let mut result = result.unwrap_or_default();
    if operation == Operation::Not {
        for part in result.chunks_mut(BYTES_A_STEP) {
            part.iter_mut().for_each(|byte| *byte = !*byte);
            pace.step().await;
        }
    }
    let target = call.key(2);
    let was_there = match result.is_empty() {
        true => call.access.delete(&target).await?,
        false => {
            call.access.set_string(&target, &result, Lifetime::Forever).await?;
            true
        }
    };
    call.access.event_of_store(Classes::STRING, "set", &target, result.len(), was_there);
    call.out.count(result.len());
    Ok(())
}

/// Combines `result` with a string. The shorter of both counts as filled with zeros.
async fn combine(operation: Operation, result: &mut Vec<u8>, value: &[u8], pace: &mut Pace) {
    result.resize(result.len().max(value.len()), 0);
    let mut rest = value;
    for part in result.chunks_mut(BYTES_A_STEP) {
        let (with, behind) = rest.split_at(part.len().min(rest.len()));
        rest = behind;
        let pairs = part.iter_mut().zip(with);
        match operation {
            Operation::And => {
                pairs.for_each(|(byte, with)| *byte &= with);
                part.iter_mut().skip(with.len()).for_each(|byte| *byte = 0);
            }
            Operation::Or => pairs.for_each(|(byte, with)| *byte |= with),
            Operation::Xor => pairs.for_each(|(byte, with)| *byte ^= with),
            Operation::Not => {}
        }
        pace.step().await;
    }
}

/// Type of a field of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    is_signed: bool,
    /// At least 1; at most 64 if it is signed, 63 otherwise.
    bits: u32,
}

/// Treatment of numbers that a field is too small for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// The lowest bits are kept.
    Wrap,
    /// The nearest number is taken.
    Saturate,
    /// The field is left as it is.
    Fail,
}

impl Field {
    fn parse(argument: &[u8]) -> Result<Self, Wrong> {
        let parsed = argument.split_first().and_then(|(sign, bits)| {
            let (is_signed, most) = match sign {
                b'i' => (true, 64),
                b'u' => (false, 63),
                _ => return None,
            };
            let bits = integer(bits).and_then(|bits| u32::try_from(bits).ok());
            Some(Self { is_signed, bits: bits.filter(|bits| (1..=most).contains(bits))? })
        });
        let why =
            "Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        parsed.ok_or_else(|| Wrong::err(why))
    }

    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// The number that these bits say.
    fn number(self, bits: u64) -> i64 {
        match self.is_signed {
            true => (bits << (64 - self.bits)).cast_signed() >> (64 - self.bits),
            false => bits.cast_signed(),
        }
    }

    /// The number that is kept for `number`, and whether it is another.
    fn fit(self, number: i128, overflow: Overflow) -> (i64, bool) {
        let (least, most) = match self.is_signed {
            true => (-(1i128 << (self.bits - 1)), (1i128 << (self.bits - 1)) - 1),
            false => (0, i128::from(self.mask())),
        };
        let is_other = !(least..=most).contains(&number);
        let kept = match overflow {
            Overflow::Wrap => self.number(number as u64 & self.mask()),
            Overflow::Saturate | Overflow::Fail => number.clamp(least, most) as i64,
        };
        (kept, is_other)
    }

    /// Bytes in which a field at an offset lies, and the number of bits behind it there.
    fn window(self, value: &[u8], offset: u64) -> (u128, u64) {
        let at = usize::try_from(offset / 8).unwrap_or(usize::MAX);
        let byte = |number: usize| at.checked_add(number).and_then(|at| value.get(at)).copied().unwrap_or(0);
        let window = (0..WINDOW).fold(0u128, |window, number| window << 8 | u128::from(byte(number)));
        (window, WINDOW as u64 * 8 - offset % 8 - u64::from(self.bits))
    }

    fn read(self, value: &[u8], offset: u64) -> i64 {
        let (window, behind) = self.window(value, offset);
        self.number((window >> behind) as u64 & self.mask())
    }

    /// Writes a number into a string that has all bytes of the field.
    fn write(self, value: &mut [u8], offset: u64, number: i64) {
        let (window, behind) = self.window(value, offset);
        let bits = u128::from(number.cast_unsigned() & self.mask());
        let window = window & !(u128::from(self.mask()) << behind) | bits << behind;
        let bytes = (window << (128 - WINDOW * 8)).to_be_bytes();
        let kept = value.iter_mut().skip((offset / 8) as usize);
        kept.zip(bytes.iter().take(WINDOW)).for_each(|(byte, new)| *byte = *new);
    }
}

/// A subcommand of BITFIELD.
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Step {
    action: Action,
    field: Field,
    offset: u64,
    overflow: Overflow,
}

/// Parses the subcommands of BITFIELD. Lets other tasks run in between.
async fn steps(args: &[Vec<u8>]) -> Result<Vec<Step>, Wrong> {
    let (mut steps, mut overflow, mut rest, mut pace) = (Vec::new(), Overflow::Wrap, args, Pace::default());
    while let [name, behind @ ..] = rest {
        let name = super::lower(name);
        pace.step().await;
        match (&*name, behind) {
            ("overflow", [how, behind @ ..]) => {
                overflow = match &*super::lower(how) {
                    "wrap" => Overflow::Wrap,
                    "sat" => Overflow::Saturate,
                    "fail" => Overflow::Fail,
                    _ => return Err(Wrong::err("Invalid OVERFLOW type specified")),
                };
                rest = behind;
            }
            ("get", [field, at, behind @ ..]) => {
                let field = Field::parse(field)?;
                let offset = offset(at, Some(field.bits.into()))?;
                steps.push(Step { action: Action::Get, field, offset, overflow });
                rest = behind;
            }
            ("set" | "incrby", [field, at, number, behind @ ..]) => {
                let field = Field::parse(field)?;
                let offset = offset(at, Some(field.bits.into()))?;
                let number = integer_argument(number)?;
                let action = if name == "set" { Action::Set(number) } else { Action::Add(number) };
                steps.push(Step { action, field, offset, overflow });
                rest = behind;
            }
            _ => return Err(Wrong::syntax()),
        }
    }
    Ok(steps)
}

pub(super) async fn field_read(call: &mut Call<'_>) -> Result<(), Wrong> {
    let steps = steps(&call.args[2..]).await?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(Wrong::err("BITFIELD_RO only supports the GET subcommand"));
    }
    run(call, &steps).await
}

pub(super) async fn field(call: &mut Call<'_>) -> Result<(), Wrong> {
    let steps = steps(&call.args[2..]).await?;
    run(call, &steps).await
}

async fn run(call: &mut Call<'_>, steps: &[Step]) -> Result<(), Wrong> {
    let key = call.key(1);
    let old = call.access.string(&key).await?;
    // Behind the last bit that is written, in bytes. The string has them even if all writes fail.
    let writes = steps.iter().filter(|step| !matches!(step.action, Action::Get));
    let end = writes.map(|step| (step.offset + u64::from(step.field.bits)).div_ceil(8) as usize).max();
    if end.is_some_and(|end| end as u64 > STRING_AT_MOST) {
        return Err(Wrong::string_too_long());
    }
    call.out.array(steps.len());
    let Some(end) = end else {
        let value = old.as_ref().map_or(&[][..], |old| old);
        answer(call, steps, |step| Some(step.field.read(value, step.offset))).await;
        return Ok(());
    };
    let mut value = old.map(|old| old.to_vec()).unwrap_or_default();
    value.resize(value.len().max(end), 0);
    answer(call, steps, |step| apply(step, &mut value)).await;
    change(call, &key, &value, "setbit").await
}

async fn answer(call: &mut Call<'_>, steps: &[Step], mut each: impl FnMut(&Step) -> Option<i64>) {
    let mut pace = Pace::default();
    for step in steps {
        match each(step) {
            Some(number) => call.out.integer(number),
            None => call.out.null(),
        }
        pace.step().await;
    }
}

/// Carries out a subcommand; `None` if the field is too small for the number.
fn apply(step: &Step, value: &mut [u8]) -> Option<i64> {
    let field = step.field;
    let old = field.read(value, step.offset);
    let number = match step.action {
        Action::Get => return Some(old),
        // A negative number is a large one to an unsigned field.
        Action::Set(number) if !field.is_signed => i128::from(number.cast_unsigned()),
        Action::Set(number) => number.into(),
        Action::Add(number) => i128::from(old) + i128::from(number),
    };
    let (kept, is_other) = field.fit(number, step.overflow);
    if is_other && step.overflow == Overflow::Fail {
        return None;
    }
    field.write(value, step.offset, kept);
    Some(if matches!(step.action, Action::Set(_)) { old } else { kept })
}

#[cfg(test)]
mod tests {
    use super::*;
    use karstdb::io::Env;
    use karstdb::io::block_on;

    #[test]
    fn fields_of_all_widths_come_back_and_leave_their_neighbours() {
        for bits in 1..=64 {
            for offset in 0..24 {
                for is_signed in [false, true] {
                    if !is_signed && bits == 64 {
                        continue;
                    }
                    let field = Field { is_signed, bits };
                    let mut value = [0xff; 12];
                    field.write(&mut value, offset, 0);
                    assert_eq!(field.read(&value, offset), 0);
                    let zeros: u32 = value.iter().map(|byte| byte.count_zeros()).sum();
                    assert_eq!(zeros, bits, "{bits} at {offset}");
                    let (most, _) = field.fit(i128::MAX, Overflow::Saturate);
                    let (least, _) = field.fit(i128::MIN, Overflow::Saturate);
                    for number in [most, least, 1 & most, field.fit(-1, Overflow::Wrap).0] {
                        field.write(&mut value, offset, number);
                        assert_eq!(field.read(&value, offset), number, "{field:?} at {offset}");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_are_split_into_bytes_and_bits() {
        assert_eq!(split(&(3..5)), (3..5, 0..0, 0..0));
        assert_eq!(split(&(3..8)), (3..8, 1..1, 8..8));
        assert_eq!(split(&(3..35)), (3..8, 1..4, 32..35));
        assert_eq!(bits_of(-1, -1, false, 3), 16..24);
        assert_eq!(bits_of(i64::MIN, i64::MAX, true, 3), 0..24);
        assert!(bits_of(0, -1, false, 0).is_empty() && bits_of(5, 9, false, 3).is_empty());
    }

    #[test]
    fn the_first_bit_is_found_wherever_it_is() {
        let env = Env::posix();
        block_on(&env, async {
            for at in 0..80u64 {
                let mut value = [0u8; 10];
                value[(at / 8) as usize] = 0x80 >> (at % 8);
                assert_eq!(first_of(&value, true, &(0..80)).await, Some(at));
                assert_eq!(first_of(&value, true, &(at..at + 1)).await, Some(at));
                assert_eq!(first_of(&value, true, &(0..at)).await, None);
                assert_eq!(first_of(&value, true, &(at + 1..80)).await, None);
                value.iter_mut().for_each(|byte| *byte = !*byte);
                assert_eq!(first_of(&value, false, &(0..80)).await, Some(at));
            }
        });
    }
}
