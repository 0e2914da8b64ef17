//! `--db_paths` and `--cf_paths`: the directories of a database's tables, which none of its files
//! name.

use crate::output::Fault;
use karst_engine::{DbPath, Options};

/// Returns the options with the directories of both flags.
///
/// # Errors
/// A flag does not have the form of [`directories`] and of the help.
pub(crate) fn with_paths(
    mut options: Options,
    db_paths: Option<&str>,
    cf_paths: Option<&str>,
) -> Result<Options, Fault> {
    if let Some(text) = db_paths {
        options = options.db_paths(directories("db_paths", text)?);
    }
    for of_one in cf_paths.iter().flat_map(|text| text.split(';')) {
        let misused = || Fault::Usage(format!("--cf_paths: expected FAMILY=DIRECTORY, found `{of_one}`"));
        let (family, text) = of_one.split_once('=').ok_or_else(misused)?;
        options = options.cf_paths(Some(family), directories("cf_paths", text)?);
    }
    Ok(options)
}

/// Parses `DIRECTORY[:BYTES],...`; without BYTES a directory has no limit.
fn directories(flag: &str, text: &str) -> Result<Vec<DbPath>, Fault> {
    let one = |text: &str| {
        let (directory, bytes) = match text.rsplit_once(':').map(|(path, size)| (path, size.parse::<u64>())) {
            Some((path, Ok(bytes))) => (path, bytes),
            _ => (text, u64::MAX),
        };
        match directory {
            "" => Err(Fault::Usage(format!("--{flag}: expected DIRECTORY[:BYTES], found `{text}`"))),
            _ => Ok(DbPath::new(directory, bytes)),
        }
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_have_sizes_or_none() {
        let found = directories("db_paths", "/a:10,/b:c,d").unwrap();
        let expected = [DbPath::new("/a", 10), DbPath::new("/b:c", u64::MAX), DbPath::new("d", u64::MAX)];
        assert_eq!(found, expected);
        for wrong in ["", "/a,,/b", ":5"] {
            assert!(directories("db_paths", wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "family", "family=", "a=/a;b"] {
            assert!(with_paths(Options::new(), None, Some(wrong)).is_err(), "{wrong}");
        }
        assert!(with_paths(Options::new(), Some("/a"), Some("a=/b;b=/c:1,/d")).is_ok());
    }
}
