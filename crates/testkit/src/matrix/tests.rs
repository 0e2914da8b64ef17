//! Every cell can be written, and shows what it was written for.

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

#[test]
fn every_cell_is_written_and_shows_its_feature() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let failures: Vec<String> = cells().iter().filter_map(|cell| cell.build(dir.path()).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
