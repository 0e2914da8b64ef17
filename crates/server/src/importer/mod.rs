//! Imports of what another server holds: values as DUMP has them, and files of RDB.
//!
//! In: payloads with their keys and expiries, or the bytes of a file. Out: a database that
//! [`Server::open`](crate::Server::open) opens, and counts.
//!
//! Invariants: keys are written in the order in which they came, and committed together, about
//! [`BYTES_AT_ONCE`] at a time. A key is there before the import if the view of its beginning has
//! it; so a key that comes twice, as SCAN has them, is not refused the second time.

use crate::commands::restoring;
use crate::lua::Library;
use crate::rdb::{self, BadFile, BadPayload, Checksum, FileKey, FilePart, FileReader, split_footer};
use crate::server::Libraries;
use crate::store::{Access, Durability, Key, Kind, Millis, Store, StoreOptions};
use crate::wrong::Wrong;
use karstdb::io::Env;
use std::fmt;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;

/// Maximum memory of the writes of one value, in bytes for each of its bytes, and at least.
const EXPANDED_BY: usize = 1000;
const EXPANDED_AT_LEAST: usize = 1 << 30;

/// Bytes of payloads, and number of keys, that are written together.
const BYTES_AT_ONCE: usize = 1 << 20;
const KEYS_AT_ONCE: usize = 4096;
/// Keys that are looked up at the same time, with their values.
const LOOKED_UP_AT_ONCE: usize = 64;
/// Bytes of writes after which a collection is committed in parts.
const PART: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };
/// Refusals that are kept with their reasons.
const REFUSALS_AT_MOST: usize = 16;
/// Bytes of a name that an error quotes.
const QUOTED_AT_MOST: usize = 128;

/// Options of [`Importer::open`].
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Number of databases, 1 to 65535; keys of others are refused. Default: 16, as a server's.
    pub databases: u16,
    /// Replaces existing keys and libraries. Default: false, and existing ones stay.
    pub replaces: bool,
    /// Options of the KarstDB database. Those that the layout needs override them.
    pub db: karstdb::Options,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { databases: 16, replaces: false, db: karstdb::Options::new() }
    }
}

/// Counts of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Number of strings that were written.
    pub strings: u64,
    /// Number of lists that were written.
    pub lists: u64,
    /// Number of sets that were written.
    pub sets: u64,
    /// Number of hashes that were written.
    pub hashes: u64,
    /// Number of sorted sets that were written.
    pub sorted_sets: u64,
    /// Number of streams that were written.
    pub streams: u64,
    /// Number of libraries of functions that were written, or were there with the same code.
    pub libraries: u64,
    /// Bytes of the payloads of keys that were written.
    pub bytes: u64,
    /// Number of keys that were there before, and stay as they were.
    pub existing: u64,
    /// Number of keys whose expiry had come, or that of all of their fields.
    pub expired: u64,
    /// Number of keys and libraries whose value is not taken.
    pub refused: u64,
    /// The first 16 of these, each with its name and the reason.
    pub refusals: Vec<String>,
}

impl Imported {
    /// Returns the number of keys that were written.
    pub fn keys(&self) -> u64 {
        let collections = self.lists + self.sets + self.hashes + self.sorted_sets + self.streams;
        self.strings + collections
    }

    fn note(&mut self, kind: Kind, bytes: usize) {
        *match kind {
            Kind::String => &mut self.strings,
            Kind::List => &mut self.lists,
            Kind::Set => &mut self.sets,
            Kind::Hash => &mut self.hashes,
            Kind::SortedSet => &mut self.sorted_sets,
            Kind::Stream => &mut self.streams,
        } += 1;
        self.bytes += bytes as u64;
    }

    fn refuse(&mut self, what: fmt::Arguments<'_>, why: &str) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_AT_MOST {
            self.refusals.push(format!("{what}: {why}"));
        }
    }
}

/// Reason why an import cannot go on. The text names the offset in a file and the key, where there
/// are such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError(String);

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}

impl From<karstdb::Error> for ImportError {
    fn from(error: karstdb::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<Wrong> for ImportError {
    fn from(wrong: Wrong) -> Self {
        Self(reason(&wrong).to_owned())
    }
}

impl From<BadFile> for ImportError {
    fn from(BadFile { offset, key, why }: BadFile) -> Self {
        Self(match key {
            Some((db, name)) => format!("offset {offset}: {}: {why}", Named(db, &name)),
            None => format!("offset {offset}: {why}"),
        })
    }
}

/// The text of an error reply without its code.
fn reason(wrong: &Wrong) -> &str {
    wrong.text().strip_prefix("ERR ").unwrap_or(wrong.text())
}

/// A key in a text.
struct Named<'a>(u64, &'a [u8]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(db, name) = self;
        let (shown, dots) = match name.get(..QUOTED_AT_MOST) {
            Some(shown) => (shown, "..."),
            None => (*name, ""),
        };
        write!(f, "key \"{}\"{dots} of database {db}", shown.escape_ascii())
    }
}

/// A key that is not written yet.
struct Waiting {
    key: Key,
    body: Vec<u8>,
    expiry: Option<Millis>,
    /// Offset in the file that it came from.
    offset: Option<u64>,
}

