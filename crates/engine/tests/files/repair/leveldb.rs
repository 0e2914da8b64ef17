//! Databases of LevelDB, whose tables have no properties: repair refuses them and moves none of
//! their files.

use crate::repair::*;
use karst_engine::ErrorKind;
use karst_format::checksum::{ChecksumType, append_block_trailer};
use karst_format::coding::put_varint64;
use karst_format::ids::FileNumber;
use karst_format::log::LogWriter;

/// Internal key of a value with sequence number 1.
const KEY: &[u8] = b"apple\x01\x01\x00\x00\x00\x00\x00\x00";

/// Appends a block of these entries, each a restart point. Returns its handle.
fn block(table: &mut Vec<u8>, entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let (start, mut restarts) = (table.len(), Vec::new());
    for (key, value) in entries {
        restarts.push((table.len() - start) as u32);
        table.extend([0, key.len() as u8, value.len() as u8]);
        table.extend([*key, *value].concat());
    }
    restarts.resize(restarts.len().max(1), 0);
    restarts.iter().for_each(|restart| table.extend(restart.to_le_bytes()));
    table.extend((restarts.len() as u32).to_le_bytes());
    let mut handle = Vec::new();
    put_varint64(&mut handle, start as u64);
    put_varint64(&mut handle, (table.len() - start) as u64);
    append_block_trailer(table, start, 0, ChecksumType::Crc32c, 0);
    handle
}

/// Returns a table in LevelDB's format.
fn table() -> Vec<u8> {
    let mut table = Vec::new();
    let data = block(&mut table, &[(KEY, b"ripe")]);
    let metaindex = block(&mut table, &[]);
    let index = block(&mut table, &[(KEY, &data)]);
    let mut footer = [metaindex, index].concat();
    footer.resize(40, 0);
    table.extend(footer);
    table.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
    table
}

/// Writes LevelDB's database with that table, number 5, at level 1.
fn database(files: &MemoryFileSystem, extension: &str) {
    let table = table();
    let mut edit = vec![1, 26];
    edit.extend(b"leveldb.BytewiseComparator");
    // Log number, next file number, last sequence number; a file.
    edit.extend([2, 6, 3, 7, 4, 1, 7, 1, 5]);
    put_varint64(&mut edit, table.len() as u64);
    for _ in ["smallest", "largest"] {
        edit.push(KEY.len() as u8);
        edit.extend(KEY);
    }
    let mut manifest = Vec::new();
    LogWriter::new(FileNumber(0), false).append(&edit, &mut manifest).unwrap();
    let put = |name: &str, bytes: &[u8]| {
        files.write_file(&Path::new("/db").join(name), bytes.to_vec()).unwrap();
    };
    put("CURRENT", b"MANIFEST-000004\n");
    put("MANIFEST-000004", &manifest);
    put("000006.log", b"");
    put(&format!("000005.{extension}"), &table);
}

#[test]
fn a_database_of_leveldb_is_refused_and_nothing_of_it_moves() {
    // `sst` was LevelDB's extension before 2013.
    for extension in ["ldb", "sst"] {
        for lost in ["", "CURRENT", "MANIFEST-000004"] {
            let files = Arc::new(MemoryFileSystem::new());
            let env = Env::builder().file_system(files.clone()).build();
            database(&files, extension);
            let _ = files.remove(&Path::new("/db").join(lost));
            let before = files.list_dir(Path::new("/db")).unwrap();
            let told = Db::repair("/db", &plain(&env, "")).unwrap_err();
            assert_eq!(told.kind(), ErrorKind::NotSupported, "{extension}, without {lost}: {told}");
            assert!(told.to_string().contains(&format!("000005.{extension}: a table of LevelDB")), "{told}");
            let mut after = files.list_dir(Path::new("/db")).unwrap();
            after.retain(|name| name != "LOCK");
            assert_eq!(after, before, "without {lost}");
            if lost.is_empty() {
                let told = Db::open("/db", &plain(&env, "")).unwrap_err();
                assert_eq!(told.kind(), ErrorKind::NotSupported, "{extension}: {told}");
                assert!(told.to_string().contains("LevelDB"), "{told}");
            }
        }
    }
}
