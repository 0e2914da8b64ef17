//! Function pointers of users: comparators, merge operators, compaction filters and their
//! factories, prefix extractors.
//!
//! Invariant: the state's destructor runs once, after the last call into the state, on the thread
//! that drops the last reference. Callbacks must not unwind into this library.

use crate::boundary::*;
use karstdb::compaction_filter::{FilterContext, FilterDecision, FilterInput};
use karstdb::format::{Comparator, PrefixExtractor, SliceTransform, TableProperties, UserComparator};
use karstdb::merge_operator::{MergeFailed, Merged};
use karstdb::{CompactionFilter, CompactionFilterFactory, MergeOperator, TableFilterFn};
use libc::{c_char, c_int, c_uchar, c_void};
use std::cmp::Ordering;
use std::ffi::CStr;
use std::sync::Arc;

pub(crate) type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
pub(crate) type Name = Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>;

/// The user's state, with its name and destructor.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) state: *mut c_void,
    destructor: Destructor,
    pub(crate) name: String,
}

// SAFETY: callbacks are called from any thread, several at once, as with RocksDB; the user protects
// the state.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    pub(crate) unsafe fn new(state: *mut c_void, destructor: Destructor, name: Name) -> State {
        let text = name.map(|name| unsafe { name(state) }).filter(|text| !text.is_null());
        let name = text.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        State { state, destructor, name: name.unwrap_or_default() }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the user's own function on the user's own state, called once.
            unsafe { destructor(self.state) }
        }
    }
}

/// The callback of `rocksdb_readoptions_set_table_filter`.
pub(crate) type TableFilter = unsafe extern "C" fn(*mut c_void, *const TableProperties) -> c_uchar;

/// Returns the filter of a callback; `None` if it is null, and the state is destroyed.
pub(crate) unsafe fn table_filter(
    state: *mut c_void,
    destructor: Destructor,
    callback: Option<TableFilter>,
) -> Option<TableFilterFn> {
    let state = unsafe { State::new(state, destructor, None) };
    let callback = callback?;
    Some(TableFilterFn::new(move |table| {
        let state = &state;
        // SAFETY: the user's function; the properties are valid during the call.
        unsafe { callback(state.state, table) != 0 }
    }))
}

pub(crate) fn at(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

pub(crate) type Compare =
    unsafe extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize) -> c_int;

/// `rocksdb_comparator_t`.
#[derive(Clone, Debug)]
pub struct ComparatorHandle(pub(crate) Comparator);

#[derive(Debug)]
struct UserOrder {
    state: State,
    compare: Compare,
}

impl UserComparator for UserOrder {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe { (self.compare)(self.state.state, at(a), a.len(), at(b), b.len()) }.cmp(&0)
    }
}

type FullMerge = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *const *const c_char,
    *const usize,
    c_int,
    *mut c_uchar,
    *mut usize,
) -> *mut c_char;
type PartialMerge = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    usize,
    *const *const c_char,
    *const usize,
    c_int,
    *mut c_uchar,
    *mut usize,
) -> *mut c_char;
type DeleteValue = Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>;

/// `rocksdb_mergeoperator_t`.
#[derive(Debug)]
pub struct MergeHandle(pub(crate) Arc<dyn MergeOperator>);

#[derive(Debug)]
struct UserMerge {
    state: State,
    full: Option<FullMerge>,
    partial: Option<PartialMerge>,
    delete_value: DeleteValue,
}

impl UserMerge {
    /// Copies a value that a callback returned, and frees the original.
    unsafe fn taken(&self, value: *mut c_char, length: usize, success: bool) -> Option<Vec<u8>> {
        let copy = unsafe { bytes(value, length) }.to_vec();
        unsafe {
            match self.delete_value {
                Some(delete) => delete(self.state.state, value, length),
                None => libc::free(value.cast()),
            }
        }
        success.then_some(copy)
    }
}

