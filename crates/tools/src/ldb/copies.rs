//! ldb's commands for copies: checkpoint, backup, restore.

use super::arguments::Arguments;
use super::data::{failed, take_db};
use crate::output::Fault;
use karst_engine::io::Env;
use karst_engine::{BackupEngine, BackupEngineOptions, Checkpoint, CreateBackupOptions, Db, RestoreOptions};
use std::io::Write;

fn say(out: &mut impl Write, line: &str) -> Result<(), Fault> {
    writeln!(out, "{line}").map_err(failed)
}

fn take_needed(args: &mut Arguments, command: &str, flag: &str) -> Result<String, Fault> {
    let given = args.take_value(flag).filter(|value| !value.is_empty());
    given.ok_or_else(|| Fault::Usage(format!("{command} needs --{flag}=DIRECTORY")))
}

/// Makes a checkpoint: a directory with hard links to the tables of the database.
pub(crate) fn checkpoint(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    let directory = take_needed(&mut args, "checkpoint", "checkpoint_dir")?;
    let opening = args.opening.clone();
    args.finish("checkpoint")?;
    let db = Db::open(&path, &opening)?;
    Checkpoint::new(&db)?.create_checkpoint(&directory, 0)?;
    db.close()?;
    say(out, "OK")
}

/// Adds a backup of the database to those in a directory.
pub(crate) fn backup(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    let options = take_options(&mut args, "backup")?;
    let opening = args.opening.clone();
    args.finish("backup")?;
    let db = Db::open(&path, &opening)?;
    say(out, "open db OK")?;
    let mut engine = BackupEngine::open(&options, db.env())?;
    say(out, "open backup engine OK")?;
    engine.create_new_backup(&db, &CreateBackupOptions::default())?;
    db.close()?;
    say(out, "create new backup OK")
}

/// Restores the database from the latest backup in a directory.
pub(crate) fn restore(mut args: Arguments, out: &mut impl Write) -> Result<(), Fault> {
    let path = take_db(&mut args)?;
    let options = take_options(&mut args, "restore")?;
    args.finish("restore")?;
    let engine = BackupEngine::open_read_only(&options, &Env::posix())?;
    say(out, "open restore engine OK")?;
    engine.restore_db_from_latest_backup(&path, &path, &RestoreOptions::default())?;
    say(out, "restore from backup OK")
}

fn take_options(args: &mut Arguments, command: &str) -> Result<BackupEngineOptions, Fault> {
    let mut options = BackupEngineOptions::new(take_needed(args, command, "backup_dir")?);
    if let Some(threads) = args.take_number("num_threads")? {
        options.max_background_operations = threads;
    }
    Ok(options)
}
