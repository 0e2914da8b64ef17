//! Numbering of commands and subcommands in [`CommandSet`]s and [`CommandStats`], and their names
//! in rules and statistics.
//!
//! The commands come first, in the order of the table; the subcommands of containers follow, each
//! container's with `help` as the last one. It lives as long as the process: rules are kept
//! as text.
//!
//! [`CommandSet`]: crate::server::CommandSet
//! [`CommandStats`]: crate::server::CommandStats

use super::table::{Spec, TABLE};
use super::{categories, containers, lower};
use std::collections::HashMap;
use std::sync::LazyLock;

/// A command or a subcommand.
pub(super) struct Named {
    /// `get`, or `config|set`.
    pub(super) name: String,
    pub(super) categories: Vec<&'static str>,
}

struct Numbering {
    known: Vec<Named>,
    /// Number of the first subcommand of each command of the table.
    first_sub: Vec<usize>,
    by_name: HashMap<String, usize>,
}

static NUMBERS: LazyLock<Numbering> = LazyLock::new(|| {
    let of = |spec: &Spec| Named { name: spec.name.to_owned(), categories: categories::of(spec) };
    let mut known: Vec<Named> = TABLE.iter().map(of).collect();
    let mut first_sub = Vec::new();
    for spec in TABLE {
        first_sub.push(known.len());
        for name in sub_names(spec) {
            let categories = categories::of_sub(spec, name);
            known.push(Named { name: format!("{}|{name}", spec.name), categories });
        }
    }
    let by_name = known.iter().enumerate().map(|(number, it)| (it.name.clone(), number)).collect();
    Numbering { known, first_sub, by_name }
});

/// Names of the subcommands of a command.
fn sub_names(spec: &Spec) -> impl Iterator<Item = &'static str> {
    let subs = containers::subcommands(spec.id);
    let help = (!subs.is_empty()).then_some("help");
    subs.iter().map(|(name, ..)| *name).chain(help)
}

/// All commands and subcommands, by their numbers.
pub(super) fn all() -> &'static [Named] {
    &NUMBERS.known
}

/// The name of a request's command, with that of its subcommand.
pub(super) fn name_of(spec: &Spec, args: &[Vec<u8>]) -> &'static str {
    &all()[of_request(spec, args)].name
}

/// The number of a name in any case.
pub(super) fn find(name: &[u8]) -> Option<usize> {
    NUMBERS.by_name.get(&lower(name)).copied()
}

/// True if a number is that of a subcommand.
pub(super) fn is_sub(number: usize) -> bool {
    number >= TABLE.len()
}

/// Numbering of the subcommands of the command of a number.
pub(super) fn subs(number: usize) -> std::ops::Range<usize> {
    match TABLE.get(number) {
        Some(spec) => {
            let first = NUMBERS.first_sub[number];
            first..first + sub_names(spec).count()
        }
        None => 0..0,
    }
}

/// Number of a request's command, which is that of its subcommand if it has one.
pub(super) fn of_request(spec: &Spec, args: &[Vec<u8>]) -> usize {
    let number = spec.id as usize;
    let Some(word) = args.get(1) else { return number };
    let position = sub_names(spec).position(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    position.map_or(number, |at| NUMBERS.first_sub[number] + at)
}

#[cfg(test)]
mod tests {
    use super::super::tests::words;
    use super::*;
    use crate::server::COMMANDS_AT_MOST;

    #[test]
    fn numbers_are_those_of_names() {
        assert!(all().len() < COMMANDS_AT_MOST, "the last number stays for later commands");
        let of = |line: &str| {
            let args = words(line);
            let spec = super::super::find(&args[0]).unwrap();
            all()[of_request(spec, &args)].name.as_str()
        };
        assert_eq!((of("GET a"), of("Config SET a b")), ("get", "config|set"));
        assert_eq!(
            (of("acl help"), of("command"), of("command nothing")),
            ("acl|help", "command", "command")
        );
        for (number, known) in all().iter().enumerate() {
            assert_eq!(find(known.name.to_uppercase().as_bytes()), Some(number));
            assert_eq!(is_sub(number), known.name.contains('|'));
        }
        let config = find(b"config").unwrap();
        let names: Vec<_> = subs(config).map(|number| all()[number].name.as_str()).collect();
        assert_eq!(names.last(), Some(&"config|help"));
        assert!(names.contains(&"config|get") && subs(find(b"get").unwrap()).is_empty());
        assert_eq!(find(b"get|x"), None);
    }
}
