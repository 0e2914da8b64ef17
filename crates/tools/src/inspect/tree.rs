//! Data of the picture: column families, levels, files, and the tables' properties.

use super::logs::{self, Logs};
use crate::ldb::manifest;
use crate::table_file::TableFile;
use karst_format::comparator::Comparator;
use karst_format::file_name::FileName;
use karst_format::index::IndexType;
use karst_format::metaindex::FilterKind;
use std::collections::BTreeMap;
use std::path::Path;

/// A database.
pub(super) struct Tree {
    pub(super) path: String,
    pub(super) last_sequence: u64,
    pub(super) logs: Logs,
    pub(super) families: Vec<Family>,
}

/// A column family.
pub(super) struct Family {
    pub(super) name: String,
    pub(super) comparator: String,
    pub(super) levels: Vec<Level>,
    pub(super) blobs: Vec<Blob>,
    /// Number of entries that are in a log and in no table.
    pub(super) logged: u64,
    /// The order of keys.
    pub(super) order: Comparator,
    scale: Scale,
}

/// Horizontal positions of keys in the picture: each table is as wide as its share of the bytes,
/// unless another one is above or below it. Gaps between neighbouring tables take no width.
#[derive(Default)]
struct Scale {
    /// The first and last keys of all tables, in order, each with the beginning and the end of its
    /// position, from 0 to 1.
    keys: Vec<(Vec<u8>, f64, f64)>,
}

impl Scale {
    /// Returns the scale of tables with a first key, a last key and a size in bytes.
    fn of(tables: &[(&[u8], &[u8], u64)], order: &Comparator) -> Scale {
        let compare = |a: &[u8], b: &[u8]| order.compare_with_timestamps(a, b);
        let mut keys: Vec<&[u8]> = tables.iter().flat_map(|(first, last, _)| [*first, *last]).collect();
        keys.sort_by(|a, b| compare(a, b));
        keys.dedup();
        let index = |key: &[u8]| keys.binary_search_by(|at| compare(at, key)).unwrap_or_else(|at| at);
        // Weights of the keys, and changes of the weight between each key and the next one.
        let (mut at, mut begins) = (vec![0.0; keys.len()], vec![0.0; keys.len() + 1]);
        for (first, last, bytes) in tables {
            let (first, last) = (index(first), index(last));
            // One more, so that an empty table is shown too.
            let weight = (bytes + 1) as f64;
            if first >= last {
                at[first] += weight;
            } else {
                let each = weight / (last - first) as f64;
                begins[first] += each;
                begins[last] -= each;
            }
        }
        let (mut place, mut between) = (0.0, 0.0f64);
        let mut scale = Scale::default();
        for (number, key) in keys.iter().enumerate() {
            scale.keys.push((key.to_vec(), place, place + at[number]));
            between += begins[number];
            place += at[number] + between.max(0.0);
        }
        let all = if place > 0.0 { place } else { 1.0 };
        for (_, from, to) in &mut scale.keys {
            (*from, *to) = ((*from / all).min(1.0), (*to / all).min(1.0));
        }
        scale
    }

    /// Returns the beginning and the end of a range of keys.
    fn span(&self, first: &[u8], last: &[u8], order: &Comparator) -> (f64, f64) {
        let place = |key: &[u8]| {
            let found = self.keys.binary_search_by(|(at, ..)| order.compare_with_timestamps(at, key));
            found.ok().map(|at| &self.keys[at])
        };
        let from = place(first).map_or(0.0, |(_, from, _)| *from);
        (from, place(last).map_or(from, |(_, _, to)| *to))
    }
}

/// A level with files.
pub(super) struct Level {
    pub(super) number: u8,
    pub(super) files: Vec<TableRow>,
}

/// A table.
pub(super) struct TableRow {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    /// Facts from its properties, or the reason why they could not be read.
    pub(super) facts: Result<Facts, String>,
}

/// Facts from a table's properties.
pub(super) struct Facts {
    pub(super) entries: u64,
    pub(super) deletions: u64,
    pub(super) range_deletions: u64,
    pub(super) data_blocks: u64,
    pub(super) data_bytes: u64,
    pub(super) raw_bytes: u64,
    pub(super) index_bytes: u64,
    pub(super) index_partitioned: bool,
    pub(super) filter: Option<Filter>,
    pub(super) compression: String,
    pub(super) format_version: u32,
}

/// A table's filter.
pub(super) struct Filter {
    pub(super) policy: String,
    pub(super) partitioned: bool,
    pub(super) bytes: u64,
    pub(super) bits_per_key: f64,
}

/// A blob file.
pub(super) struct Blob {
    pub(super) name: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) garbage_bytes: u64,
}

impl Level {
    pub(super) fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    pub(super) fn entries(&self) -> u64 {
        self.facts().map(|facts| facts.entries).sum()
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.files.iter().filter_map(|file| file.facts.as_ref().ok())
    }

    /// Returns the distinct values of one fact, joined.
    pub(super) fn kinds(&self, kind: impl Fn(&Facts) -> String) -> String {
        let mut seen: Vec<String> = self.facts().map(kind).collect();
        seen.sort();
        seen.dedup();
        seen.join("+")
    }
}

impl Family {
    /// Returns the position of a file among all keys: from 0 to 1.
    pub(super) fn span(&self, file: &TableRow) -> (f64, f64) {
        self.scale.span(&file.smallest, &file.largest, &self.order)
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.levels.iter().map(Level::size_bytes).sum()
    }

