//! Writers of table files outside of a database.

use crate::boundary::*;
use crate::call_options::EnvOptions;
use crate::options::OptionsHandle;
use karstdb::SstFileWriter;
use libc::c_char;

/// `rocksdb_sstfilewriter_t`, and the size of the last table that was finished.
#[derive(Debug)]
pub struct Writer(pub(crate) SstFileWriter, u64);

impl Writer {
    pub(crate) fn given(writer: SstFileWriter) -> *mut Writer {
        give(Writer(writer, 0))
    }
}

capi! {
    call rocksdb_sstfilewriter_create(_env: *const EnvOptions, options: *const OptionsHandle) -> *mut Writer {
        let made = of(options).and_then(|options| SstFileWriter::create(&options.to_options(&[])?));
        or_say("rocksdb_sstfilewriter_create", made).map_or(std::ptr::null_mut(), Writer::given)
    }
    attempt rocksdb_sstfilewriter_open(writer: *mut Writer, name: *const c_char) { of_mut(writer)?.0.open(path(name)?) }
    attempt rocksdb_sstfilewriter_add(writer: *mut Writer, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of_mut(writer)?.0.put(bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_sstfilewriter_put(writer: *mut Writer, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of_mut(writer)?.0.put(bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_sstfilewriter_merge(writer: *mut Writer, key: *const c_char, keylen: usize, val: *const c_char, vallen: usize) {
        of_mut(writer)?.0.merge(bytes(key, keylen), bytes(val, vallen))
    }
    attempt rocksdb_sstfilewriter_delete(writer: *mut Writer, key: *const c_char, keylen: usize) { of_mut(writer)?.0.delete(bytes(key, keylen)) }
    attempt rocksdb_sstfilewriter_delete_range(writer: *mut Writer, begin: *const c_char, beginlen: usize, end: *const c_char, endlen: usize) {
        of_mut(writer)?.0.delete_range(bytes(begin, beginlen), bytes(end, endlen))
    }
    attempt rocksdb_sstfilewriter_finish(writer: *mut Writer) { let writer = of_mut(writer)?;
        writer.1 = writer.0.finish()?.file_size;
        Ok(())
    }
    call rocksdb_sstfilewriter_file_size(writer: *const Writer, size: *mut u64) { put(size, writer.as_ref().map_or(0, |writer| writer.0.file_size().max(writer.1))) }
    call rocksdb_sstfilewriter_destroy(writer: *mut Writer) { end(writer); }
}
