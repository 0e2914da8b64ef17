//! The engines' parsers behind one form: a text in, the printed options or an error out.

use karst_format::options::text::split;
use karst_format::options::{
    BlockBasedTableOptions, ColumnFamilyOptions, DbOptions, OptionSet, OptionsFile, UnknownOptions,
};
use std::ffi::{CStr, CString};
use std::io::{Read as _, Write as _};
use std::ptr::null_mut;

unsafe extern "C" {
    /// `judge/shim/options.cc`.
    fn karst_judge_options(
        kind: libc::c_int,
        text: *const libc::c_char,
        ignore_unknown: libc::c_int,
        out: *mut *mut libc::c_char,
    ) -> libc::c_int;
}

/// A kind of text, with its number in the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `GetDBOptionsFromString`.
    Database = 0,
    /// `GetColumnFamilyOptionsFromString`.
    Family = 1,
    /// `GetBlockBasedTableOptionsFromString`.
    Table = 2,
    /// `GetOptionsFromString`.
    Both = 3,
    /// `LoadOptionsFromFile`.
    File = 4,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [Kind::Database, Kind::Family, Kind::Table, Kind::Both, Kind::File];
}

/// Beginning of the error of work that ended its process.
pub(super) const ENDED: &str = "the process ends by signal";

/// Does work of RocksDB in a process of its own, because some options end it.
pub(super) fn apart(work: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|e| e.to_string())?;
    // SAFETY: the child goes on with this thread alone, which holds no lock, and ends without
    // returning. This process never calls RocksDB itself, so the child lacks no thread of its.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (taken, said) = match work() {
            Ok(said) => (1, said),
            Err(said) => (0, said),
        };
        let _ = writer.write_all(&[taken]).and_then(|()| writer.write_all(said.as_bytes()));
        // SAFETY: ends the process without what the parent does at its end.
        unsafe { libc::_exit(0) }
    }
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).map_err(|e| e.to_string())?;
    let mut status = 0;
    // SAFETY: the child is this process's, and waited for once.
    if child < 0 || unsafe { libc::waitpid(child, &mut status, 0) } != child {
        return Err(std::io::Error::last_os_error().to_string());
    }
    if libc::WIFSIGNALED(status) {
        return Err(format!("{ENDED} {}", libc::WTERMSIG(status)));
    }
    let text = String::from_utf8_lossy(said.get(1..).unwrap_or_default()).into_owned();
    if said.first() == Some(&1) { Ok(text) } else { Err(text) }
}

/// Parses with RocksDB, and prints. A file's text goes through a file.
pub(super) fn rocks(kind: Kind, text: &str, ignore_unknown: bool) -> Result<String, String> {
    let path = std::env::temp_dir().join(format!("karst-judge-options-{}.txt", std::process::id()));
    let mut given = text.to_owned();
    if kind == Kind::File {
        let whole = if text.is_empty() { super::draw::file([11, 8, 1], &[], &[], &[]) } else { given };
        std::fs::write(&path, whole).map_err(|e| format!("{}: {e}", path.display()))?;
        given = path.display().to_string();
    }
    let given = CString::new(given).map_err(|e| e.to_string())?;
    let outcome = apart(|| {
        let mut out = null_mut();
        // SAFETY: the text outlives the call, which sets `out` to a terminated string of malloc's.
        let (taken, printed) = unsafe {
            let kind = kind as libc::c_int;
            let taken = karst_judge_options(kind, given.as_ptr(), ignore_unknown.into(), &mut out);
            let printed = CStr::from_ptr(out).to_string_lossy().into_owned();
            libc::free(out.cast());
            (taken, printed)
        };
        if taken == 1 { Ok(printed) } else { Err(printed) }
    });
    if kind == Kind::File {
        std::fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    outcome
}

/// Parses with KarstDB, and prints.
pub(super) fn karst(kind: Kind, text: &str, ignore_unknown: bool) -> Result<String, String> {
    let said = |error: karst_format::options::OptionError| error.to_string();
    match kind {
        Kind::Database => {
            let mut options = DbOptions::default();
            options.set_all(text).map_err(said)?;
            Ok(options.to_text())
        }
        Kind::Family => {
            let mut options = ColumnFamilyOptions::default();
            options.set_all(text).map_err(said)?;
            Ok(options.to_text())
        }
        Kind::Table => {
            let mut options = BlockBasedTableOptions::default();
            options.set_all(text).map_err(said)?;
            Ok(options.to_text())
        }
        Kind::Both => {
            // The public call does not print options, so its parts are set one by one as well.
            karst_engine::Options::new().set_all(text).map_err(|e| e.to_string())?;
            let (mut db, mut family) = (DbOptions::default(), ColumnFamilyOptions::default());
            for (name, value) in split(text).map_err(said)? {
                let of_db = DbOptions::entry(name).is_some() || DbOptions::RETIRED.contains(&name);
                let set = if of_db { db.set(name, value) } else { family.set(name, value) };
                set.map_err(said)?;
            }
            Ok(format!("{}\n{}", db.to_text(), family.to_text()))
        }
        Kind::File => {
            let whole = match text {
                "" => super::draw::file([11, 8, 1], &[], &[], &[]),
                text => text.to_owned(),
            };
            let unknown =
                if ignore_unknown { UnknownOptions::Keep } else { UnknownOptions::RefuseUnlessNewer };
            let file = OptionsFile::parse(whole.as_bytes(), unknown).map_err(said)?;
            Ok(format!("{}\n{}", file.db.to_text(), file.column_families[0].options.to_text()))
        }
    }
}
