//! Circles of modules: modules that cannot be read, tested or moved without each other.
//!
//! The rule: among the modules of one parent, each with its submodules, names lead in one direction
//! only. A module and its submodules may name each other, because these split one subject. In: the
//! parsed crates. Out: the shortest circle of each strongly connected set of modules, with a line
//! for each of its steps; names that lead up the layers of `engine`; exceptions that are no longer
//! needed.

use super::parsed::{Crate, ModuleId, Naming};
use std::collections::{BTreeMap, BTreeSet};

/// Invariant: the stack inside `engine`; a module may name its own layer and those before it.
const ENGINE_LAYERS: &[&[&str]] = &[
    &["error", "options", "stats", "perf_context", "snapshot", "format", "health", "events", "pacing"],
    &["claims"],
    &["versions", "sealing"],
    &["read", "pipeline_host", "flush", "compact"],
    &["background"],
    &["ingest", "open"],
    &["write_half"],
    &["properties"],
    &["db"],
    &["copies", "trace", "ttl"],
    &["repair"],
];

/// Permitted steps against the direction of their siblings: the crate, the naming and the named
/// module, and the reason or the change that will end it.
///
/// Invariant: this list only shrinks.
const BACKWARD: &[(&str, &str, &str, &str)] = &[
    ("io", "env", "background", "an environment has its pools of threads, whose jobs get the environment"),
    ("io", "env", "block_on", "as the one before, of the thread that waits"),
    ("io", "env", "simulation", "an environment may be a simulated one, which is made of simulated parts"),
    ("io", "channel", "env", "the clock is declared with the environment"),
    ("io", "driver", "env", "as the one before, of what makes channels"),
    ("io", "channel", "remote", "a channel gives out operations, which know its slots"),
    ("io", "channel::sharing", "channel::core", "a read that is shared is part of a channel, and knows it"),
    ("io", "channel::outbox", "channel::slot", "as the one before, of what other threads hand in"),
    (
        "txn",
        "pessimistic::transaction",
        "pessimistic::db",
        "a database keeps what is prepared and in no hand, and a transaction belongs to a database",
    ),
];

/// For each pair of siblings of which the first names the second, the first place where it does.
type Steps<'a> = BTreeMap<(ModuleId, ModuleId), &'a Naming>;

pub(super) fn check(parsed: &[Crate], found: &mut Vec<String>) {
    for parsed in parsed {
        let namings = parsed.namings();
        let of_siblings = steps(parsed, &namings);
        check_circles(parsed, &of_siblings, BACKWARD, found);
        if parsed.name == "engine" {
            check_layers(parsed, &of_siblings, ENGINE_LAYERS, found);
        }
    }
}

fn steps<'a>(parsed: &Crate, namings: &'a [Naming]) -> Steps<'a> {
    let mut steps = Steps::new();
    for naming in namings {
        if let Some(siblings) = parsed.siblings(naming.from, naming.to) {
            steps.entry(siblings).or_insert(naming);
        }
    }
    steps
}

fn check_circles(
    parsed: &Crate,
    steps: &Steps,
    backward: &[(&str, &str, &str, &str)],
    found: &mut Vec<String>,
) {
    let path_of = |module: ModuleId| parsed.modules[module].path.as_str();
    let is_listed = |(from, to): (ModuleId, ModuleId)| {
        let listed = backward.iter().filter(|(of, ..)| *of == parsed.name);
        listed.into_iter().any(|(_, a, b, _)| (*a, *b) == (path_of(from), path_of(to)))
    };
    let (excepted, forward): (BTreeSet<_>, BTreeSet<_>) = steps.keys().partition(|step| is_listed(**step));
    for (of, from, to, _) in backward.iter().filter(|(of, ..)| *of == parsed.name) {
        let mut those = excepted.iter().filter(|(a, b)| (path_of(*a), path_of(*b)) == (*from, *to));
        if !those.any(|(from, to)| shortest_way(&forward, *to, *from).is_some()) {
            found.push(format!("{of}: `{from}` -> `{to}` closes no circle; delete it from BACKWARD"));
        }
    }
    for circle in shortest_circles(&forward) {
        let names: Vec<_> = circle.iter().map(|module| path_of(*module)).collect();
        let mut message = format!("{}: a circle of modules: {}", parsed.name, names.join(" -> "));
        for step in circle.windows(2) {
            let naming = steps[&(step[0], step[1])];
            let file = &parsed.modules[naming.from].file;
            message += &format!("\n    {file}:{}: names `{}`", naming.line, naming.path);
        }
        found.push(message);
    }
}

