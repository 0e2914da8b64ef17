//! The file `meta/N`, which lists the files of backup N.
//!
//! | line | content |
//! |---|---|
//! | `schema_version 2.M` | from schema 2 on only |
//! | `1700000000` | time of the backup, in seconds of Unix time |
//! | `4711` | the database's newest sequence number |
//! | `metadata 6B6579` | the user's metadata in hexadecimal, unless empty |
//! | `3` | number of files |
//! | `shared_checksum/000018_sTTY7K99WO3LMXWY7OTP2_1010.sst crc32 1327970916` | for each file its path below the directory of backups, and fields of a name and a value |
//!
//! `crc32` is the CRC32c of the whole file as a decimal number. Schema 2 has more fields, also
//! before the number of files and after the files: a reader ignores a field that it does not know,
//! unless its name begins with `ni::`. Specified by RocksDB's utilities/backup/backup_engine.cc;
//! 7.8 and 11.8 write schema 1 by default, and so does this module. Of schema 2 it writes only the
//! first line, because the additions concern temperatures and excluded files.
//!
//! In: bytes as read, which are untrusted. Out: a [`Meta`] whose paths stay within the directory of
//! backups, or an error.

use karst_base::error::{Error, Result as Checked};
use karst_format::file_name::FileName;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Directory of files that belong to one backup.
pub(super) const PRIVATE: &str = "private";
/// Directory of tables that backups of one database share, named by number.
pub(super) const SHARED: &str = "shared";
/// Directory of shared files whose names distinguish different databases.
pub(super) const SHARED_CHECKSUM: &str = "shared_checksum";

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackupFile {
    /// Path below the directory of backups.
    pub(super) path: String,
    pub(super) crc32c: Option<u32>,
    /// Recorded size in bytes, or None.
    pub(super) size: Option<u64>,
}

/// The content of a `meta` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) timestamp: u64,
    pub(super) sequence: u64,
    pub(super) app_metadata: Vec<u8>,
    pub(super) files: Vec<BackupFile>,
}

/// Schema in which a `meta` file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaVersion {
    One,
    Two,
}

impl SchemaVersion {
    /// Returns the schema with this number.
    ///
    /// # Errors
    /// The number is invalid, or not supported.
    pub(super) fn of(number: u32) -> Checked<SchemaVersion> {
        match number {
            0 => Err(Error::invalid_argument("`schema_version` of backups begins with 1")),
            1 => Ok(SchemaVersion::One),
            2 => Ok(SchemaVersion::Two),
            _ => Err(Error::not_supported(format!("backups of schema version {number}; the last is 2"))),
        }
    }
}

impl BackupFile {
    /// Returns the file's name in a database.
    pub(super) fn restored_name(&self) -> Option<String> {
        restored_name(&self.path)
    }

    /// Returns the size in bytes that is recorded or part of the name, or None.
    pub(super) fn known_size(&self) -> Option<u64> {
        let in_name = || {
            let name = self.path.strip_prefix(SHARED_CHECKSUM)?.rsplit_once('.')?.0;
            name.rsplit_once('_')?.1.parse().ok()
        };
        self.size.or_else(in_name)
    }
}

/// Returns the name in a database of the file with this path below the directory of backups, or
/// None if no backup has such a path.
pub(super) fn restored_name(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once('/')?;
    let name = match directory {
        SHARED_CHECKSUM => {
            let (number, rest) = name.split_once('_')?;
            let (_, extension) = rest.rsplit_once('.')?;
            format!("{number}.{extension}")
        }
        _ => name.to_owned(),
    };
    // No backup has the other files of a database, such as LOCK.
    use FileName::{Blob, Current, Identity, LevelDbTable, Manifest, Options, Table, Wal};
    let is_copied = |name: FileName| {
        matches!(
            name,
            Table(_) | LevelDbTable(_) | Blob(_) | Wal(_) | Manifest(_) | Current | Options(_) | Identity
        )
    };
    FileName::parse(&name).is_some_and(is_copied).then_some(name)
}

