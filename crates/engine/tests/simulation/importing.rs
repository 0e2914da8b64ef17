//! Families that are exported, imported under another name and clipped, beside all other tasks. An
//! imported family has all entries that its source had at some time, or does not exist; a clip
//! removes all entries outside of its range, or none. A life checks the families that an earlier
//! one left.

use crate::blob_garbage::check_blob_garbage;
use crate::machine::{User, Weather, World};
use crate::store::IMPORTED;
use karst_engine::{
    Checkpoint, ColumnFamily, CompactFilesOptions, CompactRangeOptions, Db, ErrorKind,
    ExportImportFilesMetaData, FlushOptions, ImportColumnFamilyOptions, ReadOptions, WriteOptions,
};
use karst_io::FileSystem;
use karst_testkit::chronicle::{mark, marked};
use karst_testkit::random::Random;
use karst_testkit::show;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The expected state of an imported family.
#[derive(Clone, Debug)]
pub(crate) enum Imported {
    /// It is whole or absent. If whole, it has the entries that this family of the chronicle had at
    /// some time.
    Coming(usize),
    /// It exists, with the first of these sets of entries or the second.
    There(Entries, Entries),
    /// It may exist.
    Going,
}

async fn found(world: &World, db: &Db, family: &ColumnFamily) -> Entries {
    let mut cursor = world.ok("iterator", db.iter_cf(&ReadOptions::default(), family)).await;
    let mut entries = Entries::new();
    world.ok("iterator", cursor.seek_to_first_async().await).await;
    while cursor.valid() {
        let before = entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        assert!(before.is_none(), "{} is shown twice in {}", show(cursor.key()), family.name());
        world.ok("iterator", cursor.next_async().await).await;
    }
    world.ok("iterator", cursor.seek_to_last_async().await).await;
    for (key, value) in entries.iter().rev() {
        assert!(cursor.valid() && cursor.key() == key && cursor.value() == value, "{}: backward", show(key));
        world.ok("iterator", cursor.prev_async().await).await;
    }
    assert!(!cursor.valid(), "{}: {} backward", family.name(), show(cursor.key()));
    entries
}

impl World {
    pub(crate) fn set_imported(&self, name: &str, state: Option<Imported>) {
        let mut imported = self.imported.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match state {
            Some(state) => drop(imported.insert(name.to_owned(), state)),
            None => drop(imported.remove(name)),
        }
    }

    /// Compares the entries of an imported family with two possible states, and returns them.
    async fn check_imported(&self, db: &Db, family: &ColumnFamily, a: &Entries, b: &Entries) -> Entries {
        let entries = found(self, db, family).await;
        for key in a.keys() {
            let got = self.ok("get", db.get_cf_async(&ReadOptions::default(), family, key).await).await;
            let shown = entries.get(key).map(Vec::as_slice);
            assert!(got.as_deref() == shown, "{}, {}: get and scan differ", family.name(), show(key));
        }
        let keys = |of: &Entries| of.keys().map(|key| show(key)).collect::<Vec<_>>();
        assert!(
            entries == *a || entries == *b,
            "{} has {:?}, not {:?} or {:?}",
            family.name(),
            keys(&entries),
            keys(a),
            keys(b)
        );
        entries
    }
}

