//! What one lane has done to a family of its own, step by step: what a step does follows from the
//! seed and its number, and a file beside the expected state has what became of it.
//!
//! One byte for each step, written before and after it, so that the next process knows of all but
//! the last one whether it took place.

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

    /// The next step begins; its number.
    pub(crate) fn begin(&mut self) -> io::Result<u64> {
        self.bytes.push(BEGUN);
        let number = self.bytes.len() as u64 - 1;
        self.note(number, BEGUN)?;
        Ok(number)
    }

    /// A step has ended, and has taken place or not.
    pub(crate) fn end(&mut self, number: u64, done: bool) -> io::Result<()> {
        self.note(number, if done { DONE } else { NOT_DONE })
    }

    /// The steps that took place, in order.
    pub(crate) fn done(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.bytes).filter(|(_, byte)| **byte == DONE).map(|(number, _)| number)
    }

    /// The last step, if it is not known whether it took place.
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
