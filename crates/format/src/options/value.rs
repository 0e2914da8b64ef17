//! Types of option values: parsing and printing of each.
//!
//! Compat: numbers may end in K, M, G or T (powers of 1024); booleans are `true`, `false`, `1` or
//! `0`; lists are separated by colons; `nullptr` is an absent object. Trailing garbage, which
//! RocksDB ignores, is an error here.
use super::info::{OptionInfo, Section};
use super::text;
use std::fmt::{Debug, Display};
use std::ops::RangeBounds;

/// A text that is not a value of its option's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// Description of the problem.
    pub what: String,
}

impl ValueError {
    pub(super) fn new(what: impl Into<String>) -> ValueError {
        ValueError { what: what.into() }
    }
}

/// A type of option values.
pub trait OptionValue: Clone {
    /// The type's name, for people.
    const KIND: &'static str;
    /// True if values of the type are printed.
    const PRINTED: bool = true;

    /// Sets the value from its text. A struct keeps the fields that the text does not name.
    ///
    /// # Errors
    /// If the text is not a value of this type; the value is then unspecified.
    fn assign(&mut self, text: &str) -> Result<(), ValueError>;

    /// Sets one field of a struct from its text.
    ///
    /// # Errors
    /// If the type has no such field, or the text is not a value of it.
    fn assign_part(&mut self, part: &str, text: &str) -> Result<(), ValueError> {
        let _ = text;
        Err(ValueError::new(format!("there is no {part:?} in a {}", Self::KIND)))
    }

    /// Returns the description of the field with this name; `None` if the type has no such field.
    fn part_info(part: &str) -> Option<&'static OptionInfo> {
        let _ = part;
        None
    }

    /// Returns the value's text.
    fn print(&self) -> String;
}

/// Rejects a value outside of the option's range.
pub(super) fn check<T: PartialOrd + Display>(
    value: &T,
    range: impl RangeBounds<T> + Debug,
) -> Result<(), ValueError> {
    if range.contains(value) {
        return Ok(());
    }
    Err(ValueError::new(format!("{value} is not in {range:?}")))
}

/// Splits a number into its digits and the power of two of its optional suffix.
fn split_suffix(text: &str) -> (&str, u32) {
    let shift = match text.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        Some(b'g' | b'G') => 30,
        Some(b't' | b'T') => 40,
        _ => return (text, 0),
    };
    (&text[..text.len() - 1], shift)
}