/// Clips to a smaller or empty range and checks the entries; returns them. In foul weather the
/// outcome may stay unknown: `None`.
async fn clip(
    world: &World,
    db: &Db,
    family: &ColumnFamily,
    entries: Entries,
    random: &mut Random,
) -> Option<Entries> {
    let keys: Vec<&Vec<u8>> = entries.keys().collect();
    let mut ends = [(); 2].map(|()| match keys.len() {
        0 => b"w".to_vec(),
        len => keys[random.index(len)].clone(),
    });
    ends.sort();
    if random.one_in(3) {
        ends[1] = ends[0].clone();
    }
    let inside = |key: &Vec<u8>| *key >= ends[0] && *key < ends[1];
    let left: Entries =
        entries.iter().filter(|(key, _)| inside(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    world.set_imported(family.name(), Some(Imported::There(entries, left.clone())));
    let clipped = db.clip_column_family_async(family, &ends[0], &ends[1]).await;
    world.unless_foul("clipping", clipped).await?;
    world.set_imported(family.name(), Some(Imported::There(left.clone(), left.clone())));
    world.check_imported(db, family, &left, &left).await;
    world.ok("counting garbage", check_blob_garbage(db, family).await).await;
    Some(left)
}

async fn drop_imported(world: &World, db: &Db, family: ColumnFamily) {
    let name = family.name().to_owned();
    world.set_imported(&name, Some(Imported::Going));
    let dropped = db.drop_column_family(&family);
    if world.unless_foul("dropping an imported family", dropped).await.is_some() {
        world.set_imported(&name, None);
    }
}

/// Runs after opening, before any snapshot: checks the imported families that earlier lives left,
/// clips and drops them. A family clipped to nothing must keep no table and no blob file.
///
/// Of a database that was `restored` the expected states are unknown; all imported families are
/// dropped.
pub(crate) async fn check_left(world: &World, db: &Db, restored: bool, random: &mut Random) {
    let left = {
        let mut imported = world.imported.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if restored {
            imported.clear();
        }
        imported.clone()
    };
    let known = |family: &&ColumnFamily| family.name().starts_with(IMPORTED);
    for family in db.column_families().iter().filter(known) {
        if restored {
            drop_imported(world, db, family.clone()).await;
            continue;
        }
        assert!(left.contains_key(family.name()), "{} was dropped, or never made", family.name());
    }
    for (name, state) in left {
        let family = db.column_family(&name);
        let (family, entries) = match (family, state) {
            (None, Imported::There(..)) => panic!("{name} is lost"),
            (None, _) => {
                world.set_imported(&name, None);
                continue;
            }
            (Some(family), Imported::There(a, b)) => {
                let entries = world.check_imported(db, &family, &a, &b).await;
                (family, entries)
            }
            (Some(family), Imported::Coming(source)) => {
                let entries = found(world, db, &family).await;
                let list: Vec<_> = entries.clone().into_iter().collect();
                let checked = world.chronicle().check_old_state(source, &list);
                checked.unwrap_or_else(|e| panic!("{name}: {e}"));
                (family, entries)
            }
            (Some(family), Imported::Going) => {
                drop_imported(world, db, family).await;
                continue;
            }
        };
        let mut entries = write_at_ends(world, db, &family, entries, random).await;
        for _ in 0..2 {
            entries = clip(world, db, &family, entries, random).await.expect("the weather is fair");
        }
        world.set_imported(&name, Some(Imported::There(entries, Entries::new())));
        world.ok("clipping", db.clip_column_family_async(&family, b"w", b"w").await).await;
        let shape = world.ok("metadata", db.column_family_metadata(&family)).await;
        assert!(
            shape.file_count == 0 && shape.blob_files.is_empty(),
            "clipped to nothing, and {shape:?} is there"
        );
        drop_imported(world, db, family).await;
        world.clipped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Moves the newest table of L0 down, above the entries that it deletes or hides, if possible.
async fn move_newest(world: &World, db: &Db, family: &ColumnFamily, level: usize) {
    let files = db.live_files().into_iter();
    let own = files.filter(|file| file.column_family == family.name() && file.level == Some(0));
    let Some(newest) = own.map(|file| file.number).max() else { return };
    let moving = CompactFilesOptions { allow_trivial_move: true, ..CompactFilesOptions::default() };
    match db.compact_files_async(&moving, family, &[newest], level).await {
        Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::TryAgain) => {}
        moved => drop(world.ok("moving a table", moved).await),
    }
}

/// Overwrites and deletes the first keys, deletes the last ones and overwrites a middle one; may
/// flush and move each batch. All writes are synced. Returns the entries.
async fn write_at_ends(
    world: &World,
    db: &Db,
    family: &ColumnFamily,
    mut entries: Entries,
    random: &mut Random,
) -> Entries {
    let keys: Vec<Vec<u8>> = entries.keys().cloned().collect();
    let count = keys.len().min(1 + random.index(3));
    let ends = [&keys[..count], &keys[keys.len() - count..]];
    let middle = keys.get(keys.len() / 2).cloned().into_iter().collect::<Vec<_>>();
    if random.one_in(2) {
        let blobs = [("enable_blob_files", "true"), ("min_blob_size", "100")];
        world.ok("set_options", db.set_options(family, &blobs)).await;
    }
    let steps = [(ends[0], false), (ends[0], true), (ends[1], true), (&middle[..], false)];
    for (keys, deletes) in steps {
        let before = entries.clone();
        let mut batch = karst_engine::WriteBatch::new();
        for key in keys {
            if deletes {
                batch.delete_cf(family, key).unwrap();
                entries.remove(key);
            } else {
                let value = random.bytes(400);
                batch.put_cf(family, key, &value).unwrap();
                entries.insert(key.clone(), value);
            }
        }
        world.set_imported(family.name(), Some(Imported::There(before, entries.clone())));
        world.ok("write", db.write_async(&WriteOptions::synced(), &batch).await).await;
        if random.one_in(2) {
            let flushed = db.flush_cfs_async(&FlushOptions::default(), &[family]).await;
            world.ok("flush", flushed).await;
        }
        match random.below(6) {
            0 => {
                let compact = CompactRangeOptions::default();
                let (begin, end) = (keys.first(), keys.last());
                let (begin, end) = (begin.map(Vec::as_slice), end.map(Vec::as_slice));
                let compacted = db.compact_range_cf_async(&compact, family, begin, end).await;
                world.ok("compact_range", compacted).await;
            }
            1..4 => move_newest(world, db, family, 1 + random.index(5)).await,
            _ => {}
        }
    }
    world.set_imported(family.name(), Some(Imported::There(entries.clone(), entries.clone())));
    entries
}

impl User {
    /// Imports families while tasks use the database. This is not a task, because an import blocks:
    /// on the stack of a task that leads the log, an import that waits for the log would deadlock.
    pub(crate) async fn import(mut self) {
        while !self.world.is_over() {
            self.pause(100_000).await;
            if self.random.one_in(2) {
                self.export_and_import().await;
            }
        }
    }

    /// Exports a family and imports it as another, which is clipped, dropped or left to the next
    /// life.
    async fn export_and_import(&mut self) {
        let (world, db) = (self.world.clone(), self.db.clone());
        if world.plan.flushes_all_together() {
            return;
        }
        let source = self.random.index(world.plan.families);
        let number = self.random.next_u64();
        let directory = format!("/export-{number:x}");
        let before = world.acknowledged();
        let exported = {
            let checkpoint = world.ok("a checkpoint", Checkpoint::new(&db)).await;
            let family = &self.families.0[source];
            checkpoint.export_column_family_async(family, Path::new(&directory)).await
        };
        // A family with blob files, or without tables, cannot be exported and imported.
        if matches!(&exported, Err(e) if e.kind() == ErrorKind::NotSupported) {
            return;
        }
        let Some(mut metadata) = world.unless_foul("exporting", exported).await else { return };
        let name = format!("{IMPORTED}{number:x}");
        let carried = PathBuf::from(format!("/carried-{number:x}"));
        if world.weather == Weather::Fair && self.random.one_in(2) {
            let done = carry(self.env.fs().as_ref(), &mut metadata, &carried).map_err(Into::into);
            world.ok("copying tables", done).await;
        }
        if !metadata.files.is_empty() {
            world.set_imported(&name, Some(Imported::Coming(source)));
            let import = ImportColumnFamilyOptions { move_files: self.random.one_in(2) };
            let options = world.plan.options(&self.env);
            let made = db.create_column_family_with_import(&name, &options, &import, &metadata);
            if let Some(family) = world.unless_foul("importing", made).await {
                let entries = found(&world, &db, &family).await;
                let list: Vec<_> = entries.clone().into_iter().collect();
                let checked = world.chronicle().check_old_state(source, &list);
                checked.unwrap_or_else(|e| panic!("{name}: {e}"));
                for writer in 0..world.plan.writers {
                    let seen = marked(entries.get(&mark(writer)).map(Vec::as_slice)).unwrap();
                    let least = {
                        let chronicle = world.chronicle();
                        marked(chronicle.value(source, &mark(writer), &before)).unwrap()
                    };
                    assert!(seen >= least, "{name}: batch {seen} of writer {writer}, {least} at least");
                }
                world.set_imported(&name, Some(Imported::There(entries.clone(), entries.clone())));
                self.use_imported(family, entries).await;
            }
        }
        let fs = self.env.fs();
        for directory in [Path::new(&directory), &carried] {
            for name in fs.list_dir(directory).unwrap_or_default() {
                let _ = fs.remove(&directory.join(name));
            }
            let _ = fs.remove_dir(directory);
        }
    }

    async fn use_imported(&mut self, family: ColumnFamily, entries: Entries) {
        let (world, db) = (self.world.clone(), self.db.clone());
        world.imports.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if self.random.one_in(2) {
            return;
        }
        let entries = match world.weather {
            Weather::Fair => write_at_ends(&world, &db, &family, entries, &mut self.random).await,
            Weather::Foul => entries,
        };
        let clipped = clip(&world, &db, &family, entries, &mut self.random).await;
        if clipped.is_some() && self.random.one_in(2) {
            drop_imported(&world, &db, family).await;
        }
    }
}

/// Copies the exported tables to another directory without syncing, as some programs do.
fn carry(fs: &dyn FileSystem, metadata: &mut ExportImportFilesMetaData, to: &Path) -> karst_io::Result<()> {
    fs.create_dir(to)?;
    for file in &mut metadata.files {
        let bytes = fs.read_file(&file.directory.join(&file.name))?;
        fs.create(&to.join(&file.name))?.append(&bytes)?;
        file.directory = to.to_owned();
    }
    Ok(())
}