impl MergeOperator for UserMerge {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Merged, MergeFailed> {
        let full = self.full.ok_or_else(|| MergeFailed("the operator has no full merge".into()))?;
        let (starts, lengths): (Vec<_>, Vec<_>) = operands.iter().map(|o| (at(o), o.len())).unzip();
        let (mut success, mut length) = (1, 0);
        let value = existing.map_or(std::ptr::null(), at);
        // SAFETY: the user's function; the bytes are valid during the call.
        let merged = unsafe {
            let merged = full(
                self.state.state,
                at(key),
                key.len(),
                value,
                existing.map_or(0, <[u8]>::len),
                starts.as_ptr(),
                lengths.as_ptr(),
                c_int::try_from(operands.len()).unwrap_or(c_int::MAX),
                &mut success,
                &mut length,
            );
            self.taken(merged, length, success != 0)
        };
        merged.map(Merged::Bytes).ok_or_else(|| MergeFailed("Merge operator failed".into()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (starts, lengths): (Vec<_>, Vec<_>) = operands.iter().map(|o| (at(o), o.len())).unzip();
        let (mut success, mut length) = (1, 0);
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe {
            let merged = self.partial?(
                self.state.state,
                at(key),
                key.len(),
                starts.as_ptr(),
                lengths.as_ptr(),
                c_int::try_from(operands.len()).unwrap_or(c_int::MAX),
                &mut success,
                &mut length,
            );
            self.taken(merged, length, success != 0)
        }
    }
}

type Filter = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut c_uchar,
) -> c_uchar;

/// `rocksdb_compactionfilter_t`.
#[derive(Clone, Debug)]
pub struct FilterHandle(Arc<UserFilter>, bool);

impl FilterHandle {
    pub(crate) fn filter(&self) -> Arc<dyn CompactionFilter> {
        Arc::new(HeldFilter(self.0.clone(), self.1))
    }
}

#[derive(Debug)]
struct UserFilter {
    state: State,
    filter: Option<Filter>,
}

/// A filter with the handle's `ignore_snapshots` at the time it was taken.
#[derive(Debug)]
struct HeldFilter(Arc<UserFilter>, bool);

impl CompactionFilter for HeldFilter {
    fn name(&self) -> &str {
        &self.0.state.name
    }

    fn ignore_snapshots(&self) -> bool {
        self.1
    }

    fn filter(&self, level: u32, key: &[u8], entry: FilterInput<'_>) -> FilterDecision {
        let (Some(filter), FilterInput::Value(value)) = (self.0.filter, entry) else {
            return FilterDecision::Keep;
        };
        let (mut new, mut length, mut changed) = (std::ptr::null_mut(), 0, 0);
        let level = c_int::try_from(level).unwrap_or(c_int::MAX);
        // SAFETY: the user's function; the bytes are valid during the call; a new value belongs to
        // the user, and is copied at once.
        unsafe {
            let removed = filter(
                self.0.state.state,
                level,
                at(key),
                key.len(),
                at(value),
                value.len(),
                &mut new,
                &mut length,
                &mut changed,
            );
            match (removed != 0, changed != 0) {
                (true, _) => FilterDecision::Remove,
                (false, true) => FilterDecision::ChangeValue(bytes(new, length).to_vec()),
                (false, false) => FilterDecision::Keep,
            }
        }
    }
}

/// `rocksdb_compactionfiltercontext_t`.
#[derive(Debug)]
pub struct ContextHandle(FilterContext);

type CreateFilter = unsafe extern "C" fn(*mut c_void, *mut ContextHandle) -> *mut FilterHandle;

/// `rocksdb_compactionfilterfactory_t`.
#[derive(Debug)]
pub struct FactoryHandle(pub(crate) Arc<dyn CompactionFilterFactory>);

#[derive(Debug)]
struct UserFactory {
    state: State,
    create: CreateFilter,
}

impl CompactionFilterFactory for UserFactory {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let mut context = ContextHandle(*context);
        // SAFETY: the user's function; the handle that it returns is this library's, and owned
        // here.
        let made = unsafe { take((self.create)(self.state.state, &mut context)) }?;
        Some(Box::new(HeldFilter(made.0, made.1)))
    }
}

type Transform = unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut usize) -> *mut c_char;
type InDomain = unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> c_uchar;

