//! LCS: the longest common subsequence of two strings.
//!
//! A table has a row for each byte of the longer string. Of the lengths in it two rows are kept,
//! and of each cell one bit, which says where the way back goes.

use super::Call;
use super::pace::Pace;
use super::strings::STRING_AT_MOST;
use crate::numbers::integer_argument;
use crate::wrong::Wrong;

/// Bytes of a cell of Redis' table, which is as large as a string at most.
const BYTES_A_CELL: u64 = 4;
/// Cells that count as one step of a [`Pace`].
const CELLS_A_STEP: usize = 64;

/// A part of the subsequence that is in one piece in both strings.
struct Match {
    /// First and last byte in each string.
    one: (usize, usize),
    other: (usize, usize),
}

impl Match {
    fn length(&self) -> usize {
        self.one.1 - self.one.0 + 1
    }
}

#[derive(Default)]
struct Options {
    only_length: bool,
    matches: bool,
    shortest: i64,
    with_lengths: bool,
}

fn options(call: &Call<'_>) -> Result<Options, Wrong> {
    let (mut options, mut at) = (Options::default(), 3);
    while at < call.args.len() {
        match &*call.word(at) {
            "len" => options.only_length = true,
            "idx" => options.matches = true,
            "withmatchlen" => options.with_lengths = true,
            "minmatchlen" if at + 1 < call.args.len() => {
                at += 1;
                options.shortest = integer_argument(&call.args[at])?.max(0);
            }
            _ => return Err(Wrong::syntax()),
        }
        at += 1;
    }
    match options.only_length && options.matches {
        true => Err(Wrong::err("If you want both the length and indexes, please just use IDX.")),
        false => Ok(options),
    }
}

pub(super) async fn lcs(call: &mut Call<'_>) -> Result<(), Wrong> {
    call.access.pin();
    let mut strings = Vec::new();
    for key in call.keys(1..3) {
        let value = call.access.string(&key).await;
        let is_of_type = |wrong: Wrong| match wrong.is_of_store() {
            true => wrong,
            false => Wrong::err("The specified keys must contain string values"),
        };
        strings.push(value.map_err(is_of_type)?);
    }
    let options = options(call)?;
    let text = |at: usize| strings.get(at).and_then(Option::as_ref).map_or(&[][..], |value| value);
    let (one, other) = (text(0), text(1));
    let cells = (one.len() as u64 + 1).checked_mul(other.len() as u64 + 1);
    if cells.is_none_or(|cells| cells > STRING_AT_MOST / BYTES_A_CELL) {
        let why = "Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return Err(Wrong::err(why));
    }
    let mut pace = Pace::default();
    let table = Table::new(one, other, options.only_length, &mut pace).await;
    if options.only_length {
        call.out.count(table.length);
        return Ok(());
    }
    let matches = table.matches(one, other, &mut pace).await;
    match options.matches {
        true => tell_matches(call, &options, table.length, &matches),
        false => {
            let parts = matches.iter().rev().filter_map(|found| one.get(found.one.0..=found.one.1));
            call.out.bulk(parts.collect::<Vec<_>>().concat());
        }
    }
    Ok(())
}

fn tell_matches(call: &mut Call<'_>, options: &Options, length: usize, matches: &[Match]) {
    let is_long = |found: &&Match| found.length() as i64 >= options.shortest;
    call.out.map(2);
    call.out.bulk("matches");
    call.out.array(matches.iter().filter(is_long).count());
    for found in matches.iter().filter(is_long) {
        call.out.array(if options.with_lengths { 3 } else { 2 });
        for (first, last) in [found.one, found.other] {
            call.out.array(2);
            call.out.count(first);
            call.out.count(last);
        }
        if options.with_lengths {
            call.out.count(found.length());
        }
    }
    call.out.bulk("len");
    call.out.count(length);
}

/// The ways back through the table.
struct Table {
    /// Length of the subsequence.
    length: usize,
    /// For each row and column, true if the way back goes to the byte before in the first string,
    /// and false if it does so in the second.
    ways: Vec<u64>,
    /// Number of columns.
    width: usize,
    /// True if the rows are of the second string.
    is_turned: bool,
}

