//! The expected state of the database: for each row its current state and the one that an operation
//! under way may give it, in files outside of the database, so that the next process knows which
//! operations the killed one saw acknowledged.
//!
//! Each lane has a file: a head, then a slot for each row and family. The lane updates it with
//! plain writes before and after each operation; data in the page cache survives the kill of a
//! process. Ordering: first the rows' next states with the operation's number, then the operation,
//! then the head with its outcome, then the rows' states. At any moment of death, the outcome of an
//! acknowledged operation is known, and so are all rows of the one that was not acknowledged.
//!
//! All threads share the state in memory too, because readers read other lanes' rows:
//! [`Expected::judge`] decides if a value could have been in a row at some moment between two reads
//! of its state.

use super::rows::{Place, Shape};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

const SLOT: usize = 32;

/// A row: its state, and the one that an operation under way may give it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) now: u64,
    pub(crate) next: u64,
    /// Number of the operation under way; 0: none.
    pub(crate) operation: u64,
    /// Number of writes of this row in this process: one as an operation begins, one as it ends.
    pub(crate) version: u64,
}

/// Progress of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Last operation that ended, and true if it took place.
    pub(crate) ended: u64,
    pub(crate) kept: bool,
    /// Last operation whose transaction was prepared.
    pub(crate) prepared: u64,
    /// Operation whose transaction is being decided, and true for a commit.
    pub(crate) deciding: u64,
    pub(crate) commit: bool,
}

/// Outcome of [`Expected::judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Right,
    /// The row changed too often between the two reads of its state.
    Undecided,
    /// The value is none of these, the only possible ones.
    Wrong(Vec<Option<Vec<u8>>>),
}

/// The expected state of a database.
pub(crate) struct Expected {
    pub(crate) shape: Shape,
    files: Vec<File>,
    rows: Vec<Mutex<Row>>,
    heads: Vec<Mutex<Head>>,
}

impl Expected {
    /// Reads the state from a folder, or begins with that of an empty database.
    pub(crate) fn open(folder: &Path, shape: Shape) -> io::Result<Expected> {
        std::fs::create_dir_all(folder)?;
        let (mut files, mut rows, mut heads) = (Vec::new(), Vec::new(), Vec::new());
        let slots = 1 + shape.rows * shape.families;
        for lane in 0..shape.lanes {
            let path = folder.join(format!("lane-{lane:03}"));
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
            file.set_len((slots * SLOT) as u64)?;
            let mut bytes = vec![0; slots * SLOT];
            file.read_exact_at(&mut bytes, 0)?;
            let numbers = |slot: &[u8]| {
                let number = |at: usize| u64::from_le_bytes(slot[at * 8..][..8].try_into().expect("8 bytes"));
                [number(0), number(1), number(2), number(3)]
            };
            let mut all = bytes.chunks_exact(SLOT).map(numbers);
            let [ended, prepared, deciding, bits] = all.next().expect("there is a head");
            let head = Head { ended, prepared, deciding, kept: bits & 1 != 0, commit: bits & 2 != 0 };
            heads.push(Mutex::new(head));
            rows.extend(
                all.map(|[now, next, operation, _]| Mutex::new(Row { now, next, operation, version: 0 })),
            );
            files.push(file);
        }
        Ok(Expected { shape, files, rows, heads })
    }

    fn slot(&self, place: Place) -> usize {
        place.family * self.shape.rows + place.row
    }

    fn cell(&self, place: Place) -> &Mutex<Row> {
        &self.rows[place.lane * self.shape.rows * self.shape.families + self.slot(place)]
    }

    /// Returns the row's current state.
    pub(crate) fn row(&self, place: Place) -> Row {
        *self.cell(place).lock().expect("nobody panics with it")
    }

    /// Returns the lane's progress.
    pub(crate) fn head(&self, lane: usize) -> Head {
        *self.heads[lane].lock().expect("nobody panics with it")
    }

    fn write_head(&self, lane: usize, change: impl FnOnce(&mut Head)) -> io::Result<()> {
        let mut head = self.heads[lane].lock().expect("nobody panics with it");
        change(&mut head);
        let bits = u64::from(head.kept) | u64::from(head.commit) << 1;
        self.files[lane].write_all_at(&bytes_of([head.ended, head.prepared, head.deciding, bits]), 0)
    }

    fn write_row(&self, place: Place, change: impl FnOnce(&mut Row)) -> io::Result<()> {
        let mut row = self.cell(place).lock().expect("nobody panics with it");
        change(&mut row);
        row.version += 1;
        let at = (1 + self.slot(place)) * SLOT;
        self.files[place.lane].write_all_at(&bytes_of([row.now, row.next, row.operation, 0]), at as u64)
    }

    /// Records that an operation begins that may bring its rows into these states.
    pub(crate) fn begin(&self, operation: u64, changes: &[(Place, u64)]) -> io::Result<()> {
        changes.iter().try_for_each(|(place, next)| {
            self.write_row(*place, |row| (row.next, row.operation) = (*next, operation))
        })
    }

    /// Records that a lane's operation has prepared its transaction.
    pub(crate) fn prepared(&self, lane: usize, operation: u64) -> io::Result<()> {
        self.write_head(lane, |head| head.prepared = operation)
    }