/// Returns the shortest circle of each strongly connected set of modules, with its first module
/// repeated at the end.
fn shortest_circles(steps: &BTreeSet<(ModuleId, ModuleId)>) -> Vec<Vec<ModuleId>> {
    let mut unknown: BTreeSet<ModuleId> = steps.iter().map(|(from, _)| *from).collect();
    let mut circles = Vec::new();
    while let Some(module) = unknown.pop_first() {
        let leads = |from, to| shortest_way(steps, from, to).is_some();
        let knot: Vec<_> =
            unknown.iter().copied().filter(|other| leads(module, *other) && leads(*other, module)).collect();
        unknown.retain(|other| !knot.contains(other));
        let through = |module| shortest_way(steps, module, module);
        circles.extend([module].into_iter().chain(knot).filter_map(through).min_by_key(Vec::len));
    }
    circles
}

/// Returns the shortest path of at least one step.
fn shortest_way(
    steps: &BTreeSet<(ModuleId, ModuleId)>,
    from: ModuleId,
    to: ModuleId,
) -> Option<Vec<ModuleId>> {
    let mut ways = vec![vec![from]];
    let mut reached = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = way[way.len() - 1];
            for (_, next) in steps.range((last, 0)..=(last, ModuleId::MAX)) {
                if reached.insert(*next) {
                    let way = [way.as_slice(), &[*next]].concat();
                    if *next == to {
                        return Some(way);
                    }
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

fn check_layers(parsed: &Crate, steps: &Steps, layers: &[&[&str]], found: &mut Vec<String>) {
    let path_of = |module: ModuleId| parsed.modules[module].path.as_str();
    let layer_of = |module: ModuleId| layers.iter().position(|layer| layer.contains(&path_of(module)));
    let is_top = |module: &ModuleId| parsed.parent(*module) == Some(0);
    let top: Vec<_> = (0..parsed.modules.len()).filter(is_top).collect();
    for module in top.iter().filter(|module| layer_of(**module).is_none()) {
        found.push(format!("{}: `{}` has no layer in ENGINE_LAYERS", parsed.name, path_of(*module)));
    }
    for listed in layers.iter().copied().flatten() {
        if !top.iter().any(|module| path_of(*module) == *listed) {
            found.push(format!("{}: `{listed}` is in ENGINE_LAYERS, and no module is", parsed.name));
        }
    }
    for ((from, to), naming) in steps.iter().filter(|((from, _), _)| is_top(from)) {
        if layer_of(*from) < layer_of(*to) {
            let (file, line) = (&parsed.modules[naming.from].file, naming.line);
            let (from, to) = (path_of(*from), path_of(*to));
            found.push(format!("{file}:{line}: `{from}` names `{to}`, which is above it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings in a crate of these files with these exceptions.
    fn said(files: &[(&str, &str)], backward: &[(&str, &str, &str, &str)]) -> Vec<String> {
        let text_of = |path: &str| files.iter().find(|(file, _)| *file == path).map(|(_, text)| *text);
        let parsed = Crate::parse("it", "src/lib.rs", &text_of).expect("it is Rust");
        let namings = parsed.namings();
        let mut found = Vec::new();
        check_circles(&parsed, &steps(&parsed, &namings), backward, &mut found);
        found
    }

    /// `a` names `b` in a signature, `b` names `c` in a `use`, `c` names `a` in the arguments of a
    /// macro.
    const CIRCLE: [(&str, &str); 5] = [
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a.rs", "pub struct A;\nfn f(_: &super::b::inside::B) {}"),
        ("src/b/mod.rs", "pub mod inside;"),
        ("src/b/inside.rs", "\n\nuse crate::{c::C as D};\npub struct B;"),
        ("src/c.rs", "pub struct C;\nfn f() { assert!(matches!(g(), crate::a::A)); }"),
    ];

    #[test]
    fn a_planted_circle_is_found_with_the_lines_that_make_it() {
        let circle = "it: a circle of modules: a -> b -> c -> a\n    \
             src/a.rs:2: names `super::b::inside::B`\n    \
             src/b/inside.rs:3: names `crate::c::C`\n    \
             src/c.rs:2: names `crate::a::A`";
        assert_eq!(said(&CIRCLE, &[]), [circle]);
        assert_eq!(said(&CIRCLE, &[("it", "c", "a", "it has to")]), Vec::<String>::new());
        assert_eq!(said(&CIRCLE, &[("other", "c", "a", "is of another crate")]), [circle]);
    }

    #[test]
    fn an_exception_that_is_needed_no_more_is_found() {
        let listed = [("it", "c", "a", ""), ("it", "b", "a", "")];
        assert_eq!(said(&CIRCLE, &listed), ["it: `b` -> `a` closes no circle; delete it from BACKWARD"]);
        let mut straight = CIRCLE;
        straight[4].1 = "pub struct C;";
        assert_eq!(said(&straight, &listed[..1]).len(), 1);
    }

    #[test]
    fn the_shortest_circle_is_shown_and_each_knot_once() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c; mod x; mod y;"),
            ("src/a.rs", "use crate::b::B;"),
            ("src/b.rs", "use crate::c::C;"),
            ("src/c.rs", "use crate::{a, b};"),
            ("src/x.rs", "use crate::{y, c};"),
            ("src/y.rs", "use crate::x;"),
        ];
        let heads = said(&files, &[]);
        let heads: Vec<_> = heads.iter().filter_map(|message| message.lines().next()).collect();
        let of = |circle| format!("it: a circle of modules: {circle}");
        assert_eq!(heads, [of("b -> c -> b"), of("x -> y -> x")]);
    }

    #[test]
    fn parents_and_children_may_name_each_other() {
        let files = [
            ("src/lib.rs", "mod a;\npub use a::child::Child;"),
            ("src/a.rs", "mod child;\npub struct A;\nimpl A { fn f() -> child::Child { child::new() } }"),
            ("src/a/child.rs", "use super::A;\npub struct Child(crate::a::A);"),
        ];
        assert_eq!(said(&files, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_a_parent_passes_on_leads_to_the_child_that_has_it() {
        let files = [
            ("src/lib.rs", "mod one;\nmod two;\npub use two::Two;"),
            ("src/one.rs", "pub struct One;\nfn f() { crate::Two::new(); }"),
            ("src/two.rs", "use super::*;\npub struct Two(one::One);"),
        ];
        assert_eq!(said(&files, &[]).len(), 1);
    }

    #[test]
    fn tests_and_files_of_the_same_name_elsewhere_make_no_circle() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use crate::b::B;"),
            (
                "src/b.rs",
                "#[cfg(all(test, not(loom)))]\nmod tests { use crate::a; }\n#[cfg(test)]\nuse crate::a;",
            ),
            ("src/b/tests.rs", "use crate::a;"),
        ];
        assert_eq!(said(&files, &[]), Vec::<String>::new());
    }

    #[test]
    fn sees_what_leads_up_the_layers_and_what_has_none() {
        let files = [
            ("src/lib.rs", "mod low; mod high; mod new;"),
            ("src/low.rs", "use crate::{error::Error, high::High};"),
            ("src/high.rs", "use super::low;"),
            ("src/new.rs", ""),
        ];
        let text_of = |path: &str| files.iter().find(|(file, _)| *file == path).map(|(_, text)| *text);
        let parsed = Crate::parse("it", "src/lib.rs", &text_of).expect("it is Rust");
        let namings = parsed.namings();
        let mut found = Vec::new();
        check_layers(&parsed, &steps(&parsed, &namings), &[&["low"], &["gone", "high"]], &mut found);
        assert_eq!(
            found,
            [
                "it: `new` has no layer in ENGINE_LAYERS",
                "it: `gone` is in ENGINE_LAYERS, and no module is",
                "src/low.rs:1: `low` names `high`, which is above it",
            ]
        );
    }
}
