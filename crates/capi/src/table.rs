//! The list of all functions, and how each is served.

use crate::refused::REFUSED;
use crate::signature::Signature;

/// Behaviour of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// It behaves like RocksDB's.
    Yes,
    /// It remembers its value, without any other effect.
    NoEffect,
    /// It fails through `errptr`, or returns null or 0.
    Refused,
}

/// A function of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its behaviour.
    pub served: Served,
}

/// Functions of the files that are served entirely.
fn served() -> impl Iterator<Item = &'static Signature> {
    const FILES: &[&[Signature]] = &[
        crate::allocator::NAMES,
        crate::backup::NAMES,
        crate::cache::NAMES,
        crate::callbacks::NAMES,
        crate::compact_files::NAMES,
        crate::copies::NAMES,
        crate::db::NAMES,
        crate::env_threads::NAMES,
        crate::event_infos::FIELDS,
        crate::event_infos::NAMES,
        crate::events::NAMES,
        crate::family::NAMES,
        crate::import::NAMES,
        crate::iterator::NAMES,
        crate::levels::NAMES,
        crate::logger::NAMES,
        crate::metadata::NAMES,
        crate::observe::NAMES,
        crate::open::NAMES,
        crate::options::INSTANCES,
        crate::options::LATEST,
        crate::call_options::NAMES,
        crate::sst_writer::NAMES,
        crate::table_properties::FIELDS,
        crate::table_properties::NAMES,
        crate::trace::NAMES,
        crate::transaction::NAMES,
        crate::transaction_db::NAMES,
    ];
    let in_groups = [crate::batch::NAMES, crate::indexed_batch::NAMES, crate::timestamps::NAMES];
    FILES.iter().chain(in_groups.into_iter().flatten()).flat_map(|file| file.iter())
}

/// Functions that only remember a setting other than a number.
fn remembered() -> impl Iterator<Item = &'static Signature> {
    let options = crate::options::REMEMBERED.iter().flat_map(|file| file.iter());
    options.chain(crate::call_options::REMEMBERED)
}

/// Returns all functions of RocksDB's API that are not refused.
pub(crate) fn signatures() -> impl Iterator<Item = &'static Signature> {
    served()
        .chain(crate::options::CUCKOO)
        .chain(remembered())
        .chain(crate::options::SIGNATURES)
        .chain(crate::call_options::SIGNATURES)
}

/// Returns the functions exported for programs linked with RocksDB 7.8, which no header has, sorted
/// by name.
pub fn retired_functions() -> Vec<Function> {
    let of = |signatures: &'static [Signature], served| {
        signatures.iter().map(move |signature| Function { name: signature.name(), served })
    };
    let mut all: Vec<_> = of(crate::retired::SERVED, Served::Yes)
        .chain(of(crate::retired::KEPT, Served::NoEffect))
        .chain(of(crate::retired::REFUSED, Served::Refused))
        .collect();
    all.sort();
    all
}

/// Returns all functions of RocksDB's API, sorted by name.
pub fn functions() -> Vec<Function> {
    let served = served().map(Signature::name).chain(crate::call_options::SERVED.iter().copied());
    let by_name = crate::options::SERVED.iter().map(|(name, honoured)| Function {
        name,
        served: if honoured() { Served::Yes } else { Served::NoEffect },
    });
    let others = crate::options::CUCKOO.iter().map(Signature::name);
    let kept = crate::options::KEPT.iter().chain(crate::call_options::KEPT).copied().chain(others);
    let kept = kept.chain(remembered().map(Signature::name));
    let mut all: Vec<_> = served.map(|name| Function { name, served: Served::Yes }).collect();
    all.extend(by_name);
    all.extend(kept.map(|name| Function { name, served: Served::NoEffect }));
    all.extend(REFUSED.iter().map(|refused| Function { name: refused.name, served: Served::Refused }));
    all.sort();
    all
}
