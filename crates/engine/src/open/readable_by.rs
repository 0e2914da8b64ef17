//! Limits of options so that a given release of RocksDB can read the database.
//!
//! In: the release, as text, and options. Out: options by which only files known to the release are
//! written.
//!
//! Compat: additions to files after 7.8, by RocksDB's own history.
//!
//! | since | option | before |
//! |---|---|---|
//! | 8.6 | `format_version` 6 | 5 |
//! | 10.0 | `track_and_verify_wals` | false |
//! | 10.4 | `format_version` 7 | 6 |
//! | 11.0 | `separate_key_value_in_data_block` | false |
//! | 11.1 | `uniform_cv_threshold` | negative |

use karst_base::error::{Error, Result};
use karst_base::options::{ColumnFamilyOptions, DbOptions};

/// A release of RocksDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    major: u32,
    minor: u32,
}

/// The first and the last minor release of each major one.
const RELEASES: [(u32, u32, u32); 5] = [(7, 8, 10), (8, 0, 11), (9, 0, 11), (10, 0, 11), (11, 0, 8)];

impl Release {
    const fn new(major: u32, minor: u32) -> Release {
        Release { major, minor }
    }

    /// Parses a release: `7.8`, or with its patch, `7.8.3`.
    ///
    /// # Errors
    /// RocksDB has no such release, or it is older or newer than the known ones.
    pub(super) fn parse(text: &str) -> Result<Release> {
        let unknown = || {
            Error::invalid_argument(format!(
                "readable_by: {text:?} is no release of RocksDB from 7.8 on to 11.8"
            ))
        };
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<u32>().ok()).flatten().ok_or_else(unknown)
        };
        let (major, minor) = match text.split('.').collect::<Vec<_>>()[..] {
            [major, minor] => (number(major)?, number(minor)?),
            [major, minor, patch] => {
                number(patch)?;
                (number(major)?, number(minor)?)
            }
            _ => return Err(unknown()),
        };
        let is_known =
            |(of, first, last): &(u32, u32, u32)| *of == major && (*first..=*last).contains(&minor);
        if RELEASES.iter().any(is_known) { Ok(Release { major, minor }) } else { Err(unknown()) }
    }

    /// Turns off database options that the release does not know.
    pub(super) fn limit(self, options: &mut DbOptions) {
        if self < Release::new(10, 0) {
            options.track_and_verify_wals = false;
        }
    }

    /// Turns off column family options that the release does not know.
    pub(super) fn limit_family(self, options: &mut ColumnFamilyOptions) {
        let tables = &mut options.table_factory.block_based;
        let most = match self {
            _ if self < Release::new(8, 6) => 5,
            _ if self < Release::new(10, 4) => 6,
            _ => 7,
        };
        tables.format_version = tables.format_version.min(most);
        if self < Release::new(11, 0) {
            tables.separate_key_value_in_data_block = false;
        }
        if self < Release::new(11, 1) {
            tables.uniform_cv_threshold = tables.uniform_cv_threshold.min(-1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_base::options::OptionSet;

    #[test]
    fn releases_are_told_from_what_is_none() {
        for text in ["7.8", "7.8.3", "7.10", "8.0", "8.11.4", "9.11", "10.0", "10.11", "11.0", "11.8.1"] {
            assert!(Release::parse(text).is_ok(), "{text}");
        }
        for text in [
            "", "7", "7.7", "7.11", "8.12", "11.9", "12.0", "v8.0", "8.x", "8.+1", "8.1.", "8.1.2.3",
            "latest",
        ] {
            let error = Release::parse(text).unwrap_err().to_string();
            assert!(error.contains("readable_by") && error.contains("from 7.8 on to 11.8"), "{error}");
        }
        assert!(Release::parse("7.10").unwrap() > Release::parse("7.8").unwrap());
    }

    #[test]
    fn only_what_a_release_does_not_know_is_taken_back() {
        let everything = "format_version=7;separate_key_value_in_data_block=true;uniform_cv_threshold=0.2";
        for (release, version, keys_apart, uniform, tracked) in [
            ("7.8", 5, false, false, false),
            ("8.5", 5, false, false, false),
            ("8.6", 6, false, false, false),
            ("9.11", 6, false, false, false),
            ("10.0", 6, false, false, true),
            ("10.4", 7, false, false, true),
            ("11.0", 7, true, false, true),
            ("11.1", 7, true, true, true),
            ("11.8", 7, true, true, true),
        ] {
            let of = Release::parse(release).unwrap();
            let mut family = ColumnFamilyOptions::default();
            family.table_factory.block_based.set_all(everything).unwrap();
            of.limit_family(&mut family);
            let tables = &family.table_factory.block_based;
            assert_eq!(tables.format_version, version, "{release}");
            assert_eq!(tables.separate_key_value_in_data_block, keys_apart, "{release}");
            assert_eq!(tables.uniform_cv_threshold >= 0.0, uniform, "{release}");
            let mut db = DbOptions { track_and_verify_wals: true, ..DbOptions::default() };
            of.limit(&mut db);
            assert_eq!(db.track_and_verify_wals, tracked, "{release}");
            // A smaller value is kept.
            let mut family = ColumnFamilyOptions::default();
            family.table_factory.block_based.format_version = 4;
            of.limit_family(&mut family);
            assert_eq!(family.table_factory.block_based.format_version, 4, "{release}");
        }
    }
}
