//! Checkpoints and backups of the stressed database. Each is opened for reading, and its rows are
//! compared with the states that they had between the beginning of the copy and now.

use super::calls::{Calls, Store};
use super::counts::Count;
use super::expected::{Judgement, Row};
use super::lane::{Lane, mismatch, sum_of_accounts};
use super::place::{all_beside, beside, remove_database};
use super::rows::{Key, Place, family_name};
use super::wrong::Wrong;
use crate::bench::Front;
use karst_engine::{
    BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, ErrorKind, ReadOptions,
    RestoreOptions,
};
use std::path::Path;
use std::sync::Arc;

/// Rows of each family that are compared in a copy.
const ROWS_OF_A_COPY: usize = 100;
/// Number of backups that are kept.
const BACKUPS_KEPT: usize = 3;

/// Removes copies left by earlier lives. Backups stay.
pub(crate) fn remove_left(db: &Path) -> std::io::Result<()> {
    all_beside(db, ".copy-")?.iter().try_for_each(|(path, _)| remove_database(path))
}

/// Removes copies, backups and everything else made of the database beside it.
pub(crate) fn remove_all(db: &Path) -> std::io::Result<()> {
    remove_left(db)?;
    for directory in [beside(db, ".backups"), super::whole_copies::folder(db)] {
        match std::fs::remove_dir_all(directory) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

impl Lane {
    /// Takes a checkpoint, compares it with the expected state and removes it. Blocks.
    pub(super) async fn checkpoint(&mut self) -> Result<(), Wrong> {
        let failed = Self::failed("a checkpoint");
        let db = self.calls.store.db().clone();
        let path = beside(db.path(), &format!(".copy-{}", self.lane));
        let before = self.rows_to_compare();
        let least = [0, 100_000, u64::MAX][self.random.index(3)];
        let checkpoint = Checkpoint::new(&db).map_err(&failed)?;
        checkpoint.create_checkpoint(&path, least).map_err(&failed)?;
        self.count(Count::Checkpoints);
        self.compare(&path, "a checkpoint", before).await
    }

    /// Makes a backup, restores it elsewhere, compares that with the expected state and removes it.
    /// Blocks.
    pub(super) async fn back_up(&mut self) -> Result<(), Wrong> {
        let failed = Self::failed("a backup");
        let db = self.calls.store.db().clone();
        let options = BackupEngineOptions::new(beside(db.path(), ".backups"));
        let mut engine = match BackupEngine::open(&options, db.env()) {
            // Another lane makes a backup.
            Err(e) if e.kind() == ErrorKind::Locked => return Ok(()),
            opened => opened.map_err(&failed)?,
        };
        if let Some((id, error)) = engine.get_corrupted_backups().first() {
            return Err(Wrong::Mismatch(format!("of backups: {id} cannot be used: {error}")));
        }
        let before = self.rows_to_compare();
        let how = CreateBackupOptions { flush_before_backup: self.random.one_in(2), ..Default::default() };
        let id = engine.create_new_backup(&db, &how).map_err(&failed)?;
        self.count(Count::Backups);
        for info in engine.get_backup_info() {
            let verified = engine.verify_backup(info.backup_id, info.backup_id == id);
            verified.map_err(|e| Wrong::Mismatch(format!("of backups: {e}")))?;
        }
        let path = beside(db.path(), &format!(".copy-{}", self.lane));
        engine.restore_db_from_backup(id, &path, &path, &RestoreOptions::default()).map_err(&failed)?;
        engine.purge_old_backups(BACKUPS_KEPT).map_err(&failed)?;
        drop(engine);
        self.compare(&path, "a backup", before).await
    }

    /// Draws rows of every family, with their states before a copy is made.
    fn rows_to_compare(&mut self) -> Vec<Vec<(Key, Place, Row)>> {
        let (families, all) = (self.shared.expected.shape.families, self.shared.ordered.len());
        let mut chosen = Vec::new();
        for family in 0..families {
            let mut rows = Vec::new();
            for _ in 0..ROWS_OF_A_COPY {
                let at = self.random.index(all);
                let (key, place) = self.place(family, at);
                rows.push((key, place, self.shared.expected.row(place)));
            }
            chosen.push(rows);
        }
        chosen
    }

    /// Compares a copy with rows as they were before it was made, and removes it.
    async fn compare(
        &self,
        path: &Path,
        what: &str,
        before: Vec<Vec<(Key, Place, Row)>>,
    ) -> Result<(), Wrong> {
        let what = &format!("{what}, {}", path.display());
        let failed = |error| Wrong::Failed(format!("{what}, opened: {error}"));
        let options = self.shared.drawn.options(&self.shared.flags).map_err(Wrong::Failed)?;
        let db = Db::open_read_only(path, &options).map_err(failed)?;
        let families = (0..self.shared.expected.shape.families).map(|family| {
            let name = family_name(family);
            let none = || Wrong::Mismatch(format!("of column families: {name} is not in {what}"));
            db.column_family(&name).ok_or_else(none)
        });
        let families = families.collect::<Result<Vec<_>, _>>()?;
        let store = Store { front: Front::Plain(db.clone()), families };
        let copy = Calls { store: Arc::new(store), asynchronous: false };
        for (family, rows) in before.iter().enumerate() {
            let keys: Vec<Key> = rows.iter().map(|(key, ..)| *key).collect();
            let found = copy.multi_get(&ReadOptions::default(), family, &keys).await.map_err(failed)?;
            for ((key, place, before), found) in rows.iter().zip(&found) {
                match self.shared.expected.judge(*place, before, found.as_deref()) {
                    Judgement::Right => self.count(Count::Checked),
                    Judgement::Undecided => self.count(Count::Undecided),
                    Judgement::Wrong(texts) => {
                        return Err(mismatch(what, *place, key, &texts, found.as_deref()));
                    }
                }
            }
        }
        let snapshot = db.snapshot();
        sum_of_accounts(&copy, &snapshot, before.len(), false).await?;
        drop((snapshot, copy, db));
        std::fs::remove_dir_all(path).map_err(|e| Wrong::Failed(format!("{}: {e}", path.display())))
    }
}
