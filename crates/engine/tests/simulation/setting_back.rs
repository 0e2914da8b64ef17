//! Recovery with `best_efforts_recovery` after a crash and the loss of files: each column family
//! gets a state that it had at some time, and never a wrong value. It is done on a copy, so that
//! the database itself is unaffected.

use crate::machine::{World, ends_with};
use crate::store::{self, Families};
use karst_engine::{Db, DbPath, ErrorKind, Options, ReadOptions};
use karst_io::{Env, FileSystem};
use karst_testkit::chronicle::Cut;
use karst_testkit::random::Random;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Prefix of the names of the copies.
const COPY: &str = "/set-back-";

/// Files that are lost beside the effects of the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Nothing,
    Table,
    Blob,
    Current,
    /// The MANIFEST and the logs, for the reason of [`Loss::ManifestEnd`].
    Manifest,
    /// The end of the MANIFEST, and the logs: an ingested file is in no log, so replaying entries
    /// logged after a file that the MANIFEST no longer has would give a state that never was.
    ManifestEnd,
}

impl Loss {
    fn draw(random: &mut Random) -> Loss {
        match random.below(10) {
            0 => Loss::Nothing,
            1..=4 => Loss::Table,
            5 => Loss::Blob,
            6 => Loss::Current,
            7 => Loss::Manifest,
            _ => Loss::ManifestEnd,
        }
    }

    /// Returns those of the directory's file names that this loss may remove.
    fn may_take(self, names: &[String]) -> Vec<String> {
        let newest_manifest = || names.iter().filter(|name| name.starts_with("MANIFEST-")).max();
        let ending = |end: &str| names.iter().filter(|name| name.ends_with(end)).cloned().collect();
        match self {
            Loss::Nothing => Vec::new(),
            Loss::Table => ending(".sst"),
            Loss::Blob => ending(".blob"),
            Loss::Current => ending("CURRENT"),
            Loss::Manifest | Loss::ManifestEnd => newest_manifest().cloned().into_iter().collect(),
        }
    }
}