/// An import into a database that no server has open. `Send`.
///
/// Its futures write by the calling thread, and wait for the device. A future that is dropped
/// before its end may leave keys out; [`close`](Self::close) is then the only call that may follow.
pub struct Importer {
    env: Env,
    store: Store,
    libraries: Libraries,
    databases: u16,
    replaces: bool,
    /// The state of the beginning; `None`: there was no key, or keys are replaced.
    before: Option<Access>,
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    imported: Imported,
}

impl Importer {
    /// Opens or creates the database at `path`.
    ///
    /// # Errors
    /// Those of [`karstdb::Db::open`]: among them that a server has it open. `NotSupported`: the
    /// directory has a database that is no server's.
    pub async fn open(path: &Path, options: &ImportOptions, env: &Env) -> karstdb::Result<Self> {
        let databases = options.databases.max(1);
        let of_store = StoreOptions { databases, options: options.db.clone() };
        let store = Store::open(path, &of_store, env).await?;
        let libraries = Libraries::load(&store, env).await?;
        let has_keys = (0..databases).any(|db| store.size(db) > 0);
        let before = (has_keys && !options.replaces).then(|| {
            let view = store.view(store.now());
            view.pin();
            view
        });
        Ok(Self {
            env: env.clone(),
            store,
            libraries,
            databases,
            replaces: options.replaces,
            before,
            waiting: Vec::new(),
            waiting_bytes: 0,
            imported: Imported::default(),
        })
    }

    /// Returns the counts of what was written so far. Up to 1 MiB of payloads waits beside it.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// Adds a key of database `db`, with its value as DUMP of Redis 4 to 7.4 has it, and its expiry
    /// in milliseconds since 1970. Writes once 1 MiB of payloads waits. A value that is damaged, or
    /// of a type that is not read, is counted as refused, and the import goes on.
    ///
    /// # Errors
    /// The database has a number that is not below [`ImportOptions::databases`], or the write has
    /// failed.
    pub async fn put(
        &mut self,
        db: u64,
        name: &[u8],
        payload: &[u8],
        expiry: Option<i64>,
    ) -> Result<(), ImportError> {
        let key = self.key(db, name)?;
        let why = match checked(payload) {
            Ok(body) => {
                return self.add(Waiting { key, body: body.to_vec(), expiry, offset: None }).await;
            }
            Err(BadPayload) => match rdb::refused_type(payload) {
                Some(why) => why,
                None => "its version or its checksum are wrong".to_owned(),
            },
        };
        self.imported.refuse(format_args!("{}", Named(db, name)), &why);
        Ok(())
    }

    /// Adds the libraries of functions of a payload of FUNCTION DUMP. A library that exists with
    /// other code, or fails, is counted as refused, and the import goes on.
    ///
    /// # Errors
    /// The payload is damaged, or the write has failed.
    pub async fn put_libraries(&mut self, payload: &[u8]) -> Result<(), ImportError> {
        let damaged = |_| ImportError("the libraries of functions: damaged".to_owned());
        let codes = rdb::libraries(checked(payload).map_err(damaged)?);
        for code in codes.map_err(|why| ImportError(format!("the libraries of functions: {why}")))? {
            self.library(&code).await?;
        }
        Ok(())
    }

    /// Imports an RDB file of version 1 to 12: what Redis up to 7.4 writes, and Valkey 8. Blocks
    /// the thread while `file` is read, in pieces of 256 KiB. `on_progress` gets the counts and the
    /// number of bytes that were read, after each 1 MiB or 4,096 keys; if it breaks, the import
    /// ends there. Returns true at the end of the file, whose checksum is right then. May be called
    /// for several files.
    ///
    /// # Errors
    /// The file is damaged, ends too early, or has a value that is not read; what came before it in
    /// the file is imported. Those of [`put`](Self::put).
    pub async fn read_file(
        &mut self,
        file: impl Read,
        mut on_progress: impl FnMut(&Imported, u64) -> ControlFlow<()>,
    ) -> Result<bool, ImportError> {
        let mut file = FileReader::new(file)?;
        loop {
            let part = match file.next() {
                Ok(part) => part,
                Err(error) => {
                    self.write().await?;
                    return Err(error.into());
                }
            };
            match part {
                Some(FilePart::Key(FileKey { db, name, expiry, body, offset })) => {
                    let key = match self.key(db, &name) {
                        Ok(key) => key,
                        Err(error) => {
                            self.write().await?;
                            return Err(ImportError(format!("offset {offset}: {error}")));
                        }
                    };
                    self.add(Waiting { key, body, expiry, offset: Some(offset) }).await?;
                }
                Some(FilePart::Library(code)) => self.library(&code).await?,
                None => break,
            }
            if self.waiting.is_empty() && on_progress(&self.imported, file.offset()).is_break() {
                return Ok(false);
            }
        }
        self.write().await?;
        let _is_at_its_end = on_progress(&self.imported, file.offset());
        Ok(true)
    }