impl Meta {
    /// Returns the text of the file.
    pub(super) fn encode(&self, schema: SchemaVersion) -> String {
        let version = match schema {
            SchemaVersion::One => "",
            SchemaVersion::Two => "schema_version 2.1\n",
        };
        let mut text = format!("{version}{}\n{}\n", self.timestamp, self.sequence);
        if !self.app_metadata.is_empty() {
            text.push_str("metadata ");
            for byte in &self.app_metadata {
                let _ = write!(text, "{byte:02X}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "{}", self.files.len());
        for file in &self.files {
            let _ = writeln!(text, "{} crc32 {}", file.path, file.crc32c.unwrap_or_default());
        }
        text
    }

    /// Parses a file of schema 1 or 2.
    ///
    /// # Errors
    /// The defect, with its line number.
    pub(super) fn parse(bytes: &[u8]) -> Result<Meta, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?;
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        let mut lines = text.lines().enumerate();
        let mut next = |what: &str| {
            let (number, line) = lines.next().ok_or_else(|| format!("the file ends before {what}"))?;
            Ok::<_, String>((number + 1, line))
        };
        let (mut number, mut line) = next("the timestamp")?;
        let mut extensible = false;
        if let Some(version) = line.strip_prefix("schema_version ") {
            let major = version.split('.').next().unwrap_or_default();
            if major != "2" {
                return Err(format!("schema version {version:?} is not known"));
            }
            extensible = true;
            (number, line) = next("the timestamp")?;
        }
        let mut meta = Meta { timestamp: parse_number(number, line)?, ..Meta::default() };
        let (number, line) = next("the sequence number")?;
        meta.sequence = parse_number(number, line)?;
        let count: usize = loop {
            let (number, line) = next("the number of files")?;
            match line.split_once(' ') {
                Some(("metadata", hex)) => {
                    meta.app_metadata = from_hex(hex)
                        .ok_or_else(|| format!("line {number}: metadata that is not hexadecimal"))?;
                }
                Some((name, _)) if extensible => pass_over(number, name)?,
                _ => break parse_number(number, line)?,
            }
        };
        let mut names = BTreeSet::new();
        for _ in 0..count {
            let (number, line) = next("the last file")?;
            let file = parse_file(number, line, extensible)?;
            let name = file.restored_name().unwrap_or_default();
            if names.contains(&name) {
                return Err(format!("line {number}: {name} occurs a second time"));
            }
            names.insert(name);
            meta.files.push(file);
        }
        for (number, line) in lines {
            let name = line.split(' ').next().unwrap_or_default();
            if !extensible {
                return Err(format!("line {}: text after the last file", number + 1));
            }
            pass_over(number + 1, name)?;
        }
        Ok(meta)
    }
}

fn parse_number<T: std::str::FromStr>(number: usize, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("line {number}: {text:?} is no number"))
}

fn pass_over(number: usize, name: &str) -> Result<(), String> {
    match name.starts_with("ni::") {
        true => Err(format!("line {number}: the field {name:?} is not known, and must not be ignored")),
        false => Ok(()),
    }
}

fn parse_file(number: usize, line: &str, extensible: bool) -> Result<BackupFile, String> {
    let mut words = line.split(' ');
    let path = words.next().unwrap_or_default().to_owned();
    let mut file = BackupFile { path, crc32c: None, size: None };
    let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let private = directory.strip_prefix("private/").is_some_and(|id| id.parse::<u32>().is_ok());
    if !(private || directory == SHARED || directory == SHARED_CHECKSUM) || file.restored_name().is_none() {
        return Err(format!("line {number}: {:?} is no path of a file of a backup", file.path));
    }
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("line {number}: {name:?} has no value"))?;
        match name {
            "crc32" => file.crc32c = Some(parse_number(number, value)?),
            "size" if extensible => file.size = Some(parse_number(number, value)?),
            _ if extensible => pass_over(number, name)?,
            _ => return Err(format!("line {number}: the field {name:?} is not known")),
        }
    }
    Ok(file)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Written by `ldb backup` of 7.8.3.
    const OF_ROCKSDB: &str = "1795616225\n3\n3\n\
        shared_checksum/000018_sTTY7K99WO3LMXWY7OTP2_1010.sst crc32 1327970916\n\
        private/1/MANIFEST-000027 crc32 3780560835\n\
        private/1/CURRENT crc32 4132812863\n";

    #[test]
    fn what_rocksdb_writes_is_read_and_written_the_same() {
        let meta = Meta::parse(OF_ROCKSDB.as_bytes()).unwrap();
        assert_eq!((meta.timestamp, meta.sequence, meta.files.len()), (1_795_616_225, 3, 3));
        assert_eq!(meta.files[0].restored_name().as_deref(), Some("000018.sst"));
        assert_eq!(meta.files[0].known_size(), Some(1010));
        assert_eq!(meta.files[2].restored_name().as_deref(), Some("CURRENT"));
        assert_eq!(meta.files[2].known_size(), None);
        assert_eq!(meta.encode(SchemaVersion::One), OF_ROCKSDB);
        let second = meta.encode(SchemaVersion::Two);
        assert_eq!(second, format!("schema_version 2.1\n{OF_ROCKSDB}"));
        assert_eq!(Meta::parse(second.as_bytes()).unwrap(), meta);
        let with = Meta { app_metadata: b"key\x00\xff".to_vec(), ..meta };
        assert_eq!(Meta::parse(with.encode(SchemaVersion::One).as_bytes()).unwrap(), with);
    }

    #[test]
    fn schema_two_has_fields_that_are_passed_over_or_must_not_be() {
        let text = |field: &str| {
            format!(
                "schema_version 2.1\n7\n8\nother thing\n{field}metadata 6B\n1\n\
                 shared/000007.sst crc32 9 size 10 temp 4\nfooter 1\n"
            )
        };
        let meta = Meta::parse(text("").as_bytes()).unwrap();
        assert_eq!((meta.timestamp, meta.sequence, &*meta.app_metadata), (7, 8, &b"k"[..]));
        let file = BackupFile { path: "shared/000007.sst".into(), crc32c: Some(9), size: Some(10) };
        assert_eq!(meta.files, [file]);
        let told = Meta::parse(text("ni::important 1\n").as_bytes()).unwrap_err();
        assert!(told.contains("ni::important"), "{told}");
        assert!(Meta::parse(b"schema_version 3\n7\n8\n0\n").unwrap_err().contains("schema version"));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, told) in [
            ("", "no end"),
            ("1\n2\n1\n", "ends before the last file"),
            ("1\n2\nx\n", "line 3"),
            ("1\n2\n1\nprivate/1/CURRENT crc32 x\n", "line 4"),
            ("1\n2\n1\nprivate/1/CURRENT crc32\n", "no value"),
            ("1\n2\n1\nprivate/1/CURRENT size 5\n", "not known"),
            ("1\n2\n0\nmore\n", "line 4"),
            ("1\n2\n1\nprivate/1/CURRENT crc32 5", "no end"),
            ("1\n2\n1\n../../etc/CURRENT crc32 5\n", "no path"),
            ("1\n2\n1\n/CURRENT crc32 5\n", "no path"),
            ("1\n2\n1\nprivate/../CURRENT crc32 5\n", "no path"),
            ("1\n2\n1\nprivate/1/../../CURRENT crc32 5\n", "no path"),
            ("1\n2\n1\nshared_checksum/passwd crc32 5\n", "no path"),
            ("1\n2\n1\nprivate/1/LOCK crc32 5\n", "no path"),
            ("1\n2\n1\nprivate/1/000000.dbtmp crc32 5\n", "no path"),
            ("1\n2\n18446744073709551615\nshared/000007.sst crc32 5\n", "ends before the last file"),
            ("1\n2\n2\nshared/000007.sst crc32 5\nshared_checksum/000007_s_9.sst crc32 6\n", "a second time"),
            ("1\n2\nmetadata 6\n0\n", "hexadecimal"),
        ] {
            let error = Meta::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(told), "{text:?}: {error}");
        }
    }
    /// Lines and parts of lines of `meta` files, and others.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        const WORDS: &[&str] = &[
            "schema_version 2.1\n",
            "1795616225\n",
            "3\n",
            "1\n",
            "metadata 6B\n",
            "ni::x 1\n",
            "other 1\n",
            "private/1/CURRENT",
            "private/1/MANIFEST-000027",
            "private/4294967296/000004.log",
            "private/1/../2/000004.log",
            "shared/000009.blob",
            "shared/../../000009.sst",
            "shared_checksum/000018_sTTY7K99WO3LMXWY7OTP2_1010.sst",
            "shared_checksum/000018_1_18446744073709551616.sst",
            "/000007.sst",
            " crc32 1327970916",
            " size 18446744073709551615",
            " temp 1",
            "\n",
            " ",
        ];
        prop_oneof![
            6 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_an_error_or_a_backup_within_its_directory(
            pieces in proptest::collection::vec(piece(), 0..14),
            of_rocksdb in any::<bool>(),
            flipped in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        ) {
            let mut bytes = if of_rocksdb { OF_ROCKSDB.as_bytes().to_vec() } else { pieces.concat() };
            if let (Some((at, byte)), false) = (flipped, bytes.is_empty()) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let Ok(meta) = Meta::parse(&bytes) else { return Ok(()) };
            let mut names = BTreeSet::new();
            for file in &meta.files {
                let parts: Vec<&str> = file.path.split('/').collect();
                prop_assert!(matches!(parts[..], [PRIVATE, _, _] | [SHARED | SHARED_CHECKSUM, _]), "{file:?}");
                prop_assert!(!parts.contains(&"..") && !parts.contains(&"."), "{file:?}");
                let name = file.restored_name().expect("what is parsed has one");
                prop_assert!(!name.contains('/') && name != "LOCK", "{file:?}");
                prop_assert!(names.insert(name), "{file:?}");
                let _ = file.known_size();
            }
            let with_sums = |meta: &Meta| Meta {
                files: meta.files.iter().map(|file| BackupFile {
                    path: file.path.clone(),
                    crc32c: Some(file.crc32c.unwrap_or_default()),
                    size: None,
                }).collect(),
                ..meta.clone()
            };
            for schema in [SchemaVersion::One, SchemaVersion::Two] {
                let again = Meta::parse(meta.encode(schema).as_bytes());
                prop_assert_eq!(again, Ok(with_sums(&meta)));
            }
        }
    }
}
