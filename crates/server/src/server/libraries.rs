//! The libraries of functions: those in memory, and their changes in the store.
//!
//! A library is known once its code has run and its record is written. Changes come one after the
//! other; readers have the libraries as they were at one moment.

use crate::lua::{FunctionMeta, Input, Job, Library, Machine, Outcome, Output};
use crate::store::{Durability, Store};
use crate::wrong::Wrong;
use karstdb::io::{Env, report, sleep, yield_now};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Time that the code of a library may run when it is loaded.
const LOAD_AT_MOST: Duration = Duration::from_millis(500);
/// Time that the code of a library of the store may run, which did run before.
const LOAD_AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// Pauses of the code after which time passes for others.
const PAUSES: usize = 64;
const PAUSE: Duration = Duration::from_micros(100);
/// Maximum number of bytes of all libraries.
const BYTES_AT_MOST: usize = 256 << 20;

/// Libraries at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownLibraries {
    by_name: BTreeMap<String, Arc<Library>>,
    /// By the names of functions in lower case.
    by_function: HashMap<String, Arc<Library>>,
}

impl KnownLibraries {
    /// All, in the order of their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Library>> {
        self.by_name.values()
    }

    /// Number of libraries, of functions, and of bytes of code.
    pub(crate) fn sizes(&self) -> (usize, usize, usize) {
        let bytes = self.by_name.values().map(|library| library.code.len()).sum();
        (self.by_name.len(), self.by_function.len(), bytes)
    }

    /// The library that has a function of this name, in any case.
    pub(crate) fn with_function(&self, name: &str) -> Option<&Arc<Library>> {
        self.by_function.get(&name.to_ascii_lowercase())
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Library>> {
        let library = self.by_name.remove(name)?;
        self.by_function.retain(|_, of| !Arc::ptr_eq(of, &library));
        Some(library)
    }

    /// Adds a library whose name is free.
    fn add(&mut self, library: &Arc<Library>) -> Result<(), Wrong> {
        let is_known = |it: &&FunctionMeta| self.with_function(&it.name).is_some();
        if let Some(function) = library.functions.iter().find(is_known) {
            return Err(Wrong::err(format_args!("Function {} already exists", function.name)));
        }
        if self.sizes().2 + library.code.len() > BYTES_AT_MOST {
            return Err(Wrong::err("the libraries exceed 256 MiB"));
        }
        for function in &library.functions {
            self.by_function.insert(function.name.to_ascii_lowercase(), library.clone());
        }
        self.by_name.insert(library.name.clone(), library.clone());
        Ok(())
    }
}

/// Treatment of existing libraries by FUNCTION RESTORE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestorePolicy {
    /// It is refused if one has the same name.
    Append,
    /// Those of the same names are replaced.
    Replace,
    /// All are removed.
    Flush,
}

/// The libraries of a server.
pub(crate) struct Libraries {
    now: RwLock<Arc<KnownLibraries>>,
    /// Locked for a change. Names of libraries of the store that were not loaded.
    unloaded: async_lock::Mutex<BTreeSet<String>>,
}

impl Libraries {
    /// Loads those of a store that was just opened. One whose code fails is reported and left out.
    ///
    /// # Errors
    /// The records could not be read; the store is closed then.
    pub(crate) async fn load(store: &Store, env: &Env) -> karstdb::Result<Self> {
        let loaded = Self::load_all(store, env).await;
        if loaded.is_err() {
            // The first error is the one to tell; the database was only read.
            let _ = store.close().await;
        }
        loaded
    }

    async fn load_all(store: &Store, env: &Env) -> karstdb::Result<Self> {
        let (mut known, mut unloaded) = (KnownLibraries::default(), BTreeSet::new());
        for (name, code) in store.libraries().await? {
            let loaded = match read(&code, LOAD_AGAIN_AT_MOST, env).await {
                Ok(library) => known.add(&library),
                Err(wrong) => Err(wrong),
            };
            if let Err(error) = loaded {
                report!(error, name, %error, "a library of functions was not loaded");
                unloaded.insert(name);
            }
        }
        Ok(Self { now: RwLock::new(Arc::new(known)), unloaded: async_lock::Mutex::new(unloaded) })
    }

    /// Returns the libraries as they are.
    pub(crate) fn now(&self) -> Arc<KnownLibraries> {
        self.now.read().clone()
    }

