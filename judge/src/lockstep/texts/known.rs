//! Differences that are meant, each with its reason; docs/compatibility.md lists them too.

use super::draw::Text;
use super::parse::{ENDED, Kind};
use std::collections::BTreeMap;

/// Number of texts of each case.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) taken: u64,
    pub(super) refused: u64,
    pub(super) opened: u64,
    /// Texts after which an engine prints a string with a semicolon, so that what it prints cannot
    /// be taken apart.
    pub(super) ambiguous: u64,
    known: BTreeMap<&'static str, u64>,
}

/// A difference between the engines over one text.
struct Difference<'a> {
    text: &'a Text,
    /// Options that RocksDB and KarstDB printed, or their errors.
    rocks: &'a Result<String, String>,
    karst: &'a Result<String, String>,
}

impl Difference<'_> {
    fn only_rocks_takes(&self) -> bool {
        self.rocks.is_ok() && self.karst.is_err()
    }

    /// Returns the words of all values that begin like a number.
    fn numbers(&self) -> impl Iterator<Item = &str> {
        let words = self.text.all().flat_map(|one| one.value.split(['{', '}', ';', ':', '=']));
        words
            .map(str::trim)
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)))
    }

    fn has(&self, names: &[&str]) -> bool {
        self.text
            .all()
            .any(|one| names.iter().any(|name| one.name.contains(name) || one.value.contains(name)))
    }
}