    /// Returns the text about entries that are in no table; `None` without such entries.
    pub(super) fn in_logs_only(&self) -> Option<String> {
        match (self.logged, self.levels.is_empty()) {
            (0, _) => None,
            (1, _) => Some("1 entry is in the logs only, in no table yet".into()),
            (all, true) => Some(format!("all {all} entries are in the logs only, in no table yet")),
            (some, false) => Some(format!("{some} more entries are in the logs only, in no table yet")),
        }
    }
}

/// Reads the MANIFEST, the logs, and the properties of every table.
pub(super) fn collect(db: &Path) -> Result<Tree, String> {
    let path = manifest::current(db)?;
    let set = manifest::replay(&path, &manifest::edits(&path)?)?;
    let logs = logs::collect(db, &set)?;
    let mut families = Vec::new();
    for (id, state) in &set.column_families {
        let mut levels: BTreeMap<u8, Level> = BTreeMap::new();
        for (level, file) in state.version.all_files() {
            let name = FileName::Table(file.number).to_string();
            let (smallest, largest) = (file.smallest_user_key().to_vec(), file.largest_user_key().to_vec());
            let facts = TableFile::open(&db.join(&name)).map(|table| facts(&table));
            let row = TableRow { name, size_bytes: file.size_bytes, smallest, largest, facts };
            levels
                .entry(level.0)
                .or_insert_with(|| Level { number: level.0, files: Vec::new() })
                .files
                .push(row);
        }
        let order = state.version.comparator().clone();
        let rows = levels.values().flat_map(|level| &level.files);
        let tables: Vec<_> = rows.map(|row| (&*row.smallest, &*row.largest, row.size_bytes)).collect();
        let scale = Scale::of(&tables, &order);
        let blobs = state.version.blob_files().values();
        families.push(Family {
            name: state.name.clone(),
            comparator: state.version.comparator().name().to_string(),
            levels: levels.into_values().collect(),
            blobs: blobs
                .map(|blob| Blob {
                    name: FileName::Blob(blob.number()).to_string(),
                    count: blob.file.total_count,
                    bytes: blob.file.total_bytes,
                    garbage_bytes: blob.garbage_bytes,
                })
                .collect(),
            logged: logs.entries.get(id).copied().unwrap_or(0),
            order,
            scale,
        });
    }
    Ok(Tree { path: db.display().to_string(), last_sequence: set.last_sequence.0, logs, families })
}

fn facts(table: &TableFile) -> Facts {
    let p = &table.properties;
    let filter = table.metaindex.filter().filter(|(kind, ..)| *kind != FilterKind::PerBlock);
    let keys = if p.num_filter_entries > 0 { p.num_filter_entries } else { p.num_entries };
    Facts {
        entries: p.num_entries,
        deletions: p.num_deletions,
        range_deletions: p.num_range_deletions,
        data_blocks: p.num_data_blocks,
        data_bytes: p.data_size,
        raw_bytes: p.raw_key_size + p.raw_value_size,
        index_bytes: p.index_size,
        index_partitioned: p.index_type() == Ok(IndexType::TwoLevelIndexSearch),
        filter: filter.map(|(kind, policy, handle)| {
            let bytes = if p.filter_size > 0 { p.filter_size } else { handle.size };
            Filter {
                policy,
                partitioned: kind == FilterKind::Partitioned,
                bytes,
                bits_per_key: if keys > 0 { bytes as f64 * 8.0 / keys as f64 } else { 0.0 },
            }
        }),
        compression: p.compression_name.clone(),
        format_version: table.footer.format_version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(tables: &[(&str, &str, u64)], order: &Comparator) -> Vec<(f64, f64)> {
        let tables: Vec<_> =
            tables.iter().map(|(first, last, bytes)| (first.as_bytes(), last.as_bytes(), *bytes)).collect();
        let scale = Scale::of(&tables, order);
        tables.iter().map(|(first, last, _)| scale.span(first, last, order)).collect()
    }

    #[test]
    fn neighbours_touch_and_are_as_wide_as_their_bytes() {
        let [(from, middle), (next, to)] =
            spans(&[("a", "m", 879), ("n", "z", 119)], &Comparator::Bytewise)[..]
        else {
            panic!("two tables");
        };
        assert_eq!((from, to), (0.0, 1.0));
        assert_eq!(middle, next);
        assert!((middle - 0.88).abs() < 1e-9, "{middle}");
        // A table of a single key, with a table on the level below that spans all.
        let all = [("a", "m", 99), ("n", "n", 99), ("o", "z", 99), ("a", "z", 999)];
        let places = spans(&all, &Comparator::Bytewise);
        assert_eq!((places[0].0, places[2].1, places[3]), (0.0, 1.0, (0.0, 1.0)));
        assert!(places.iter().all(|(from, to)| from < to), "{places:?}");
        assert!(places[0].1 <= places[1].0 && places[1].1 <= places[2].0, "{places:?}");
    }

    #[test]
    fn keys_that_descend_are_drawn_from_the_greatest_on() {
        let places = spans(&[("z", "n", 99), ("m", "a", 99)], &Comparator::ReverseBytewise);
        assert_eq!(places, [(0.0, 0.5), (0.5, 1.0)]);
        assert_eq!(spans(&[("a", "a", 0)], &Comparator::Bytewise), [(0.0, 1.0)]);
    }
}