    /// Writes and publishes a change. Removes the records of the `unloaded` libraries that `goes`
    /// names.
    async fn set(
        &self,
        known: KnownLibraries,
        unloaded: &mut BTreeSet<String>,
        goes: impl Fn(&str) -> bool,
        store: &Store,
        durability: Durability,
    ) -> Result<(), Wrong> {
        let before = self.now();
        let is_in = |known: &KnownLibraries, library: &Arc<Library>| {
            known.by_name.get(&library.name).is_some_and(|other| Arc::ptr_eq(other, library))
        };
        let removed = before.all().filter(|library| !known.by_name.contains_key(&library.name));
        let mut removed: Vec<&str> = removed.map(|library| &*library.name).collect();
        let gone: Vec<String> = unloaded.iter().filter(|name| goes(name)).cloned().collect();
        // A new library of the name takes the place of the record.
        removed.extend(gone.iter().map(|name| &**name).filter(|name| !known.by_name.contains_key(*name)));
        let put = known.all().filter(|library| !is_in(&before, library));
        let put: Vec<(&str, &[u8])> = put.map(|library| (&*library.name, &*library.code)).collect();
        if !removed.is_empty() || !put.is_empty() {
            store.change_libraries(&removed, &put, durability).await?;
        }
        unloaded.retain(|name| !goes(name));
        *self.now.write() = Arc::new(known);
        Ok(())
    }

    /// Adds a library. Returns its name.
    ///
    /// # Errors
    /// The code is wrong, or a name is taken.
    pub(crate) async fn add(
        &self,
        code: &[u8],
        replaces: bool,
        store: &Store,
        env: &Env,
        durability: Durability,
    ) -> Result<String, Wrong> {
        let mut unloaded = self.unloaded.lock().await;
        let (name, mut known) = (Library::name_of(code)?, (*self.now()).clone());
        let is_there = known.remove(&name).is_some() || unloaded.contains(&name);
        if is_there && !replaces {
            return Err(Wrong::err(format_args!("Library '{name}' already exists")));
        }
        known.add(&read(code, LOAD_AT_MOST, env).await?)?;
        self.set(known, &mut unloaded, |other| other == name, store, durability).await?;
        Ok(name)
    }

    /// Removes the library of this name. Returns false if it does not exist.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn remove(
        &self,
        name: &str,
        store: &Store,
        durability: Durability,
    ) -> Result<bool, Wrong> {
        let mut unloaded = self.unloaded.lock().await;
        let mut known = (*self.now()).clone();
        if known.remove(name).is_none() && !unloaded.contains(name) {
            return Ok(false);
        }
        self.set(known, &mut unloaded, |other| other == name, store, durability).await?;
        Ok(true)
    }

    /// Removes all.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn flush(&self, store: &Store, durability: Durability) -> Result<(), Wrong> {
        let mut unloaded = self.unloaded.lock().await;
        self.set(KnownLibraries::default(), &mut unloaded, |_| true, store, durability).await
    }

    /// Adds many, all or none.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub(crate) async fn restore(
        &self,
        codes: &[Vec<u8>],
        policy: RestorePolicy,
        store: &Store,
        env: &Env,
        durability: Durability,
    ) -> Result<(), Wrong> {
        let mut unloaded = self.unloaded.lock().await;
        let mut known = match policy {
            RestorePolicy::Flush => KnownLibraries::default(),
            RestorePolicy::Append | RestorePolicy::Replace => (*self.now()).clone(),
        };
        let mut restored = KnownLibraries::default();
        for code in codes {
            let library = read(code, LOAD_AT_MOST, env).await?;
            let name = &library.name;
            if restored.by_name.contains_key(name) {
                return Err(Wrong::err(format_args!("Library '{name}' already exists")));
            }
            restored.add(&library)?;
            let is_there =
                known.remove(name).is_some() || policy == RestorePolicy::Append && unloaded.contains(name);
            if is_there && policy != RestorePolicy::Replace {
                return Err(Wrong::err(format_args!("Library {name} already exists")));
            }
        }
        for library in restored.all() {
            known.add(library)?;
        }
        let goes = |name: &str| policy == RestorePolicy::Flush || restored.by_name.contains_key(name);
        self.set(known, &mut unloaded, goes, store, durability).await
    }
}

