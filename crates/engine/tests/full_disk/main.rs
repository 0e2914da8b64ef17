//! A full disk, in every phase: the error of a write and its delay, the calls that still work
//! meanwhile, and the automatic recovery once there is space.
//!
//! | file | holds |
//! |---|---|
//! | `small` | small file systems: mounted ones, and the simulated one where mounting is not permitted |
//! | `real` | writers on those file systems until a write is refused, phase by phase, with a table of errors and delays |
//! | `phases` | each kind of file without space, on the simulated machine |
//! | `opening` | opening with any free space from none up |

mod opening;
mod phases;
mod real;
mod small;

use karst_engine::{ColumnFamily, Db, Options, ReadOptions};
use karst_io::Env;
use std::collections::BTreeMap;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Small memtables, a small tree, and few tables in L0 before writers are stopped.
fn options(env: &Env) -> Options {
    Options::new()
        .env(env.clone())
        .db(|db| db.create_if_missing = true)
        .column_families(|cf| {
            cf.write_buffer_size = 256 << 10;
            cf.target_file_size_base = 1 << 20;
            cf.max_bytes_for_level_base = 8 << 20;
            cf.level0_slowdown_writes_trigger = 8;
            cf.level0_stop_writes_trigger = 12;
        })
        .set("compression", "kNoCompression")
        .expect("the option is known")
}

fn mixed(i: u64) -> u64 {
    let z = i.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (z >> 31)
}

/// Returns the keys in no order.
fn key(i: u64) -> Vec<u8> {
    format!("{:016x}", mixed(i)).into_bytes()
}

/// Returns a value that compresses badly.
fn value(i: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|j| mixed(i << 20 | j).to_le_bytes()).collect()
}

/// Returns all entries of a column family.
fn all_in(db: &Db, family: &ColumnFamily) -> Entries {
    let mut found = Entries::new();
    let mut iter = db.iter_cf(&ReadOptions::default(), family).unwrap();
    iter.seek_to_first().unwrap();
    while iter.valid() {
        found.insert(iter.key().to_vec(), iter.value().to_vec());
        iter.next().unwrap();
    }
    found
}

/// Returns all entries, by an iterator; checks one in 37 by a get.
fn all(db: &Db) -> Entries {
    let found = all_in(db, db.default_column_family());
    for (key, value) in found.iter().step_by(37) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&**value));
    }
    found
}