/// A difference that is meant.
struct Exception {
    name: &'static str,
    why: &'static str,
    applies: fn(&Difference<'_>) -> bool,
}

/// Returns a number without its suffix, and the suffix.
fn suffix(word: &str) -> (&str, &str) {
    word.split_at(word.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']).len())
}

/// Returns true if there is nothing between a value's braces, or no value.
fn is_empty_struct(value: &str) -> bool {
    value.trim_matches(['{', '}', ' ', ';']).is_empty()
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        name: "texts that end RocksDB's process",
        why: "an object that it cannot do without is set to none, or is made of a number that it does not check",
        applies: |d| {
            d.rocks.as_ref().is_err_and(|e| e.starts_with(ENDED) || e.contains("aborted: exception"))
        },
    },
    Exception {
        name: "unknown options of files",
        why: "KarstDB takes them from a newer release without being asked, and from any if it is asked; RocksDB from a \
              newer one if it is asked",
        applies: |d| {
            let unknown = d.rocks.as_ref().is_err_and(|error| error.contains("not recognized"));
            d.text.kind == Kind::File && d.karst.is_ok() && unknown
        },
    },
    Exception {
        name: "numbers above 2^31 that RocksDB reads as an int",
        why: "the option has 32 bits without a sign, and RocksDB parses and prints it with one",
        applies: |d| {
            let of_compression = d.has(&["max_dict_bytes", "zstd_max_train_bytes", "parallel_threads"]);
            let has_suffix = d.numbers().any(|word| !suffix(word).1.is_empty());
            d.karst.is_ok()
                && (d.rocks.as_ref().is_err_and(|error| error.contains("stoi"))
                    || of_compression && has_suffix)
        },
    },
    Exception {
        name: "some values between braces",
        why: "RocksDB removes one pair of braces around most values, and not around these",
        applies: |d| {
            let is = |what| d.rocks.as_ref().is_err_and(|error| error.contains(what));
            let is_value = is("No mapping for enum") || is("stoull") || is("stoi");
            d.karst.is_ok() && is_value && d.text.whole().contains('{')
        },
    },
    Exception {
        name: "objects that are not built in",
        why: "RocksDB leaves the option as it was; KarstDB keeps the text, and refuses it when a database is opened with it; \
              each prints an object as it likes",
        applies: |d| {
            d.text.all().any(|one| matches!(one.kind, "object" | "objects" | "table factory" | "cache"))
        },
    },
    Exception {
        name: "table options that are made good",
        why: "RocksDB corrects them in the options as it parses, KarstDB where it uses them",
        applies: |d| {
            let corrected = [
                "interval",
                "block_size_deviation",
                "format_version",
                "partition_filters",
                "index_type",
                "no_block_cache",
            ];
            d.rocks.is_ok() && d.karst.is_ok() && d.has(&corrected)
        },
    },
    Exception {
        name: "table options that RocksDB refuses when it opens",
        why: "KarstDB refuses a format version that it does not write as it parses",
        applies: |d| d.only_rocks_takes() && d.has(&["format_version"]),
    },
    Exception {
        name: "nothing between braces",
        why: "KarstDB takes an empty struct for no change, RocksDB for malformed",
        applies: |d| {
            d.karst.is_ok() && d.rocks.is_err() && d.text.all().any(|one| is_empty_struct(&one.value))
        },
    },
    Exception {
        name: "kZSTDNotFinalCompression",
        why: "KarstDB takes the name of earlier releases",
        applies: |d| d.karst.is_ok() && d.has(&["kZSTDNotFinalCompression"]),
    },
    Exception {
        name: "a brace without its other",
        why: "RocksDB takes it for a part of the value, and passes over it behind a number",
        applies: |d| {
            let whole = d.text.whole();
            d.only_rocks_takes() && whole.matches('{').count() != whole.matches('}').count()
        },
    },
    Exception {
        name: "blob_garbage_collection_* out of range",
        why: "RocksDB refuses them only with enable_blob_garbage_collection, which can be set later",
        applies: |d| d.only_rocks_takes() && d.has(&["blob_garbage_collection_"]),
    },
    Exception {
        name: "max_open_files below -1",
        why: "RocksDB takes it for 20 when it opens",
        applies: |d| d.only_rocks_takes() && d.has(&["max_open_files"]),
    },
    Exception {
        name: "text behind a number",
        why: "RocksDB reads as much of a number as it can and passes over the rest (`10x`, `1.5`, `1 K`, `1KB`)",
        applies: |d| {
            d.only_rocks_takes()
                && d.numbers().any(|word| {
                    let (digits, suffix) = suffix(word);
                    digits.parse::<i128>().is_err() && word.parse::<f64>().is_err()
                        || suffix.len() > 1
                        || word.contains('.')
                        || word.contains('e')
                })
        },
    },
    Exception {
        name: "negative numbers of unsigned options",
        why: "RocksDB takes -1 for 2^64 - 1",
        applies: |d| d.only_rocks_takes() && d.numbers().any(|word| word.starts_with('-')),
    },
    Exception {
        name: "numbers too large for their option",
        why: "RocksDB drops the bits that a suffix makes too many, or those of read_amp_bytes_per_bit, and passes over T \
              for an int",
        applies: |d| {
            let has_suffix = d.numbers().any(|word| !suffix(word).1.is_empty());
            d.only_rocks_takes() && (has_suffix || d.has(&["read_amp_bytes_per_bit"]))
        },
    },
    Exception {
        name: "numbers that are not finite",
        why: "no such option has a use for nan or inf",
        applies: |d| {
            d.only_rocks_takes()
                && d.text.all().any(|one| one.value.contains("nan") || one.value.contains("inf"))
        },
    },
    Exception {
        name: "unknown options are ignored",
        why: "with ignore_unknown_options RocksDB ignores values that are malformed, too",
        applies: |d| d.text.ignore_unknown && d.only_rocks_takes(),
    },
    Exception {
        name: "more than 256 levels",
        why: "a level has a number of one byte",
        applies: |d| d.only_rocks_takes() && d.has(&["num_levels"]),
    },
];

impl Counts {
    /// Returns true if an exception explains why the engines differ over a text.
    pub(super) fn explains(
        &mut self,
        text: &Text,
        rocks: &Result<String, String>,
        karst: &Result<String, String>,
    ) -> bool {
        let difference = Difference { text, rocks, karst };
        let found = EXCEPTIONS.iter().find(|known| (known.applies)(&difference));
        if let Some(known) = found {
            *self.known.entry(known.name).or_default() += 1;
        }
        found.is_some()
    }

    pub(super) fn print(&self) {
        let Counts { taken, refused, opened, ambiguous, .. } = self;
        println!(
            "taken by both: {taken}, refused by both: {refused}, opened: {opened}, printed so that it cannot \
             be compared: {ambiguous}"
        );
        for (name, times) in &self.known {
            let why = EXCEPTIONS.iter().find(|known| known.name == *name).map_or("", |known| known.why);
            println!("{times:8} {name}: {why}");
        }
    }
}