/// Runs the code of a library on a machine of its own, to know its functions.
///
/// # Errors
/// The code is wrong, fails, or runs for longer than `at_most`.
async fn read(code: &[u8], at_most: Duration, env: &Env) -> Result<Arc<Library>, Wrong> {
    let name = Library::name_of(code)?;
    let code: Arc<[u8]> = code.into();
    let mut functions = functions_of(&code, at_most, env).await?;
    functions.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Arc::new(Library { name, code, functions, reaches_all: false.into() }))
}

async fn functions_of(code: &Arc<[u8]>, at_most: Duration, env: &Env) -> Result<Vec<FunctionMeta>, Wrong> {
    let machine = Machine::new();
    let mut machine = machine.map_err(|error| Wrong::err(format_args!("no virtual machine: {error}")))?;
    let (begun, mut pauses) = (env.now(), 0usize);
    let mut input = Input::Start(Job::Load(code.clone()));
    loop {
        input = match machine.resume(input) {
            Output::Done(Outcome::Loaded(functions)) => return Ok(functions),
            Output::Done(Outcome::Failed(wrong)) => return Err(wrong),
            Output::Done(_) | Output::Idle | Output::Call(..) | Output::Check(_) => {
                return Err(Wrong::err("the virtual machine has failed"));
            }
            Output::Pause => {
                pauses += 1;
                match pauses.is_multiple_of(PAUSES) {
                    true => sleep(env, PAUSE).await,
                    false => yield_now().await,
                }
                match env.now().saturating_sub(begun) > at_most {
                    true => Input::Kill("ERR FUNCTION LOAD timeout"),
                    false => Input::GoOn,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, ServerOptions};
    use karstdb::io::{MemoryFileSystem, block_on};
    use std::path::Path;

    const DURABILITY: Durability = Durability::Logged;

    fn code(name: &str, function: &str) -> Vec<u8> {
        format!("#!lua name={name}\nredis.register_function('{function}', function() return 1 end)").into()
    }

    /// Has a server whose store has a library `broken` that cannot be loaded, and one that can.
    fn with_server(test: impl AsyncFnOnce(&Server, &Libraries)) {
        let env = Env::builder().file_system(Arc::new(MemoryFileSystem::new())).build();
        block_on(&env, async {
            let (path, options) = (Path::new("/db"), ServerOptions::default());
            let server = Server::open(path, &options, &env).await.unwrap();
            let good = code("good", "f");
            let put: [(&str, &[u8]); 2] = [("broken", b"#!lua name=broken\nerror('x')"), ("good", &good)];
            server.store().change_libraries(&[], &put, DURABILITY).await.unwrap();
            server.close().await.unwrap();
            let server = Server::open(path, &options, &env).await.unwrap();
            assert_eq!(server.libraries().now().sizes().0, 1);
            test(&server, server.libraries()).await;
        });
    }

    async fn stored(server: &Server) -> Vec<String> {
        server.store().libraries().await.unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_flush_removes_libraries_that_were_not_loaded() {
        with_server(async |server, libraries| {
            libraries.flush(server.store(), DURABILITY).await.unwrap();
            assert!(stored(server).await.is_empty());
        });
        with_server(async |server, libraries| {
            let (codes, flush) = ([code("new", "g")], RestorePolicy::Flush);
            libraries.restore(&codes, flush, server.store(), server.env(), DURABILITY).await.unwrap();
            assert_eq!(stored(server).await, ["new"]);
        });
    }

    #[test]
    fn a_library_that_was_not_loaded_is_there_until_it_is_removed_or_replaced() {
        with_server(async |server, libraries| {
            let (store, env, new) = (server.store(), server.env(), code("broken", "g"));
            assert!(libraries.add(&new, false, store, env, DURABILITY).await.is_err());
            let append = RestorePolicy::Append;
            let codes = [new.clone()];
            assert!(libraries.restore(&codes, append, store, env, DURABILITY).await.is_err());
            assert_eq!(stored(server).await, ["broken", "good"]);
            libraries.add(&new, true, store, env, DURABILITY).await.unwrap();
            assert_eq!(store.libraries().await.unwrap()[0].1, new);
            assert!(libraries.remove("broken", store, DURABILITY).await.unwrap());
            assert!(!libraries.remove("broken", store, DURABILITY).await.unwrap());
            assert_eq!(stored(server).await, ["good"]);
        });
        with_server(async |server, libraries| {
            assert!(libraries.remove("broken", server.store(), DURABILITY).await.unwrap());
            assert_eq!(stored(server).await, ["good"]);
        });
    }
}
