//! Option tables: the macro that declares one, and access to its options by name.
//!
//! A row has the form `name: type = default, mutable|fixed, honoured|kept, "meaning"`, optionally
//! with RocksDB's spelling behind the name and `, in range` at the end. The macro generates the
//! struct, its defaults and the rows of [`OptionSet::table`].
//!
//! Invariant: names in one table are unique (tested), and rows keep their order of declaration,
//! which is the order of printing.
use super::error::{OptionError, OptionErrorKind};
use super::info::{OptionInfo, Section};
use super::nearest::did_you_mean;
use super::text;
use super::value::ValueError;

/// One row of a table: the description, and access to the field.
#[derive(Debug)]
pub struct OptionEntry<S: 'static> {
    /// The description.
    pub info: OptionInfo,
    pub(super) print: fn(&S) -> String,
    pub(super) assign: fn(&mut S, &str) -> Result<(), ValueError>,
    pub(super) part_info: fn(&str) -> Option<&'static OptionInfo>,
    pub(super) assign_part: fn(&mut S, &str, &str) -> Result<(), ValueError>,
}

/// Result of [`OptionSet::set`].
#[derive(Clone, Copy, Debug)]
pub enum Assigned {
    /// The option was set.
    Set(&'static OptionInfo),
    /// RocksDB dropped the option; its text is kept and has no effect.
    Retired,
}

/// A struct of options with access by name.
pub trait OptionSet: Clone + Default + 'static {
    /// The section that contains the options.
    const SECTION: Section;
    /// Names of options that RocksDB has dropped and still accepts.
    const RETIRED: &'static [&'static str];
    /// Other names under which RocksDB accepts an option: alias and own name.
    const ALIASES: &'static [(&'static str, &'static str)];

    /// Returns all options in the order of printing.
    fn table() -> &'static [OptionEntry<Self>];

    /// Returns the retired options that were set, as text, in the order of setting.
    fn retired(&self) -> &[(&'static str, String)];

    /// Storage of the retired options.
    #[doc(hidden)]
    fn retired_mut(&mut self) -> &mut Vec<(&'static str, String)>;

    /// Returns the row of the option with this name or alias.
    fn entry(name: &str) -> Option<&'static OptionEntry<Self>> {
        let own = Self::ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own);
        Self::table().iter().find(|entry| entry.info.name == own)
    }

    /// Returns the description of the option with this name or alias, also within a nested option
    /// (`compression_opts.level`).
    fn info(name: &str) -> Option<&'static OptionInfo> {
        if let Some(entry) = Self::entry(name) {
            return Some(&entry.info);
        }
        let (outer, part) = name.split_once('.')?;
        (Self::entry(outer)?.part_info)(part)
    }

    /// Sets one option from its text. `name` may lead into a nested option
    /// (`compression_opts.level`).
    ///
    /// # Errors
    /// If the name is unknown, or the value malformed or out of range. No option has changed then.
    fn set(&mut self, name: &str, value: &str) -> Result<Assigned, OptionError> {
        let invalid = |error: ValueError| OptionError::new(OptionErrorKind::Invalid, name, error.what);
        if let Some(entry) = Self::entry(name) {
            (entry.assign)(self, value).map_err(invalid)?;
            return Ok(Assigned::Set(&entry.info));
        }
        if let Some((outer, inner)) = name.split_once('.')
            && let Some(entry) = Self::entry(outer)
        {
            (entry.assign_part)(self, inner, value).map_err(invalid)?;
            return Ok(Assigned::Set(&entry.info));
        }
        if let Some(retired) = Self::RETIRED.iter().find(|retired| **retired == name) {
            self.retired_mut().retain(|(set, _)| set != retired);
            self.retired_mut().push((retired, value.to_owned()));
            return Ok(Assigned::Retired);
        }
        let what = format!("not an option of {}", Self::SECTION);
        Err(OptionError::new(OptionErrorKind::Unknown, name, what + &did_you_mean(name, Self::names())))
    }

    /// Returns the names and aliases of all options, without those that RocksDB has dropped.
    fn names() -> impl Iterator<Item = &'static str> {
        Self::table().iter().map(|entry| entry.info.name).chain(Self::ALIASES.iter().map(|(alias, _)| *alias))
    }

    /// Returns one option as text, by name or alias; `None` for an unknown name and for a retired
    /// option that was not set.
    fn get(&self, name: &str) -> Option<String> {
        match Self::entry(name) {
            Some(entry) => Some((entry.print)(self)),
            None => self.retired().iter().find(|(set, _)| *set == name).map(|(_, value)| value.clone()),
        }
    }

    /// Sets every option of an option string (`"a=b;c={d=e}"`); the others keep their values.
    ///
    /// # Errors
    /// Those of [`set`](Self::set), and malformed text. No option has changed then.
    fn set_all(&mut self, options: &str) -> Result<(), OptionError> {
        let mut changed = self.clone();
        for (name, value) in text::split(options)? {
            changed.set(name, value)?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns the printed options, each as `name=value`, in the table's order. Options that are
    /// empty now and by default are omitted.
    fn lines(&self) -> Vec<String> {
        let default = Self::default();
        let line = |entry: &OptionEntry<Self>| {
            let value = (entry.print)(self);
            let shown = entry.info.printed && !(value.is_empty() && (entry.print)(&default).is_empty());
            shown.then(|| format!("{}={value}", entry.info.name))
        };
        Self::table().iter().filter_map(line).collect()
    }

    /// Returns the options as an option string.
    fn to_text(&self) -> String {
        self.lines().iter().fold(String::new(), |text, line| text + line + ";")
    }

    /// Returns the options whose text differs from the default's.
    fn changed(&self) -> Vec<&'static OptionInfo> {
        self.changed_from(&Self::default())
    }

    /// Returns the options whose text differs from that in `before`.
    fn changed_from(&self, before: &Self) -> Vec<&'static OptionInfo> {
        self.changes_from(before).map(|(info, ..)| info).collect()
    }

    /// Returns the options whose text differs from that in `before`, each with its text in `self`
    /// and in `before`.
    fn changes_from<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'static OptionInfo, String, String)> {
        let both =
            |entry: &'static OptionEntry<Self>| (&entry.info, (entry.print)(self), (entry.print)(before));
        Self::table().iter().map(both).filter(|(_, now, before)| now != before)
    }

    /// Returns the names of the options that differ from `before` and have no effect in KarstDB. A
    /// field of a nested option has the name that [`set`](Self::set) accepts
    /// (`compression_opts.checksum`).
    fn changed_without_effect(&self, before: &Self) -> Vec<String> {
        let mut names = Vec::new();
        for (info, now, before) in self.changes_from(before) {
            if !info.honoured {
                names.push(info.name.to_owned());
                continue;
            }
            let part_info = Self::entry(info.name).map(|entry| entry.part_info);
            let without_effect =
                |part: &str| part_info.and_then(|of| of(part)).is_some_and(|part| !part.honoured);
            // An absent value (`nullptr`) has no fields.
            let before = if before.starts_with('{') { before } else { "{}".to_owned() };
            let differing = text::differing_fields(&now, &before).unwrap_or_default();
            let parts = differing.iter().filter(|(part, _)| without_effect(part));
            names.extend(parts.map(|(part, _)| format!("{}.{part}", info.name)));
        }
        names
    }
}

