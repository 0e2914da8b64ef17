//! Settings that are integers within bounds, in a table.

use crate::numbers::integer_within;
use std::sync::atomic::{AtomicI64, Ordering};

/// A setting: name, its older name (or the same), default and bounds.
pub(super) type Row = (&'static str, &'static str, i64, &'static Bounds);

/// Minimum, maximum and the error text of a value outside of them.
pub(super) type Bounds = (i64, i64, &'static str);

/// No negative number.
pub(super) const SIZE: Bounds = (0, i64::MAX, "argument must be between 0 and 9223372036854775807 inclusive");
/// No negative number of more than 31 bits.
pub(super) const NATURAL: Bounds =
    (0, i32::MAX as i64, "argument must be between 0 and 2147483647 inclusive");

/// Values of the settings of a table.
#[derive(Debug)]
pub(super) struct Integers<const N: usize> {
    rows: &'static [Row; N],
    values: [AtomicI64; N],
}

impl<const N: usize> Integers<N> {
    /// The defaults.
    pub(super) fn new(rows: &'static [Row; N]) -> Self {
        Self { rows, values: rows.map(|(_, _, default, _)| AtomicI64::new(default)) }
    }

    /// The value of the setting in a row.
    pub(super) fn get(&self, row: usize) -> i64 {
        self.values[row].load(Ordering::Relaxed)
    }

    /// All names with their values; a setting with two names is there twice.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let mut values = Vec::new();
        for ((name, older, ..), value) in self.rows.iter().zip(&self.values) {
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
    pub(super) fn assign(&self, name: &str, value: &[u8], does: bool) -> Result<(), Option<&'static str>> {
        let mut all = self.rows.iter().zip(&self.values);
        let found = all.find(|((new, older, ..), _)| name == *new || name == *older);
        let ((.., (least, most, text)), to) = found.ok_or(None)?;
        let number = integer_within(value, *least, *most, text)?;
        if does {
            to.store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}
