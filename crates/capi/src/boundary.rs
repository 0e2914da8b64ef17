//! The boundary to C: panics, errors, bytes and memory.

use karstdb::{Error, ErrorKind};
use libc::{c_char, c_int};
use std::collections::BTreeSet;
use std::error::Error as _;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

/// Address of a call's error: RocksDB's last argument.
pub(crate) type ErrPtr = *mut *mut c_char;

/// Exports functions and lists them in `NAMES`. A function whose head says `attempt` has an
/// `errptr` as its last argument, and its body is a `Result`; one whose head says `call` has
/// neither.
macro_rules! capi {
    ($( $(#[doc = $about:literal])* $($kind:ident)+ ( $($arg:ident : $type:ty),* $(,)? ) $(-> $ret:ty)? $body:block )*) => {
        $( capi!(@one [$($kind)+] ($($arg: $type),*) [$($ret)?] $body); )*
        /// The functions that this file exports.
        pub(crate) const NAMES: &[$crate::signature::Signature] = &[$( $crate::signature::Signature {
            about: &[$($about),*],
            head: stringify!($($kind)+),
            arguments: &[$( (stringify!($arg), stringify!($type)) ),*],
            returned: concat!($(stringify!($ret))?),
        } ),*];
    };
    (@one [call $name:ident] ($($arg:ident : $type:ty),*) [$($ret:ty)?] $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $ret)? {
            $crate::boundary::guard(stringify!($name), || unsafe { capi!(@body $body) })
        }
    };
    (@one [attempt $name:ident] ($($arg:ident : $type:ty),*) [$($ret:ty)?] $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* errptr: $crate::boundary::ErrPtr) $(-> $ret)? {
            unsafe { $crate::boundary::attempt(stringify!($name), errptr, || unsafe { capi!(@body $body) }) }
        }
    };
    (@body $body:block) => { #[allow(unused_unsafe)] $body };
}

/// Returns the value of a failed call: null, 0 or false.
fn nothing<T>() -> T {
    // SAFETY: every type that an exported function returns (pointers, numbers, `bool`, unit, and
    // structs of these) has a value whose bytes are all zero.
    unsafe { std::mem::zeroed() }
}

/// Runs `call`. A panic is caught and printed on stderr, and the call returns null, 0 or false.
pub(crate) fn guard<T>(name: &'static str, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        eprintln!("karstdb: {name} panicked: {}", message(&*panic));
        nothing()
    })
}

/// Runs `call`. An error or a panic goes to `errptr`, and the call returns null, 0 or false.
pub(crate) unsafe fn attempt<T>(
    name: &'static str,
    errptr: ErrPtr,
    call: impl FnOnce() -> karstdb::Result<T>,
) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Panicked, format!("{name}: {}", message(&*panic))))
    });
    outcome.unwrap_or_else(|error| {
        unsafe { save(errptr, &error) };
        nothing()
    })
}

pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Replaces the text of `errptr`, which is freed, with that of `error`.
pub(crate) unsafe fn save(errptr: ErrPtr, error: &Error) {
    if errptr.is_null() {
        return;
    }
    unsafe {
        libc::free((*errptr).cast());
        *errptr = text_out(&status_text(error));
    }
}

/// Returns true if the cause is a missing file or directory.
pub(crate) fn is_of_missing_file(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<karstdb::io::Error>().is_some_and(karstdb::io::Error::is_not_found) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the error's text with the prefix of RocksDB's `Status::ToString`, because bindings
/// recognize kinds by these words.
pub(crate) fn status_text(error: &Error) -> String {
    let kind = match error.kind() {
        ErrorKind::Corruption => "Corruption",
        // Compat: RocksDB reports a missing file as an I/O error, but not a missing entry.
        ErrorKind::NotFound | ErrorKind::Io if is_of_missing_file(error) => {
            "IO error: No such file or directory"
        }
        ErrorKind::Locked => "IO error: While lock file",
        ErrorKind::Io => "IO error",
        ErrorKind::NoSpace => "IO error: No space left on device",
        ErrorKind::SpaceLimit => "IO error: Space limit reached",
        ErrorKind::InvalidArgument => "Invalid argument",
        ErrorKind::NotSupported => "Not implemented",
        ErrorKind::NotFound => "NotFound",
        ErrorKind::Incomplete => "Result incomplete",
        ErrorKind::LimitReached => "Operation aborted",
        ErrorKind::TimedOut => "Operation timed out",
        ErrorKind::Busy | ErrorKind::Deadlock => "Resource busy",
        ErrorKind::TryAgain => "Operation failed. Try again.",
        ErrorKind::Expired => "Operation expired",
        ErrorKind::Closed => "Shutdown in progress",
        _ => "Operation aborted",
    };
    format!("{kind}: {}", words(error.context()))
}

/// Compat: programs such as RocksDB's `c_test` compare the message of a wrong comparator as a
/// whole; it ends where RocksDB's ends.
fn words(context: &str) -> &str {
    let names = |text: &&str| text.contains(": does not match existing comparator ");
    let theirs = context.rsplit_once(", by which column family ").map(|(theirs, _)| theirs);
    theirs.filter(names).unwrap_or(context)
}

/// Returns the error of an operation that the engine does not implement.
pub(crate) fn not_supported(name: &str) -> Error {
    Error::new(ErrorKind::NotSupported, format!("{name}: KarstDB does not support this call (docs/c-api.md)"))
}

/// Prints on stderr, once for each name, the error of a call without an `errptr`.
pub(crate) fn say_once(name: &'static str, what: &str) {
    static SAID: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if SAID.lock().is_ok_and(|mut said| said.insert(name)) {
        eprintln!("karstdb: {name}: {what}");
    }
}

/// Returns the value of a call that has no `errptr`; an error is printed on stderr.
pub(crate) fn or_say<T>(name: &'static str, outcome: karstdb::Result<T>) -> Option<T> {
    outcome.map_err(|error| say_once(name, &error.to_string())).ok()
}

/// Returns the bytes that C passes; null is empty.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, length: usize) -> &'a [u8] {
    if data.is_null() || length == 0 {
        &[]
    } else {
        unsafe { std::slice::from_raw_parts(data.cast(), length) }
    }
}