/// Declares a struct of options; see the module's head for the form of a row.
macro_rules! option_table {
    (
        $(#[$about:meta])*
        $name:ident in $section:ident {
            $( $field:ident $(($spelled:literal))? : $type:ty = $default:expr,
               $mutable:ident, $honoured:ident, $meaning:literal $(, in $range:expr)? ; )*
        }
        retired { $($retired:literal),* $(,)? }
        aliases { $($alias:literal => $own:literal),* $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( #[doc = concat!($meaning, option_effect!($honoured))] pub $field: $type, )*
            /// Options that RocksDB has dropped, as text.
            pub retired: Vec<(&'static str, String)>,
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: $default, )* retired: Vec::new() }
            }
        }

        impl $crate::options::OptionSet for $name {
            const SECTION: $crate::options::Section = $crate::options::Section::$section;
            const RETIRED: &'static [&'static str] = &[$($retired),*];
            const ALIASES: &'static [(&'static str, &'static str)] = &[$(($alias, $own)),*];

            fn table() -> &'static [$crate::options::OptionEntry<$name>] {
                static TABLE: &[$crate::options::OptionEntry<$name>] = &[$(
                    $crate::options::OptionEntry {
                        info: $crate::options::OptionInfo {
                            section: $crate::options::Section::$section,
                            name: option_name!($field $($spelled)?),
                            kind: <$type as $crate::options::OptionValue>::KIND,
                            mutable: option_flag!($mutable),
                            honoured: option_flag!($honoured),
                            printed: <$type as $crate::options::OptionValue>::PRINTED,
                            meaning: $meaning,
                        },
                        print: |options| $crate::options::OptionValue::print(&options.$field),
                        assign: |options, text| {
                            let mut value = options.$field.clone();
                            $crate::options::OptionValue::assign(&mut value, text)?;
                            $( $crate::options::value::check(&value, $range)?; )?
                            options.$field = value;
                            Ok(())
                        },
                        part_info: <$type as $crate::options::OptionValue>::part_info,
                        assign_part: |options, part, text| {
                            $crate::options::OptionValue::assign_part(&mut options.$field, part, text)
                        },
                    },
                )*];
                TABLE
            }

            fn retired(&self) -> &[(&'static str, String)] {
                &self.retired
            }

            fn retired_mut(&mut self) -> &mut Vec<(&'static str, String)> {
                &mut self.retired
            }
        }
    };
}

/// RocksDB's spelling of a field's name.
macro_rules! option_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $spelled:literal) => {
        $spelled
    };
}

/// Sentence about an option's effect, appended to its documentation.
macro_rules! option_effect {
    (honoured) => {
        ""
    };
    (kept) => {
        ". Kept for RocksDB: it has no effect in KarstDB"
    };
}

/// Value of the flag that a word of a row stands for.
macro_rules! option_flag {
    (mutable) => {
        true
    };
    (fixed) => {
        false
    };
    (honoured) => {
        true
    };
    (kept) => {
        false
    };
}