    /// Writes the keys that wait, puts everything on the device and closes the database. Returns
    /// the counts. It is called after errors too; dropped without it the importer leaves out what
    /// waits, and its last writes may not be on the device.
    ///
    /// # Errors
    /// A write has failed, or the database failed to close.
    pub async fn close(mut self) -> Result<Imported, ImportError> {
        let written = self.write().await;
        self.before = None;
        let closed = self.store.close().await;
        written?;
        closed?;
        Ok(self.imported)
    }

    fn key(&self, db: u64, name: &[u8]) -> Result<Key, ImportError> {
        match u16::try_from(db) {
            Ok(db) if db < self.databases => Ok(Key { db, name: name.to_vec() }),
            _ => {
                let (named, databases) = (Named(db, name), self.databases);
                Err(ImportError(format!("{named}: the number of databases is {databases}")))
            }
        }
    }

    async fn library(&mut self, code: &[u8]) -> Result<(), ImportError> {
        let known = self.libraries.now();
        if known.all().any(|library| library.code[..] == *code) {
            self.imported.libraries += 1;
            return Ok(());
        }
        let (store, env) = (&self.store, &self.env);
        match self.libraries.add(code, self.replaces, store, env, Durability::Logged).await {
            Ok(_) => self.imported.libraries += 1,
            Err(wrong) if wrong.is_of_store() => return Err(wrong.into()),
            Err(wrong) => {
                let name = Library::name_of(code).unwrap_or_default();
                self.imported.refuse(format_args!("library \"{name}\""), reason(&wrong));
            }
        }
        Ok(())
    }

    async fn add(&mut self, waiting: Waiting) -> Result<(), ImportError> {
        self.waiting_bytes += waiting.key.name.len() + waiting.body.len();
        self.waiting.push(waiting);
        if self.waiting_bytes < BYTES_AT_ONCE && self.waiting.len() < KEYS_AT_ONCE {
            return Ok(());
        }
        self.write().await
    }

    /// Writes and commits what waits; up to a value of a file that is not taken.
    async fn write(&mut self) -> Result<(), ImportError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if waiting.is_empty() {
            return Ok(());
        }
        let mut were_there = Vec::new();
        if let Some(before) = &self.before {
            for some in waiting.chunks(LOOKED_UP_AT_ONCE) {
                let keys: Vec<Key> = some.iter().map(|it| it.key.clone()).collect();
                were_there.extend(before.kinds(&keys).await?);
            }
        }
        were_there.resize(waiting.len(), None);
        // The importer is the only writer, and locking all keys once costs less than each key.
        let mut access = self.store.change_all().await;
        for (it, was_there) in waiting.iter().zip(were_there) {
            if was_there.is_some() {
                self.imported.existing += 1;
                continue;
            }
            if it.expiry.is_some_and(|at| at <= access.now()) {
                // What an earlier import has left of it has gone at the source too.
                if self.replaces {
                    access.delete(&it.key).await?;
                }
                self.imported.expired += 1;
                continue;
            }
            match write_one(&mut access, it).await {
                Ok(Some(kind)) => self.imported.note(kind, it.body.len()),
                Ok(None) => self.imported.expired += 1,
                Err(wrong) if wrong.is_of_store() => return Err(wrong.into()),
                Err(wrong) => {
                    let named = Named(it.key.db.into(), &it.key.name);
                    let why = rdb::refused_type(&it.body).unwrap_or_else(|| reason(&wrong).to_owned());
                    match it.offset {
                        None => self.imported.refuse(format_args!("{named}"), &why),
                        Some(offset) => {
                            access.commit(Durability::Logged).await?;
                            return Err(ImportError(format!("offset {offset}: {named}: {why}")));
                        }
                    }
                }
            }
            if access.pending() >= PART {
                access.commit(Durability::Logged).await?;
            }
        }
        Ok(access.commit(Durability::Logged).await?)
    }
}

impl fmt::Debug for Importer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Importer({:?}, {} keys wait)", self.imported, self.waiting.len())
    }
}

/// Writes a key in place of what is there. Returns its type; `None` if all of its fields have
/// expired, and the key is gone.
///
/// # Errors
/// The value is refused, and nothing of it is written; or the store has failed.
async fn write_one(access: &mut Access, it: &Waiting) -> Result<Option<Kind>, Wrong> {
    // Names of a stream's fields are written once for each entry that has them.
    let at_most = it.body.len().saturating_mul(EXPANDED_BY).max(EXPANDED_AT_LEAST);
    let kind = restoring::check(&it.body, at_most).await?;
    // A string takes the place of a value of any type.
    if kind != Kind::String {
        access.delete(&it.key).await?;
    }
    restoring::write(access, &it.key, &it.body, it.expiry, Some(PART)).await?;
    Ok(match kind {
        Kind::Hash => access.kind(&it.key).await?,
        _ => Some(kind),
    })
}

/// Checks the footer of a payload and splits it off.
fn checked(payload: &[u8]) -> Result<&[u8], BadPayload> {
    let (body, summed, expected) = split_footer(payload)?;
    let mut sum = Checksum::default();
    sum.add(summed);
    if sum.sum() == expected { Ok(body) } else { Err(BadPayload) }
}

#[cfg(test)]
mod tests;
