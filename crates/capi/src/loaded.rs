//! The file name under which the library was loaded, which names the release of RocksDB that a
//! program was linked with.

use std::ffi::CStr;
use std::sync::OnceLock;

/// Returns the format version of tables that a program expects if it sets none: the one that its
/// release of RocksDB writes, so that the program can return to RocksDB. If the release is unknown,
/// a version that all releases since 8.6 read.
pub(crate) fn default_format_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| format_version(&file_name()))
}

/// Returns the name of this library's file as the loader found it, with links unresolved.
fn file_name() -> String {
    let here = default_format_version as *const libc::c_void;
    // SAFETY: `dladdr` fills its argument if it does not return 0; the text is the loader's, and
    // stays for as long as the library is loaded.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        match libc::dladdr(here, &mut info) {
            0 => String::new(),
            _ if info.dli_fname.is_null() => String::new(),
            _ => CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned(),
        }
    }
}

fn format_version(file: &str) -> u32 {
    let name = file.rsplit('/').next().unwrap_or(file);
    let Some(release) = name.strip_prefix("librocksdb.so.") else { return 6 };
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    match (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) {
        (1..=7, _) | (8, ..=5) => 5,
        (8..=10, _) | (0, _) => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_gets_tables_that_it_reads() {
        for (file, version) in [
            ("/usr/lib/librocksdb.so.7.8", 5),
            ("librocksdb.so.7", 5),
            ("/a/librocksdb.so.8.5", 5),
            ("/a/librocksdb.so.8.6", 6),
            ("/a/librocksdb.so.10.10.1", 6),
            ("/a/librocksdb.so.11", 7),
            ("/a/librocksdb.so.11.8", 7),
            ("/a/librocksdb.so.x", 6),
            ("/a/librocksdb.so", 6),
            ("/a/libkarstdb.so", 6),
            ("a/program", 6),
            ("", 6),
        ] {
            assert_eq!(format_version(file), version, "{file}");
        }
        assert!(!file_name().is_empty());
    }
}