/// Checks a copy before the database is opened. `power`: unsynced writes may be lost.
pub(crate) async fn check(world: &World, env: &Env, random: &mut Random, power: bool) {
    let directory = PathBuf::from(format!("{COPY}{:x}", random.next_u64()));
    let mut losses = vec![Loss::draw(random)];
    if random.one_in(4) {
        losses.push(Loss::draw(random));
    }
    let lost = lose(world, env.fs().as_ref(), &directory, &losses, random);
    let Some(lost) = world.ok("copying the files", lost.map_err(Into::into)).await else { return };
    let what = format!("{} without {lost:?}", directory.display());
    let options = world.plan.options_of_copy(env, &directory);
    let best_efforts = options.clone().set("best_efforts_recovery", "true").unwrap();
    let opened = open(world, env, &directory, &best_efforts);
    let without_manifest = losses.iter().any(|loss| matches!(loss, Loss::Manifest | Loss::ManifestEnd));
    match opened {
        Err(e) if without_manifest && !world.is_off() => {
            let kind = e.kind();
            assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::NotFound), "{what}: {e}");
        }
        opened => {
            let db = world.ok(&what, opened).await;
            let cuts = states(world, &db, &what).await;
            if lost.is_empty() {
                let whole = world.chronicle().clone().survive(&cuts[0], power);
                whole.unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            world.ok(&what, db.verify_checksum()).await;
            world.ok(&what, db.close()).await;
            drop(db);
            // Later openings need no `best_efforts_recovery`.
            let there = Db::list_column_families(&directory, &options);
            let there = world.ok(&what, there).await;
            let names: Vec<&str> = there.iter().map(String::as_str).collect();
            let db = world.ok(&what, Db::open_cf(&directory, &options, &names)).await;
            assert_eq!(states(world, &db, &what).await, cuts, "{what}, opened again");
            world.ok(&what, db.close()).await;
            if !lost.is_empty() && cuts.iter().any(|cut| cut.0.iter().any(|seen| *seen > 0)) {
                world.set_back.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let removed = remove(env.fs().as_ref(), &directory).map_err(Into::into);
    world.ok("removing a copy", removed).await;
}

/// Opens the copy with all families of its state, including those that may have been dropped since,
/// and those of the plan.
fn open(world: &World, env: &Env, directory: &Path, best_efforts: &Options) -> karst_engine::Result<Db> {
    let to_look = Options::new().env(env.clone()).set("best_efforts_recovery", "true")?;
    // The copied OPTIONS file may name the directory of the database's own logs.
    let to_look = to_look.set("wal_dir", &directory.to_string_lossy())?;
    let looked =
        Db::open_read_only(directory, &to_look.db_paths([(); 4].map(|()| DbPath::new(directory, 0))))?;
    let mut names = world.plan.names();
    names.extend(looked.column_families().iter().map(|family| family.name().to_owned()));
    drop(looked);
    names.sort();
    names.dedup();
    Db::open_cf(directory, best_efforts, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the state of each family, which must be one that it had at some time.
async fn states(world: &World, db: &Db, what: &str) -> Vec<Cut> {
    let families = Families::of(db, &world.plan);
    let mut cuts = Vec::new();
    for (number, family) in families.0[..world.plan.families].iter().enumerate() {
        let mut entries = Vec::new();
        let mut cursor = world.ok(what, db.iter_cf(&ReadOptions::default(), family)).await;
        world.ok(what, cursor.seek_to_first_async().await).await;
        while cursor.valid() {
            entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
            world.ok(what, cursor.next_async().await).await;
        }
        let checked = world.chronicle().check_old_state(number, &entries);
        cuts.push(checked.unwrap_or_else(|e| panic!("{what}: {e}")));
    }
    cuts
}

/// Copies the database's files into one directory and removes some. Returns their names, or `None`
/// if there is no database yet.
fn lose(
    world: &World,
    fs: &dyn FileSystem,
    to: &Path,
    losses: &[Loss],
    random: &mut Random,
) -> karst_io::Result<Option<Vec<String>>> {
    if !fs.exists(&Path::new(store::DIRECTORY).join("CURRENT"))? {
        return Ok(None);
    }
    fs.create_dir(to)?;
    let begins = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ["MANIFEST-", "OPTIONS-", "CURRENT", "IDENTITY"].iter().any(|begin| name.starts_with(begin))
    };
    let mut names = Vec::new();
    for path in world.files() {
        if begins(&path) || ends_with(&path, &[".sst", ".blob", ".log"]) {
            let name = path.file_name().unwrap_or_default();
            write(fs, &to.join(name), &fs.read_file(&path)?)?;
            names.push(name.to_string_lossy().into_owned());
        }
    }
    let mut lost = Vec::new();
    for loss in losses {
        let candidates = loss.may_take(&names);
        if candidates.is_empty() {
            continue;
        }
        let name = candidates[random.index(candidates.len())].clone();
        let path = to.join(&name);
        let bytes = fs.read_file(&path)?;
        fs.remove(&path)?;
        if *loss == Loss::ManifestEnd {
            let left = random.below(bytes.len() as u64 + 1) as usize;
            write(fs, &path, &bytes[..left])?;
            lost.push(format!("{name} behind {left} of {}", bytes.len()));
        } else {
            names.retain(|other| *other != name);
            lost.push(name);
        }
        if matches!(loss, Loss::Manifest | Loss::ManifestEnd) {
            for name in names.extract_if(.., |name| name.ends_with(".log")) {
                fs.remove(&to.join(&name))?;
                lost.push(name);
            }
        }
    }
    Ok(Some(lost))
}

fn write(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> karst_io::Result<()> {
    fs.create(path)?.append(bytes)
}

/// Removes the copy, with the files that recovery moved to `lost`.
fn remove(fs: &dyn FileSystem, directory: &Path) -> karst_io::Result<()> {
    for directory in [directory.join("lost"), directory.to_owned()] {
        if fs.exists(&directory)? {
            for name in fs.list_dir(&directory)? {
                fs.remove(&directory.join(name))?;
            }
            fs.remove_dir(&directory)?;
        }
    }
    Ok(())
}
