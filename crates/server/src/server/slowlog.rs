//! Commands that took long, for SLOWLOG: the last ones, the newest first.
//!
//! Lock: the mutex of the entries, for one entry or a copy of them.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of arguments that an entry keeps, as Redis has it.
const ARGUMENTS_AT_MOST: usize = 32;
/// Maximum length of such an argument in bytes.
const ARGUMENT_AT_MOST: usize = 128;

/// The slow commands.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    list: VecDeque<Entry>,
    next_id: u64,
}

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Time of the environment's clock at its end.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    /// Name and arguments, shortened.
    pub(crate) args: Vec<Vec<u8>>,
    /// Address of the client.
    pub(crate) peer: String,
    /// Name of the client.
    pub(crate) name: Vec<u8>,
}

impl SlowLog {
    /// Adds a command, and drops the oldest ones beyond `at_most`.
    pub(crate) fn add(
        &self,
        args: &[Vec<u8>],
        (at, took): (Duration, Duration),
        (peer, name): (String, Vec<u8>),
        at_most: usize,
    ) {
        let mut entries = self.0.lock();
        let entry = Entry { id: entries.next_id, at, took, args: shortened(args), peer, name };
        entries.next_id += 1;
        entries.list.push_front(entry);
        entries.list.truncate(at_most);
    }

    /// Returns the newest entries, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.0.lock().list.iter().take(count).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().list.len()
    }

    /// Drops all entries.
    pub(crate) fn reset(&self) {
        self.0.lock().list.clear();
    }
}

/// The arguments as an entry keeps them.
fn shortened(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let kept = if args.len() > ARGUMENTS_AT_MOST { ARGUMENTS_AT_MOST - 1 } else { args.len() };
    let shorten = |argument: &Vec<u8>| match argument.len().checked_sub(ARGUMENT_AT_MOST) {
        None | Some(0) => argument.clone(),
        Some(more) => {
            let mut short = argument[..ARGUMENT_AT_MOST].to_vec();
            short.extend(format!("... ({more} more bytes)").bytes());
            short
        }
    };
    let mut all: Vec<Vec<u8>> = args[..kept].iter().map(shorten).collect();
    if kept < args.len() {
        all.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_a_part_of_long_arguments() {
        let short = shortened(&[b"set".to_vec(), vec![b'x'; 130]]);
        assert_eq!(short[1], [&[b'x'; 128][..], b"... (2 more bytes)"].concat());
        let many = shortened(&vec![b"x".to_vec(); 40]);
        assert_eq!((many.len(), &many[31][..]), (32, &b"... (9 more arguments)"[..]));
        assert_eq!(shortened(&vec![vec![b'x'; 128]; 32]), vec![vec![b'x'; 128]; 32]);
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let log = SlowLog::default();
        let times = (Duration::ZERO, Duration::ZERO);
        (0..5).for_each(|_| log.add(&[b"get".to_vec()], times, (String::new(), Vec::new()), 3));
        let ids: Vec<u64> = log.newest(usize::MAX).iter().map(|entry| entry.id).collect();
        assert_eq!((ids, log.count()), (vec![4, 3, 2], 3));
        log.reset();
        log.add(&[b"get".to_vec()], times, (String::new(), Vec::new()), 3);
        assert_eq!(log.newest(1)[0].id, 5);
    }
}
