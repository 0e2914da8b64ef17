//! Tests of the list of cells. The engine's interop test checks that each can be written and shows
//! its feature.

use super::*;

#[test]
fn cell_names_are_unique_and_their_first_family_is_the_default() {
    let cells = cells();
    let mut names: Vec<_> = cells.iter().map(|c| c.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cells.len());
    assert!(cells.iter().all(|c| c.families[0].name == "default"));
}
