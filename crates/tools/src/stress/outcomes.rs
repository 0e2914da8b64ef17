//! The steps that one lane has made on a family of its own. A step's changes derive from the seed
//! and its number; a file beside the expected state records which steps took place.
//!
//! The file has one byte for each step, written before and after it, so that the next process knows
//! the outcome of all steps but the last.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BEGUN: u8 = 1;
const DONE: u8 = 2;
const NOT_DONE: u8 = 3;

pub(crate) struct Outcomes {
    file: File,
    bytes: Vec<u8>,
}

impl Outcomes {
    pub(crate) fn open(path: &Path) -> io::Result<Outcomes> {
        let bytes = match std::fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Outcomes { file, bytes })
    }

    fn note(&mut self, number: u64, byte: u8) -> io::Result<()> {
        self.bytes[number as usize] = byte;
        self.file.write_all_at(&[byte], number)
    }

    /// Records that the next step begins; returns its number.
    pub(crate) fn begin(&mut self) -> io::Result<u64> {
        self.bytes.push(BEGUN);
        let number = self.bytes.len() as u64 - 1;
        self.note(number, BEGUN)?;
        Ok(number)
    }

    /// Records that a step has ended, and that it took place or not.
    pub(crate) fn end(&mut self, number: u64, done: bool) -> io::Result<()> {
        self.note(number, if done { DONE } else { NOT_DONE })
    }

    /// Returns the steps that took place, in order.
    pub(crate) fn done(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.bytes).filter(|(_, byte)| **byte == DONE).map(|(number, _)| number)
    }

    /// Returns the last step if its outcome is unknown.
    pub(crate) fn undecided(&self) -> Option<u64> {
        (self.bytes.last() == Some(&BEGUN)).then(|| self.bytes.len() as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_all_but_the_last_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("outcomes");
        let mut outcomes = Outcomes::open(&path).unwrap();
        for done in [true, false, true] {
            let number = outcomes.begin().unwrap();
            assert_eq!(outcomes.undecided(), Some(number));
            outcomes.end(number, done).unwrap();
        }
        assert_eq!(outcomes.begin().unwrap(), 3);
        let mut again = Outcomes::open(&path).unwrap();
        assert_eq!((again.done().collect::<Vec<_>>(), again.undecided()), (vec![0, 2], Some(3)));
        again.end(3, true).unwrap();
        assert_eq!(Outcomes::open(&path).unwrap().done().collect::<Vec<_>>(), [0, 2, 3]);
    }
}