    /// Records that a lane's operation is about to commit or roll back its transaction.
    pub(crate) fn deciding(&self, lane: usize, operation: u64, commit: bool) -> io::Result<()> {
        self.write_head(lane, |head| (head.deciding, head.commit) = (operation, commit))
    }

    /// Records that a lane's operation has ended; `kept` is true if it took place, false if it
    /// changed nothing.
    pub(crate) fn end(
        &self,
        lane: usize,
        operation: u64,
        kept: bool,
        places: impl IntoIterator<Item = Place>,
    ) -> io::Result<()> {
        self.write_head(lane, |head| (head.ended, head.kept) = (operation, kept))?;
        places.into_iter().try_for_each(|place| {
            self.write_row(place, |row| {
                row.now = if kept { row.next } else { row.now };
                (row.next, row.operation) = (0, 0);
            })
        })
    }

    /// Returns the operation that a lane's last process left undecided, and its rows.
    pub(crate) fn undecided(&self, lane: usize) -> Option<(u64, Vec<Place>)> {
        let shape = self.shape;
        let all = (0..shape.families)
            .flat_map(|family| (0..shape.rows).map(move |row| Place { lane, family, row }));
        let places: Vec<Place> = all.filter(|place| self.row(*place).operation != 0).collect();
        // A lane has at most one operation under way, so all rows have this one.
        let operation = places.iter().map(|place| self.row(*place).operation).max()?;
        Some((operation, places))
    }

    /// Decides if a row can have held `found` at some moment since it was `before`.
    pub(crate) fn judge(&self, place: Place, before: &Row, found: Option<&[u8]>) -> Judgement {
        let after = self.row(place);
        let mut possible = Vec::new();
        for row in [before, &after] {
            possible.push(row.now);
            if row.operation != 0 {
                possible.push(row.next);
            }
        }
        possible.dedup();
        let texts: Vec<Option<Vec<u8>>> =
            possible.iter().map(|state| self.shape.text(place, *state)).collect();
        if texts.iter().any(|text| text.as_deref() == found) {
            return Judgement::Right;
        }
        // With at most three writes, the row had no states but those of `before` and `after`.
        if after.version - before.version > 3 { Judgement::Undecided } else { Judgement::Wrong(texts) }
    }
}

fn bytes_of(numbers: [u64; 4]) -> [u8; SLOT] {
    let mut bytes = [0; SLOT];
    for (at, number) in numbers.iter().enumerate() {
        bytes[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::rows::CYCLE;
    use super::*;

    const SHAPE: Shape = Shape { seed: 1, families: 2, lanes: 2, rows: CYCLE };

    fn place(lane: usize, family: usize, row: usize) -> Place {
        Place { lane, family, row }
    }

    #[test]
    fn the_next_process_finds_what_was_begun_and_what_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Expected::open(dir.path(), SHAPE).unwrap();
        let first = open();
        let changes = [(place(1, 0, 3), 8), (place(1, 1, 3), 8)];
        first.begin(8, &changes).unwrap();
        let second = open();
        assert_eq!(second.undecided(1), Some((8, vec![changes[0].0, changes[1].0])));
        assert_eq!(second.undecided(0), None);
        assert_eq!(second.head(1), Head::default());
        second.prepared(1, 8).unwrap();
        second.deciding(1, 8, true).unwrap();
        second.end(1, 8, true, changes.map(|(place, _)| place)).unwrap();
        let third = open();
        assert_eq!(third.head(1), Head { ended: 8, kept: true, prepared: 8, deciding: 8, commit: true });
        assert_eq!((third.undecided(1), third.row(changes[0].0).now), (None, 8));
        third.begin(9, &changes[..1]).unwrap();
        third.end(1, 9, false, [changes[0].0]).unwrap();
        assert_eq!(open().row(changes[0].0).now, 8);
    }

    #[test]
    fn what_a_row_can_have_held_is_told_from_what_it_cannot() {
        let dir = tempfile::tempdir().unwrap();
        let expected = Expected::open(dir.path(), SHAPE).unwrap();
        let at = place(0, 1, 5);
        let text = |state| SHAPE.text(at, state);
        let judge = |before: &Row, state| expected.judge(at, before, text(state).as_deref());
        let write = |operation: u64, kept| {
            expected.begin(operation, &[(at, operation)]).unwrap();
            expected.end(0, operation, kept, [at]).unwrap();
        };
        write(4, true);
        let before = expected.row(at);
        assert_eq!(judge(&before, 4), Judgement::Right);
        assert_eq!(judge(&before, 0), Judgement::Wrong(vec![text(4)]));
        expected.begin(5, &[(at, 5)]).unwrap();
        assert_eq!((judge(&before, 4), judge(&before, 5)), (Judgement::Right, Judgement::Right));
        assert!(matches!(judge(&before, 6), Judgement::Wrong(_)));
        expected.end(0, 5, true, [at]).unwrap();
        assert_eq!(judge(&before, 4), Judgement::Right);
        assert!(matches!(judge(&expected.row(at), 4), Judgement::Wrong(_)));
        write(6, false);
        assert!(matches!(judge(&expected.row(at), 6), Judgement::Wrong(_)));
        write(7, true);
        assert_eq!(judge(&before, 3), Judgement::Undecided);
    }
}
