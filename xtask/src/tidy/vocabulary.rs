//! Unique type names: no module can name two types of one name.
//!
//! The rule: if a module can name two types that are declared in different modules and visible
//! outside of these, their names differ. `pub(crate)` types thus differ from all others,
//! `pub(super)` ones only from those of the same parent, and a private type may be called `State`,
//! because only its own file names it. The rule uses the visibility that the type itself declares.
//! In: the parsed crates. Out: types that share a name; entries of the list that are no longer
//! needed.

use super::parsed::{Crate, ModuleId, Type, Visible};
use std::collections::BTreeMap;

/// Names that several types still share: the crate, the name, and the number of these types.
///
/// Invariant: this list only shrinks.
const TO_BE_RENAMED: &[(&str, &str, usize)] = &[];

pub(super) fn check(crates: &[Crate], found: &mut Vec<String>) {
    for parsed in crates {
        check_crate(parsed, TO_BE_RENAMED, found);
    }
}

/// A type and the module in which, and below which, it can be named.
struct Nameable<'a> {
    declared: &'a Type,
    module: ModuleId,
    within: ModuleId,
}

fn check_crate(parsed: &Crate, to_be_renamed: &[(&str, &str, usize)], found: &mut Vec<String>) {
    let mut by_name = BTreeMap::<&str, Vec<Nameable>>::new();
    for (module, holder) in parsed.modules.iter().enumerate() {
        for declared in &holder.types {
            let within = match declared.visible {
                Visible::Crate => 0,
                Visible::Parent => parsed.parent(module).unwrap_or(0),
                Visible::Module => continue,
            };
            by_name.entry(&declared.name).or_default().push(Nameable { declared, module, within });
        }
    }
    // Types of one module do not conflict, because `cfg` compiles only one of them.
    let meet = |a: &Nameable, b: &Nameable| {
        a.module != b.module && (parsed.lies_in(a.within, b.within) || parsed.lies_in(b.within, a.within))
    };
    let allowed = |name: &str| {
        let listed = to_be_renamed.iter().find(|(of, listed, _)| *of == parsed.name && *listed == name);
        listed.map(|(_, _, types)| *types)
    };
    for (name, types) in &by_name {
        let same: Vec<_> = types.iter().filter(|one| types.iter().any(|other| meet(one, other))).collect();
        if same.is_empty() || allowed(name) == Some(same.len()) {
            continue;
        }
        let mut message = format!("{}: {} types are called `{name}`", parsed.name, same.len());
        if let Some(allowed) = allowed(name) {
            message += &format!(", {allowed} by TO_BE_RENAMED");
        }
        for one in same {
            message += &format!("\n    {}:{}", parsed.modules[one.module].file, one.declared.line);
        }
        found.push(message);
    }
    for (of, name, _) in to_be_renamed.iter().filter(|(of, ..)| *of == parsed.name) {
        let types = by_name.get(name).map_or(&[][..], Vec::as_slice);
        if !types.iter().any(|one| types.iter().any(|other| meet(one, other))) {
            found.push(format!("{of}: `{name}` has one meaning; delete it from TO_BE_RENAMED"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, &str)], to_be_renamed: &[(&str, &str, usize)]) -> Vec<String> {
        let text_of = |path: &str| files.iter().find(|(file, _)| *file == path).map(|(_, text)| *text);
        let parsed = Crate::parse("it", "src/lib.rs", &text_of).expect("it is Rust");
        let mut found = Vec::new();
        check_crate(&parsed, to_be_renamed, &mut found);
        found
    }

    const HOMOGRAPHS: [(&str, &str); 3] = [
        ("src/lib.rs", "mod a; mod b; enum State {}"),
        ("src/a.rs", "\npub(crate) enum Phase {}\nstruct State;"),
        ("src/b.rs", "\n\npub type Phase = u8;\n#[cfg(test)]\npub struct Phase;\nstruct State;"),
    ];

    #[test]
    fn a_planted_homograph_is_found_unless_it_is_listed() {
        let found = "it: 2 types are called `Phase`\n    src/a.rs:2\n    src/b.rs:3";
        assert_eq!(said(&HOMOGRAPHS, &[]), [found]);
        assert_eq!(said(&HOMOGRAPHS, &[("other", "Phase", 2)]), [found]);
        assert_eq!(said(&HOMOGRAPHS, &[("it", "Phase", 2)]), Vec::<String>::new());
    }

    #[test]
    fn an_entry_that_is_needed_no_more_or_less_is_found() {
        assert_eq!(said(&HOMOGRAPHS, &[("it", "Phase", 3)]).len(), 1);
        assert_eq!(
            said(&HOMOGRAPHS, &[("it", "Phase", 2), ("it", "State", 3), ("it", "Gone", 2)]),
            [
                "it: `State` has one meaning; delete it from TO_BE_RENAMED",
                "it: `Gone` has one meaning; delete it from TO_BE_RENAMED"
            ]
        );
    }

    #[test]
    fn types_of_two_parents_and_variants_by_cfg_may_share_a_name() {
        let apart = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "mod x { pub(super) struct Held; } mod y { pub(crate) struct Other; }"),
            (
                "src/b.rs",
                "mod x { pub(super) struct Held; }\n#[cfg(loom)]\npub struct C;\n#[cfg(not(loom))]\npub struct C;",
            ),
        ];
        assert_eq!(said(&apart, &[]), Vec::<String>::new());
        let mut together = apart;
        together[1].1 = "mod x { pub(super) struct Held; } mod y { pub(crate) struct Held; }";
        assert_eq!(said(&together, &[]).len(), 1, "both `Held` of `a` and the one of `b` meet in `a::y`");
        together[1].1 = "mod x { pub(super) struct Held; } mod y { pub(super) struct Held; }";
        assert_eq!(said(&together, &[]), ["it: 2 types are called `Held`\n    src/a.rs:1\n    src/a.rs:1"]);
    }
}