/// `rocksdb_slicetransform_t`.
#[derive(Debug)]
pub struct PrefixHandle(pub(crate) PrefixExtractor);

#[derive(Debug)]
struct UserPrefix {
    state: State,
    transform: Transform,
    in_domain: InDomain,
}

impl SliceTransform for UserPrefix {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn in_domain(&self, key: &[u8]) -> bool {
        // SAFETY: the user's function; the bytes are valid during the call.
        unsafe { (self.in_domain)(self.state.state, at(key), key.len()) != 0 }
    }

    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let mut length = 0;
        // SAFETY: the user's function; the bytes are valid during the call.
        let prefix = unsafe { (self.transform)(self.state.state, at(key), key.len(), &mut length) };
        let offset = (prefix as usize).wrapping_sub(key.as_ptr() as usize);
        // Compat: RocksDB accepts any bytes. Here a prefix is a part of the key; for bytes outside
        // of the key, the key's first bytes are taken.
        let start = if offset.checked_add(length).is_some_and(|end| end <= key.len()) { offset } else { 0 };
        &key[start..(start + length).min(key.len())]
    }
}

capi! {
    call rocksdb_comparator_create(state: *mut c_void, destructor: Destructor, compare: Compare, name: Name) -> *mut ComparatorHandle {
        let order = UserOrder { state: State::new(state, destructor, name), compare };
        give(ComparatorHandle(Comparator::Custom(Arc::new(order))))
    }
    call rocksdb_comparator_destroy(comparator: *mut ComparatorHandle) { end(comparator); }

    call rocksdb_mergeoperator_create(state: *mut c_void, destructor: Destructor, full: Option<FullMerge>, partial: Option<PartialMerge>, delete_value: DeleteValue, name: Name) -> *mut MergeHandle {
        give(MergeHandle(Arc::new(UserMerge { state: State::new(state, destructor, name), full, partial, delete_value })))
    }
    call rocksdb_mergeoperator_destroy(operator: *mut MergeHandle) { end(operator); }

    call rocksdb_compactionfilter_create(state: *mut c_void, destructor: Destructor, filter: Option<Filter>, name: Name) -> *mut FilterHandle {
        give(FilterHandle(Arc::new(UserFilter { state: State::new(state, destructor, name), filter }), true))
    }
    call rocksdb_compactionfilter_set_ignore_snapshots(filter: *mut FilterHandle, ignore: c_uchar) {
        if let Some(filter) = filter.as_mut() { filter.1 = ignore != 0 }
    }
    call rocksdb_compactionfilter_destroy(filter: *mut FilterHandle) { end(filter); }
    call rocksdb_compactionfiltercontext_is_full_compaction(context: *const ContextHandle) -> c_uchar {
        context.as_ref().is_some_and(|context| context.0.is_full_compaction).into()
    }
    call rocksdb_compactionfiltercontext_is_manual_compaction(context: *const ContextHandle) -> c_uchar {
        context.as_ref().is_some_and(|context| context.0.is_manual_compaction).into()
    }
    call rocksdb_compactionfilterfactory_create(state: *mut c_void, destructor: Destructor, create: CreateFilter, name: Name) -> *mut FactoryHandle {
        give(FactoryHandle(Arc::new(UserFactory { state: State::new(state, destructor, name), create })))
    }
    call rocksdb_compactionfilterfactory_destroy(factory: *mut FactoryHandle) { end(factory); }

    call rocksdb_slicetransform_create(state: *mut c_void, destructor: Destructor, transform: Transform, in_domain: InDomain, name: Name) -> *mut PrefixHandle {
        let user = UserPrefix { state: State::new(state, destructor, name), transform, in_domain };
        give(PrefixHandle(PrefixExtractor::Custom(Arc::new(user))))
    }
    call rocksdb_slicetransform_create_fixed_prefix(length: usize) -> *mut PrefixHandle { give(PrefixHandle(PrefixExtractor::Fixed(length))) }
    call rocksdb_slicetransform_create_noop() -> *mut PrefixHandle { give(PrefixHandle(PrefixExtractor::Noop)) }
    call rocksdb_slicetransform_destroy(prefix: *mut PrefixHandle) { end(prefix); }
}
