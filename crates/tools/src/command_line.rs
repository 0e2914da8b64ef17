//! Command lines of the tools that take flags like db_bench and db_stress.
//!
//! A flag is `-name` or `--name`; its value follows after `=` or a space; a boolean stands alone,
//! as `--noname`, or with `=true` / `=false`. Input: the arguments and the kind of each flag
//! ([`next_flag`]); a table of flags (`flags!`). Output: names with the texts of their values; a
//! struct of typed values with their defaults, and its help.

use std::str::FromStr;
use std::time::Duration;

/// A value of a flag, parsed from its text.
pub(crate) trait FlagValue: Sized {
    /// True if the flag may stand alone, without a value.
    const BOOLEAN: bool = false;
    fn parse_flag(text: &str) -> Result<Self, String>;
}

impl FlagValue for bool {
    const BOOLEAN: bool = true;
    fn parse_flag(text: &str) -> Result<bool, String> {
        match text {
            "true" | "1" | "t" | "yes" | "y" => Ok(true),
            "false" | "0" | "f" | "no" | "n" => Ok(false),
            _ => Err("true or false".into()),
        }
    }
}

impl FlagValue for String {
    fn parse_flag(text: &str) -> Result<String, String> {
        Ok(text.to_string())
    }
}

macro_rules! numeric_flag {
    ($($t:ty => $what:literal),*) => {$(
        impl FlagValue for $t {
            fn parse_flag(text: &str) -> Result<$t, String> {
                <$t>::from_str(text).map_err(|_| $what.to_string())
            }
        }
    )*};
}
numeric_flag!(i32 => "a 32-bit whole number", i64 => "a whole number", u64 => "a whole number, not negative", f64 => "a number");

/// A duration: `90`, `90s`, `250ms`, `15m` or `2h`; without a unit in seconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl FlagValue for Span {
    fn parse_flag(text: &str) -> Result<Span, String> {
        let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
        let of = |(unit, seconds): &(&str, f64)| Some((text.strip_suffix(unit)?, *seconds));
        let (number, seconds) = units.iter().find_map(of).expect("every text ends with nothing");
        let number = number.trim().parse::<f64>().ok().filter(|number| *number >= 0.0);
        number
            .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok())
            .map(Span)
            .ok_or_else(|| "a time, such as 90, 250ms, 15m or 2h".to_string())
    }
}

/// Defines a struct `Flags` of all flags of a tool, from a table of `/// meaning`,
/// `name: type = default;`. The meanings are also the help texts.
macro_rules! flags {
    ($($(#[doc = $doc:literal])* $name:ident: $t:ty = $default:expr;)*) => {
        /// The honoured flags, by their names.
        #[derive(Clone, Debug)]
        pub(crate) struct Flags {
            $($(#[doc = $doc])* pub(crate) $name: $t,)*
            /// Names of the flags that the command line has.
            pub(crate) given: std::collections::BTreeSet<&'static str>,
            /// Options of the database from flags: name and value, in the order of the flags.
            pub(crate) options: Vec<(String, String)>,
        }

        impl Default for Flags {
            fn default() -> Flags {
                Flags { $($name: $default,)* given: std::collections::BTreeSet::new(), options: Vec::new() }
            }
        }

        impl Flags {
            /// Returns true if an honoured flag is boolean; `None` if this program does not honour
            /// it.
            fn is_boolean(name: &str) -> Option<bool> {
                match name { $(stringify!($name) => Some(<$t as $crate::command_line::FlagValue>::BOOLEAN),)* _ => None }
            }

            fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$t as $crate::command_line::FlagValue>::parse_flag(text)
                            .map_err(|want| format!("flag --{name}: `{text}` is not {want}"))?;
                        self.given.insert(stringify!($name));
                    })*
                    _ => unreachable!("is_boolean knows the same names"),
                }
                Ok(())
            }

            /// Returns the names of all flags.
            pub(crate) fn names() -> impl Iterator<Item = &'static str> {
                [$(stringify!($name)),*].into_iter()
            }

            /// Returns a line for each honoured flag, with its default.
            pub(crate) fn help() -> String {
                let defaults = Flags::default();
                let mut text = String::new();
                $({
                    let doc: Vec<&str> = vec![$($doc.trim()),*];
                    let default = format!("{:?}", defaults.$name);
                    text.push_str(&format!("  --{} ({})\n     {}\n", stringify!($name), default, doc.join(" ")));
                })*
                text
            }
        }
    };
}
pub(crate) use flags;

/// A flag of a command line, with the text of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Returns the next flag; `None` at the end. `kind` returns true for the name of a boolean flag,
/// false for that of one with a value, and `None` for an unknown name.
///
/// # Errors
/// The argument is not a flag, has a missing or superfluous value, or has an unknown name, for
/// which `unknown` returns the message.
pub(crate) fn next_flag<'a>(
    rest: &mut impl Iterator<Item = &'a String>,
    kind: impl Fn(&str) -> Option<bool>,
    unknown: impl Fn(&str) -> String,
) -> Option<Result<Given, String>> {
    let arg = rest.next()?;
    Some(parse_flag(arg, rest, kind, unknown))
}

fn parse_flag<'a>(
    arg: &str,
    rest: &mut impl Iterator<Item = &'a String>,
    kind: impl Fn(&str) -> Option<bool>,
    unknown: impl Fn(&str) -> String,
) -> Result<Given, String> {
    let Some(body) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).filter(|b| !b.is_empty())
    else {
        return Err(format!("`{arg}` is not a flag; a flag is --name=value"));
    };
    let (name, value) = match body.split_once('=') {
        Some((name, value)) => (name, Some(value.to_string())),
        None => (body, None),
    };
    if name == "help" || name == "h" {
        return Ok(Given { name: "help".into(), value: String::new() });
    }
    let (name, negated) = match kind(name) {
        Some(_) => (name, false),
        None => match name.strip_prefix("no").filter(|n| kind(n) == Some(true)) {
            Some(positive) => (positive, true),
            None => return Err(unknown(name)),
        },
    };
    let value = match value {
        Some(_) if negated => return Err(format!("flag --no{name} takes no value")),
        Some(value) => value,
        None if kind(name) == Some(true) => (!negated).to_string(),
        None => rest.next().cloned().ok_or_else(|| format!("flag --{name} needs a value"))?,
    };
    Ok(Given { name: name.to_string(), value })
}

/// Normalizes a boolean to the spelling of options; returns other values unchanged.
pub(crate) fn boolean_text(boolean: bool, value: &str) -> Result<String, String> {
    if boolean { bool::parse_flag(value).map(|b| b.to_string()) } else { Ok(value.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let span = |text| Span::parse_flag(text).map(|span| span.0.as_millis());
        assert_eq!(span("90"), Ok(90_000));
        assert_eq!(span("1.5s"), Ok(1500));
        assert_eq!(span("250ms"), Ok(250));
        assert_eq!(span("15m"), Ok(900_000));
        assert_eq!(span("2h"), Ok(7_200_000));
        for bad in ["", "-1", "soon", "5d", "1e300h"] {
            assert!(span(bad).unwrap_err().contains("a time"), "{bad}");
        }
    }
}
