//! The libraries of functions: those in memory, and their changes in the store.
//!
//! A library is known once its code has run and its record is written. Changes come one after the
//! other; readers have the libraries as they were at one moment.

use crate::lua::{FunctionMeta, Input, Job, Library, Machine, Outcome, Output};
use crate::store::{Durability, Store};
use crate::wrong::Wrong;
use karstdb::io::{Env, report, sleep, yield_now};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Time that the code of a library may run when it is loaded.
const LOAD_AT_MOST: Duration = Duration::from_millis(500);
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
    changing: async_lock::Mutex<()>,
}

impl Libraries {
    /// Loads those of the store. One whose code fails is reported and left out.
    pub(crate) async fn load(store: &Store, env: &Env) -> karstdb::Result<Self> {
        let mut known = KnownLibraries::default();
        for (name, code) in store.libraries().await? {
            let loaded = match read(&code, env).await {
                Ok(library) => known.add(&library),
                Err(wrong) => Err(wrong),
            };
            if let Err(error) = loaded {
                report!(error, name, %error, "a library of functions was not loaded");
            }
        }
        Ok(Self { now: RwLock::new(Arc::new(known)), changing: async_lock::Mutex::new(()) })
    }

    /// Returns the libraries as they are.
    pub(crate) fn now(&self) -> Arc<KnownLibraries> {
        self.now.read().clone()
    }

    /// Writes and publishes a change. The caller holds the lock of changes.
    async fn set(&self, known: KnownLibraries, store: &Store, durability: Durability) -> Result<(), Wrong> {
        let before = self.now();
        let is_in = |known: &KnownLibraries, library: &Arc<Library>| {
            known.by_name.get(&library.name).is_some_and(|other| Arc::ptr_eq(other, library))
        };
        let removed = before.all().filter(|library| !known.by_name.contains_key(&library.name));
        let removed: Vec<&str> = removed.map(|library| &*library.name).collect();
        let put = known.all().filter(|library| !is_in(&before, library));
        let put: Vec<(&str, &[u8])> = put.map(|library| (&*library.name, &*library.code)).collect();
        if !removed.is_empty() || !put.is_empty() {
            store.change_libraries(&removed, &put, durability).await?;
        }
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
        let _changing = self.changing.lock().await;
        let (name, mut known) = (Library::name_of(code)?, (*self.now()).clone());
        if known.remove(&name).is_some() && !replaces {
            return Err(Wrong::err(format_args!("Library '{name}' already exists")));
        }
        known.add(&read(code, env).await?)?;
        self.set(known, store, durability).await?;
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
        let _changing = self.changing.lock().await;
        let mut known = (*self.now()).clone();
        if known.remove(name).is_none() {
            return Ok(false);
        }
        self.set(known, store, durability).await?;
        Ok(true)
    }

    /// Removes all.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn flush(&self, store: &Store, durability: Durability) -> Result<(), Wrong> {
        let _changing = self.changing.lock().await;
        self.set(KnownLibraries::default(), store, durability).await
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
        let _changing = self.changing.lock().await;
        let mut known = match policy {
            RestorePolicy::Flush => KnownLibraries::default(),
            RestorePolicy::Append | RestorePolicy::Replace => (*self.now()).clone(),
        };
        let mut restored = KnownLibraries::default();
        for code in codes {
            let library = read(code, env).await?;
            let name = &library.name;
            if restored.by_name.contains_key(name) {
                return Err(Wrong::err(format_args!("Library '{name}' already exists")));
            }
            restored.add(&library)?;
            if known.remove(name).is_some() && policy != RestorePolicy::Replace {
                return Err(Wrong::err(format_args!("Library {name} already exists")));
            }
        }
        for library in restored.all() {
            known.add(library)?;
        }
        self.set(known, store, durability).await
    }
}

/// Runs the code of a library on a machine of its own, to know its functions.
///
/// # Errors
/// The code is wrong, fails, or runs for too long.
async fn read(code: &[u8], env: &Env) -> Result<Arc<Library>, Wrong> {
    let name = Library::name_of(code)?;
    let code: Arc<[u8]> = code.into();
    let mut functions = functions_of(&code, env).await?;
    functions.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Arc::new(Library { name, code, functions, reaches_all: false.into() }))
}

async fn functions_of(code: &Arc<[u8]>, env: &Env) -> Result<Vec<FunctionMeta>, Wrong> {
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
                match env.now().saturating_sub(begun) > LOAD_AT_MOST {
                    true => Input::Kill("ERR FUNCTION LOAD timeout"),
                    false => Input::GoOn,
                }
            }
        };
    }
}