impl Table {
    async fn new(one: &[u8], other: &[u8], only_length: bool, pace: &mut Pace) -> Self {
        let is_turned = one.len() < other.len();
        let (rows, columns) = if is_turned { (other, one) } else { (one, other) };
        let width = columns.len();
        let cells = if only_length { 0 } else { rows.len() * width };
        let mut table = Self { length: 0, ways: vec![0; cells.div_ceil(64)], width, is_turned };
        let mut above = vec![0u32; width];
        for (row, byte) in rows.iter().enumerate() {
            // Lengths in the cell before, and in the cell above that.
            let (mut before, mut corner) = (0, 0);
            for (column, (with, cell)) in columns.iter().zip(&mut above).enumerate() {
                let up = *cell;
                let goes_up = up > before || is_turned && up == before;
                *cell = if byte == with { corner + 1 } else { up.max(before) };
                if goes_up != is_turned && !only_length {
                    table.mark(row * width + column);
                }
                (corner, before) = (up, *cell);
            }
            pace.steps(width / CELLS_A_STEP + 1).await;
        }
        table.length = above.last().copied().unwrap_or(0) as usize;
        table
    }

    fn mark(&mut self, cell: usize) {
        if let Some(word) = self.ways.get_mut(cell / 64) {
            *word |= 1 << (cell % 64);
        }
    }

    fn goes_back_in_one(&self, at: usize, in_other: usize) -> bool {
        let (row, column) = if self.is_turned { (in_other, at) } else { (at, in_other) };
        let cell = row * self.width + column;
        self.ways.get(cell / 64).is_some_and(|word| word >> (cell % 64) & 1 == 1)
    }

    /// The matches, from the end of the strings on.
    async fn matches(&self, one: &[u8], other: &[u8], pace: &mut Pace) -> Vec<Match> {
        let (mut matches, mut open, mut at, mut in_other) = (Vec::new(), None, one.len(), other.len());
        while at > 0 && in_other > 0 {
            if one.get(at - 1) == other.get(in_other - 1) {
                at -= 1;
                in_other -= 1;
                let found = open.get_or_insert(Match { one: (at, at), other: (in_other, in_other) });
                (found.one.0, found.other.0) = (at, in_other);
            } else {
                matches.extend(open.take());
                match self.goes_back_in_one(at - 1, in_other - 1) {
                    true => at -= 1,
                    false => in_other -= 1,
                }
            }
            pace.step().await;
        }
        matches.extend(open);
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karstdb::io::{Env, block_on};

    /// Lengths of the whole table, without a thought of memory.
    fn lengths(one: &[u8], other: &[u8]) -> Vec<Vec<usize>> {
        let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
        for i in 1..=one.len() {
            for j in 1..=other.len() {
                table[i][j] = match one[i - 1] == other[j - 1] {
                    true => table[i - 1][j - 1] + 1,
                    false => table[i - 1][j].max(table[i][j - 1]),
                };
            }
        }
        table
    }

    #[test]
    fn the_way_back_is_that_of_the_whole_table() {
        let texts =
            ["", "a", "ohmytext", "mynewtext", "abcabcabba", "cbacbabbca", "aaaaaaaaaaaaaaaaaaaaab", "bbbaa"];
        block_on(&Env::posix(), async {
            for (one, other) in
                texts.iter().flat_map(|one| texts.map(|other| (one.as_bytes(), other.as_bytes())))
            {
                let (whole, mut pace) = (lengths(one, other), Pace::default());
                let table = Table::new(one, other, false, &mut pace).await;
                assert_eq!(table.length, whole[one.len()][other.len()]);
                assert_eq!(Table::new(one, other, true, &mut pace).await.length, table.length);
                for i in 1..=one.len() {
                    for j in (1..=other.len()).filter(|j| one[i - 1] != other[j - 1]) {
                        let expected = whole[i - 1][j] > whole[i][j - 1];
                        assert_eq!(
                            table.goes_back_in_one(i - 1, j - 1),
                            expected,
                            "{one:?} {other:?} {i} {j}"
                        );
                    }
                }
                let matches = table.matches(one, other, &mut pace).await;
                assert_eq!(matches.iter().map(Match::length).sum::<usize>(), table.length);
            }
        });
    }
}
