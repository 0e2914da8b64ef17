//! Exports of the facade: all names that `engine` and `txn` export at their roots are exported by
//! `karstdb` too, because users depend on `karstdb` alone.
//!
//! In: the roots of the three crates. Out: names that `karstdb` lacks. Items with `#[doc(hidden)]`
//! are not part of the API and are skipped.

use super::Tree;
use std::collections::BTreeSet;
use syn::{Item, UseTree, Visibility};

const FACADE: &str = "crates/karstdb/src/lib.rs";
const EXPORTED: [&str; 2] = ["crates/engine/src/lib.rs", "crates/txn/src/lib.rs"];

/// Names that the crates export only for each other.
const NOT_FOR_USERS: [&str; 6] = ["Caller", "TransactionHooks", "Unchanged", "caller", "range_del", "io"];

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    let Some(facade) = tree.text(FACADE) else { return };
    let mut shown = BTreeSet::new();
    collect(facade, &mut shown);
    for path in EXPORTED {
        let mut exported = BTreeSet::new();
        collect(tree.text(path).unwrap_or(""), &mut exported);
        for name in exported.difference(&shown).filter(|name| !NOT_FOR_USERS.contains(&name.as_str())) {
            found.push(format!("{path}: `{name}` is exported, but not by {FACADE}"));
        }
    }
}

/// Collects the names that `pub use` gives at the root of a crate.
fn collect(text: &str, names: &mut BTreeSet<String>) {
    // Text that is not Rust is skipped, because the compiler reports it.
    let Ok(file) = syn::parse_file(text) else { return };
    for item in file.items {
        if let Item::Use(item) = item
            && matches!(item.vis, Visibility::Public(_))
            && !item.attrs.iter().any(|a| a.path().is_ident("doc") && is_hidden(a))
        {
            names_of(&item.tree, names);
        }
    }
}

fn is_hidden(attribute: &syn::Attribute) -> bool {
    attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
}

fn names_of(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => names_of(&path.tree, names),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(names.insert(rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names_of(tree, names)),
        UseTree::Glob(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::*;

    #[test]
    fn a_type_that_users_cannot_name_is_found() {
        let files = [
            (
                EXPORTED[0],
                "pub use db::{Db, Report as RepairReport, Caller};\n#[doc(hidden)]\npub use x::Shown;\nuse a::B;",
            ),
            (EXPORTED[1], "pub use one::Transaction;"),
            (FACADE, "#[doc(inline)]\npub use karst_engine::{Db};"),
        ];
        assert_eq!(
            said(check, &files),
            [
                format!("{}: `RepairReport` is exported, but not by {FACADE}", EXPORTED[0]),
                format!("{}: `Transaction` is exported, but not by {FACADE}", EXPORTED[1]),
            ]
        );
    }
}