fn parse_integer(text: &str, kind: &str) -> Result<i128, ValueError> {
    let (digits, shift) = split_suffix(text::strip_layer(text).trim());
    let wrong = || ValueError::new(format!("{text:?} is no {kind}"));
    let number: i128 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

macro_rules! integers {
    ($($type:ty => $kind:literal),*) => {$(
        impl OptionValue for $type {
            const KIND: &'static str = $kind;

            fn assign(&mut self, text: &str) -> Result<(), ValueError> {
                let number = parse_integer(text, Self::KIND)?;
                *self = number.try_into().map_err(|_| {
                    ValueError::new(format!("{number} is out of range for a {}", Self::KIND))
                })?;
                Ok(())
            }

            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

integers!(u8 => "uint8", i32 => "int", u32 => "uint32", i64 => "int64", u64 => "uint64", usize => "size");

impl OptionValue for bool {
    const KIND: &'static str = "bool";

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        *self = match text::strip_layer(text.trim()) {
            "true" | "1" => true,
            "false" | "0" => false,
            _ => return Err(ValueError::new(format!("{text:?} is neither true nor false"))),
        };
        Ok(())
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for f64 {
    const KIND: &'static str = "double";

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        match text::strip_layer(text).trim().parse::<f64>() {
            Ok(number) if number.is_finite() => *self = number,
            _ => return Err(ValueError::new(format!("{text:?} is no number"))),
        }
        Ok(())
    }

    /// Compat: six digits behind the point, like RocksDB.
    fn print(&self) -> String {
        format!("{self:.6}")
    }
}

impl OptionValue for String {
    const KIND: &'static str = "string";

    fn assign(&mut self, value: &str) -> Result<(), ValueError> {
        *self = text::unescape(text::strip_layer(value));
        Ok(())
    }

    fn print(&self) -> String {
        text::escape(self)
    }
}

impl<T: OptionValue + Default> OptionValue for Vec<T> {
    const KIND: &'static str = T::KIND;

    fn assign(&mut self, value: &str) -> Result<(), ValueError> {
        let mut items = Vec::new();
        for part in text::split_list(text::strip_braces(value)) {
            let mut item = T::default();
            item.assign(part)?;
            items.push(item);
        }
        *self = items;
        Ok(())
    }

    /// Compat: an item with a colon is printed in braces; a list of structs has braces around the
    /// whole list.
    fn print(&self) -> String {
        let print = |item: &T| match item.print() {
            text if text.contains(':') => format!("{{{text}}}"),
            text => text,
        };
        let list = self.iter().map(print).collect::<Vec<_>>().join(":");
        if list.contains('=') { format!("{{{list}}}") } else { list }
    }
}

/// Text that is kept unchanged: lists of objects that RocksDB creates and KarstDB does not
/// interpret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verbatim(pub String);

impl OptionValue for Verbatim {
    const KIND: &'static str = "objects";

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        text.clone_into(&mut self.0);
        Ok(())
    }

    fn print(&self) -> String {
        self.0.clone()
    }
}

/// An object that RocksDB creates from text: a comparator, a filter policy, a merge operator.
/// Stored as its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    text: Option<String>,
}

impl Object {
    /// No object: `nullptr`.
    pub const NONE: Object = Object { text: None };

    /// Returns the object that `text` describes: a name, or `{id=name;property=value}`. Empty text
    /// and `nullptr` mean no object.
    pub fn new(text: &str) -> Object {
        let text = text.trim();
        Object { text: (!text.is_empty() && text != "nullptr").then(|| text.to_owned()) }
    }

    /// Returns the whole text, or `None` without an object.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Returns the object's name: its `id`, or the whole text if that is not a list of properties.
    pub fn id(&self) -> Option<&str> {
        let text = self.text()?;
        Some(self.property("id").unwrap_or(text))
    }

    /// Returns a property of the object: `delimiter` in `{id=StringAppendOperator;delimiter=,}`.
    pub fn property(&self, name: &str) -> Option<&str> {
        let properties = text::split(self.text()?).ok()?;
        properties.into_iter().find(|(property, _)| *property == name).map(|(_, value)| value)
    }
}

impl OptionValue for Object {
    const KIND: &'static str = "object";

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        *self = Object::new(text);
        Ok(())
    }

    fn print(&self) -> String {
        self.text.clone().unwrap_or_else(|| "nullptr".to_owned())
    }
}

/// An object that lives outside of the database (an environment, a rate limiter): it can be set by
/// text, its own or that of what it is made of, but is never written to an OPTIONS file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unprinted<T = Object>(pub T);

impl<T: OptionValue> OptionValue for Unprinted<T> {
    const KIND: &'static str = T::KIND;
    const PRINTED: bool = false;

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        self.0.assign(text)
    }

    fn print(&self) -> String {
        self.0.print()
    }
}

/// An object that RocksDB neither makes of text nor prints: each text is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutText;

impl OptionValue for WithoutText {
    const KIND: &'static str = "object without text";
    const PRINTED: bool = false;

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        Err(ValueError::new(format!("{text:?} describes none: the object cannot be set by text")))
    }

    fn print(&self) -> String {
        String::new()
    }
}

/// A cache described by text: its size, or
/// `{capacity=64M;strict_capacity_limit=true;high_pri_pool_ratio=0.5}`. It is never written to an
/// OPTIONS file.
///
/// Compat: the names of all of RocksDB's caches are accepted and stand for KarstDB's only kind.
/// Properties that it does not have are kept, and have no effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cache {
    /// Capacity in bytes. `None`: the text describes no cache, and the code that opens the database
    /// chooses one.
    pub capacity_bytes: Option<usize>,
    /// True if the capacity is a hard limit even when all entries are pinned.
    pub strict_capacity: bool,
    /// Fraction of the capacity up to which metadata are evicted last; `None` is the default.
    pub metadata_fraction: Option<f64>,
    /// Properties of RocksDB's caches without effect here, by name, as text.
    pub without_effect: Vec<(&'static str, String)>,
}

