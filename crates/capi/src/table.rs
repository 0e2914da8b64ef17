//! The list of all functions, and what becomes of a call of each.

use crate::refused::REFUSED;
use crate::signature::Signature;

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Served {
    /// What RocksDB's does.
    Yes,
    /// It remembers what it is given, and nothing else comes of it.
    NoEffect,
    /// It fails through `errptr`, or returns null or 0.
    Refused,
}

/// A function of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub served: Served,
}

/// The files whose functions are all served.
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
        crate::requests::NAMES,
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

/// Those that only remember what is no number.
fn remembered() -> impl Iterator<Item = &'static Signature> {
    let options = crate::options::REMEMBERED.iter().flat_map(|file| file.iter());
    options.chain(crate::requests::REMEMBERED)
}

/// All functions of RocksDB's API that are not refused.
pub(crate) fn signatures() -> impl Iterator<Item = &'static Signature> {
    served()
        .chain(crate::options::CUCKOO)
        .chain(remembered())
        .chain(crate::options::SIGNATURES)
        .chain(crate::requests::SIGNATURES)
}

/// The functions that are exported for programs linked with RocksDB 7.8, and that no header has, by
/// name.
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

/// All functions of RocksDB's API, by name.
pub fn functions() -> Vec<Function> {
    let served = served().map(Signature::name).chain(crate::requests::SERVED.iter().copied());
    let by_name = crate::options::SERVED.iter().map(|(name, honoured)| Function {
        name,
        served: if honoured() { Served::Yes } else { Served::NoEffect },
    });
    let others = crate::options::CUCKOO.iter().map(Signature::name);
    let kept = crate::options::KEPT.iter().chain(crate::requests::KEPT).copied().chain(others);
    let kept = kept.chain(remembered().map(Signature::name));
    let mut all: Vec<_> = served.map(|name| Function { name, served: Served::Yes }).collect();
    all.extend(by_name);
    all.extend(kept.map(|name| Function { name, served: Served::NoEffect }));
    all.extend(REFUSED.iter().map(|refused| Function { name: refused.name, served: Served::Refused }));
    all.sort();
    all
}
