//! Settings of the compact forms that Redis has for small collections, such as
//! `hash-max-listpack-entries`.
//!
//! A collection of any size has one form here. The settings decide the name that OBJECT ENCODING
//! returns, which is that of the form that Redis would have for these elements. Those of streams
//! decide how an approximate trim counts, and how DUMP packs entries.

use super::integers::{Bounds, Integers, NATURAL, Row, SIZE};

const EITHER: Bounds =
    (i32::MIN as i64, i32::MAX as i64, "argument must be between -2147483648 and 2147483647 inclusive");

/// In the order of [`FormSetting`].
const ROWS: [Row; 11] = [
    ("hash-max-listpack-entries", "hash-max-ziplist-entries", 512, &SIZE),
    ("hash-max-listpack-value", "hash-max-ziplist-value", 64, &SIZE),
    ("list-max-listpack-size", "list-max-ziplist-size", -2, &EITHER),
    ("list-compress-depth", "list-compress-depth", 0, &NATURAL),
    ("set-max-intset-entries", "set-max-intset-entries", 512, &SIZE),
    ("set-max-listpack-entries", "set-max-listpack-entries", 128, &SIZE),
    ("set-max-listpack-value", "set-max-listpack-value", 64, &SIZE),
    ("zset-max-listpack-entries", "zset-max-ziplist-entries", 128, &SIZE),
    ("zset-max-listpack-value", "zset-max-ziplist-value", 64, &SIZE),
    ("stream-node-max-bytes", "stream-node-max-bytes", 4096, &SIZE),
    ("stream-node-max-entries", "stream-node-max-entries", 100, &SIZE),
];

/// A setting, by its place in [`ROWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum FormSetting {
    HashEntries = 0,
    HashValue = 1,
    ListSize = 2,
    SetIntegers = 4,
    SetEntries = 5,
    SetValue = 6,
    SortedSetEntries = 7,
    SortedSetValue = 8,
    StreamBytes = 9,
    StreamEntries = 10,
}

/// Values of the settings.
#[derive(Debug)]
pub(crate) struct Forms(Integers<{ ROWS.len() }>);

impl Default for Forms {
    fn default() -> Self {
        Self(Integers::new(&ROWS))
    }
}

impl Forms {
    pub(crate) fn get(&self, form: FormSetting) -> i64 {
        self.0.get(form as usize)
    }

    /// Those of [`Integers::values`].
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        self.0.values()
    }

    /// That of [`Integers::assign`].
    pub(crate) fn assign(&self, name: &str, value: &[u8], does: bool) -> Result<(), Option<&'static str>> {
        self.0.assign(name, value, does)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_set_the_same_value() {
        let forms = Forms::default();
        forms.assign("hash-max-ziplist-value", b"7", false).unwrap();
        assert_eq!(forms.get(FormSetting::HashValue), 64);
        forms.assign("hash-max-ziplist-value", b"7", true).unwrap();
        assert_eq!(forms.get(FormSetting::HashValue), 7);
        let values = forms.values();
        assert!(values.contains(&("hash-max-listpack-value", "7".to_owned())));
        assert!(values.contains(&("hash-max-ziplist-value", "7".to_owned())));
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        let forms = Forms::default();
        assert_eq!(forms.assign("nothing", b"1", true), Err(None));
        assert!(forms.assign("set-max-intset-entries", b"-1", true).is_err());
        assert!(forms.assign("set-max-intset-entries", b"many", true).is_err());
        assert_eq!(forms.get(FormSetting::SetIntegers), 512);
    }

    #[test]
    fn places_agree_with_the_rows() {
        assert_eq!(ROWS[FormSetting::ListSize as usize].0, "list-max-listpack-size");
        assert_eq!(ROWS[FormSetting::SetIntegers as usize].0, "set-max-intset-entries");
        assert_eq!(ROWS[FormSetting::SetValue as usize].0, "set-max-listpack-value");
        assert_eq!(ROWS[FormSetting::SortedSetValue as usize].0, "zset-max-listpack-value");
        assert_eq!(ROWS[FormSetting::StreamEntries as usize].0, "stream-node-max-entries");
    }
}