/// Names of the properties of RocksDB's caches without effect here.
const CACHE_PROPERTIES_WITHOUT_EFFECT: &[OptionInfo] = {
    const fn property(name: &'static str, kind: &'static str, meaning: &'static str) -> OptionInfo {
        OptionInfo {
            section: Section::Nested,
            name,
            kind,
            mutable: false,
            honoured: false,
            printed: false,
            meaning,
        }
    }
    &[
        property("id", "string", "Name of RocksDB's cache, other than LRUCache"),
        property("num_shard_bits", "int", "Number of the cache's shards, as a power of two"),
        property(
            "low_pri_pool_ratio",
            "double",
            "Fraction of the capacity reserved for entries of low priority",
        ),
        property("estimated_entry_charge", "size", "Estimated bytes of an entry"),
        property("min_avg_entry_charge", "size", "Minimum of the average bytes of an entry"),
    ]
};

/// RocksDB's names of its caches.
const CACHES: [&str; 4] = ["LRUCache", "HyperClockCache", "FixedHyperClockCache", "AutoHyperClockCache"];

impl OptionValue for Cache {
    const KIND: &'static str = "cache";
    const PRINTED: bool = false;

    fn assign(&mut self, text: &str) -> Result<(), ValueError> {
        *self = Cache::default();
        let object = Object::new(text::strip_braces(text));
        let Some(text) = object.text() else { return Ok(()) };
        let mut capacity_bytes = 0;
        if !text.contains('=') {
            capacity_bytes.assign(text)?;
            self.capacity_bytes = Some(capacity_bytes);
            return Ok(());
        }
        let properties = text::split(text).map_err(|error| ValueError::new(error.to_string()))?;
        for (name, value) in properties {
            let of_property = |error: ValueError| ValueError::new(format!("{name}: {}", error.what));
            match name {
                "id" if !CACHES.contains(&value) => {
                    return Err(ValueError::new(format!("no cache is named {value:?}")));
                }
                "id" if value == CACHES[0] => {}
                "capacity" => {
                    capacity_bytes.assign(value).map_err(of_property)?;
                    self.capacity_bytes = Some(capacity_bytes);
                }
                "strict_capacity_limit" => self.strict_capacity.assign(value).map_err(of_property)?,
                "high_pri_pool_ratio" => {
                    let mut fraction = 0.0f64;
                    fraction.assign(value).and_then(|()| check(&fraction, 0.0..=1.0)).map_err(of_property)?;
                    self.metadata_fraction = Some(fraction);
                }
                _ => {
                    let info = Self::part_info(name);
                    let info =
                        info.ok_or_else(|| ValueError::new(format!("no cache has the property {name:?}")))?;
                    let is_number = match info.kind {
                        "int" => 0i32.assign(value),
                        "size" => 0usize.assign(value),
                        "double" => 0.0f64.assign(value),
                        _ => Ok(()),
                    };
                    is_number.map_err(of_property)?;
                    self.without_effect.push((info.name, value.to_owned()));
                }
            }
        }
        match self.capacity_bytes {
            Some(_) => Ok(()),
            None => Err(ValueError::new("a cache needs its capacity")),
        }
    }

    fn part_info(part: &str) -> Option<&'static OptionInfo> {
        CACHE_PROPERTIES_WITHOUT_EFFECT.iter().find(|info| info.name == part)
    }

    /// Prints the properties, so that the printed text parses back.
    fn print(&self) -> String {
        let Some(capacity) = self.capacity_bytes else { return "nullptr".to_owned() };
        let strict = self.strict_capacity;
        let mut text = format!("{{capacity={capacity};strict_capacity_limit={strict};");
        if let Some(fraction) = self.metadata_fraction {
            text.push_str(&format!("high_pri_pool_ratio={};", fraction.print()));
        }
        for (name, value) in &self.without_effect {
            text.push_str(&format!("{name}={value};"));
        }
        text + "}"
    }
}
