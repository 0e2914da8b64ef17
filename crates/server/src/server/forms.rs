//! Settings of the compact forms that Redis has for small collections, such as
//! `hash-max-listpack-entries`.
//!
//! A collection of any size has one form here. The settings decide the name that OBJECT ENCODING
//! returns, which is that of the form that Redis would have for these elements.

use crate::numbers::integer_within;
use std::sync::atomic::{AtomicI64, Ordering};

/// A setting: name, its older name (or the same), default and bounds.
type Row = (&'static str, &'static str, i64, &'static Bounds);

/// Minimum, maximum and the error text of a value outside of them.
type Bounds = (i64, i64, &'static str);

const SIZE: Bounds = (0, i64::MAX, "argument must be between 0 and 9223372036854775807 inclusive");
const DEPTH: Bounds = (0, i32::MAX as i64, "argument must be between 0 and 2147483647 inclusive");
const EITHER: Bounds =
    (i32::MIN as i64, i32::MAX as i64, "argument must be between -2147483648 and 2147483647 inclusive");

/// In the order of [`FormSetting`].
const ROWS: [Row; 9] = [
    ("hash-max-listpack-entries", "hash-max-ziplist-entries", 512, &SIZE),
    ("hash-max-listpack-value", "hash-max-ziplist-value", 64, &SIZE),
    ("list-max-listpack-size", "list-max-ziplist-size", -2, &EITHER),
    ("list-compress-depth", "list-compress-depth", 0, &DEPTH),
    ("set-max-intset-entries", "set-max-intset-entries", 512, &SIZE),
    ("set-max-listpack-entries", "set-max-listpack-entries", 128, &SIZE),
    ("set-max-listpack-value", "set-max-listpack-value", 64, &SIZE),
    ("zset-max-listpack-entries", "zset-max-ziplist-entries", 128, &SIZE),
    ("zset-max-listpack-value", "zset-max-ziplist-value", 64, &SIZE),
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
}

/// Values of the settings.
#[derive(Debug)]
pub(crate) struct Forms([AtomicI64; ROWS.len()]);

impl Default for Forms {
    fn default() -> Self {
        Self(ROWS.map(|(_, _, default, ..)| AtomicI64::new(default)))
    }
}

impl Forms {
    pub(crate) fn get(&self, form: FormSetting) -> i64 {
        self.0[form as usize].load(Ordering::Relaxed)
    }

    /// All names with their values; a setting with two names is there twice.
    pub(crate) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = Vec::new();
        for ((name, older, ..), value) in ROWS.iter().zip(&self.0) {
            let value = value.load(Ordering::Relaxed).to_string();
            if older != name {
                values.push((*older, value.clone()));
            }
            values.push((*name, value));
        }
        values
    }

    /// Sets one by its name, if `does`, or only checks the value.
    ///
    /// # Errors
    /// The reason that the value is refused, or `None` for an unknown setting.
    pub(crate) fn assign(&self, name: &str, value: &[u8], does: bool) -> Result<(), Option<&'static str>> {
        let found = ROWS.iter().zip(&self.0).find(|((new, older, ..), _)| name == *new || name == *older);
        let ((.., (least, most, text)), to) = found.ok_or(None)?;
        let number = integer_within(value, *least, *most, text)?;
        if does {
            to.store(number, Ordering::Relaxed);
        }
        Ok(())
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
    }
}