/// Returns a range's bound; null is unbounded.
pub(crate) unsafe fn bound<'a>(data: *const c_char, length: usize) -> Option<&'a [u8]> {
    (!data.is_null()).then(|| unsafe { bytes(data, length) })
}

/// Returns an array of `length` elements; null is empty.
pub(crate) unsafe fn list<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if data.is_null() || length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, length) } }
}

/// Returns keys or values, passed as an array of pointers and one of lengths.
pub(crate) unsafe fn byte_lists<'a>(
    data: *const *const c_char,
    lengths: *const usize,
    count: usize,
) -> Vec<&'a [u8]> {
    let (data, lengths) = unsafe { (list(data, count), list(lengths, count)) };
    data.iter().zip(lengths).map(|(data, length)| unsafe { bytes(*data, *length) }).collect()
}

/// Concatenates the parts of a key or value.
pub(crate) unsafe fn joined(data: *const *const c_char, lengths: *const usize, count: c_int) -> Vec<u8> {
    unsafe { byte_lists(data, lengths, usize::try_from(count).unwrap_or(0)) }.concat()
}

/// Returns a text that ends with 0; null is empty.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> karstdb::Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| invalid(format!("{text:?} is not UTF-8")))
}

/// Returns a path that ends with 0.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> karstdb::Result<&'a Path> {
    if path.is_null() {
        return Err(invalid("a path is null"));
    }
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

pub(crate) fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

/// Returns a copy that the user frees, with a 0 behind it; null if malloc fails.
pub(crate) fn bytes_out(bytes: &[u8]) -> *mut c_char {
    // SAFETY: the allocation has room for one byte more than is copied; null is not written to.
    unsafe {
        let copy = libc::malloc(bytes.len() + 1).cast::<u8>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            copy.add(bytes.len()).write(0);
        }
        copy.cast()
    }
}

/// Returns a copy of a text that the user frees, with a 0 behind it.
pub(crate) fn text_out(text: &str) -> *mut c_char {
    bytes_out(text.as_bytes())
}

/// Returns a copy of pointers or numbers as an array that the user frees.
pub(crate) fn array_out<T: Copy>(items: &[T]) -> *mut T {
    // SAFETY: the allocation has the copied size, and malloc's alignment is enough for C's types.
    unsafe {
        let copy = libc::malloc(std::mem::size_of_val(items).max(1)).cast::<T>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(items.as_ptr(), copy, items.len());
        }
        copy
    }
}

/// Returns a value for the user to free, and stores its length; null and 0 for `None`.
pub(crate) unsafe fn value_out(value: Option<impl AsRef<[u8]>>, length: *mut usize) -> *mut c_char {
    unsafe { put(length, value.as_ref().map_or(0, |value| value.as_ref().len())) };
    value.map_or(std::ptr::null_mut(), |value| bytes_out(value.as_ref()))
}

/// Returns a pointer to bytes that the library keeps, and stores their length.
pub(crate) unsafe fn lend(bytes: &[u8], length: *mut usize) -> *const c_char {
    unsafe { put(length, bytes.len()) };
    bytes.as_ptr().cast()
}

/// Returns a pointer to bytes that the library keeps, and stores their length; null and 0 for
/// `None`.
pub(crate) unsafe fn lend_or_null(bytes: Option<&[u8]>, length: *mut usize) -> *const c_char {
    match bytes {
        Some(bytes) => unsafe { lend(bytes, length) },
        None => {
            unsafe { put(length, 0) };
            std::ptr::null()
        }
    }
}

/// Writes `value` to `at`, unless `at` is null.
pub(crate) unsafe fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        unsafe { at.write(value) };
    }
}

/// Returns a new handle that owns `value`.
pub(crate) fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Destroys a handle and returns its object; `None` if it is null.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<T> {
    (!handle.is_null()).then(|| *unsafe { Box::from_raw(handle) })
}

/// Destroys a handle and its object.
pub(crate) unsafe fn end<T>(handle: *mut T) {
    unsafe { take(handle) };
}

/// Returns the object of a handle; fails if it is null.
pub(crate) unsafe fn of<'a, T>(handle: *const T) -> karstdb::Result<&'a T> {
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("a handle is null"))
}

/// Returns the object of a handle for a change; fails if it is null.
pub(crate) unsafe fn of_mut<'a, T>(handle: *mut T) -> karstdb::Result<&'a mut T> {
    unsafe { handle.as_mut() }.ok_or_else(|| invalid("a handle is null"))
}
