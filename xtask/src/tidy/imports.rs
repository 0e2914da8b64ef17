//! Order of imports: a file's private imports are one block, which `cargo fmt` sorts; its
//! re-exports are another.

use super::Tree;

pub(super) fn check(tree: &Tree, found: &mut Vec<String>) {
    for (path, text) in tree.sources() {
        let mut behind = Behind::Other;
        for (index, line) in text.lines().enumerate() {
            behind = match behind {
                Behind::Import if line.is_empty() => Behind::Gap,
                Behind::Within if line.ends_with(';') => Behind::Import,
                Behind::Within => Behind::Within,
                Behind::Gap if line.is_empty() || line.starts_with("#[") => Behind::Gap,
                _ if !line.starts_with("use ") => Behind::Other,
                before => {
                    if before == Behind::Gap {
                        let line = index + 1;
                        found.push(format!("{path}:{line}: imports are one block, without empty lines"));
                    }
                    if line.ends_with(';') { Behind::Import } else { Behind::Within }
                }
            };
        }
    }
}

/// Kind of the line before.
#[derive(Clone, Copy, PartialEq)]
enum Behind {
    /// The end of an import.
    Import,
    /// A line of an import that continues on the next.
    Within,
    /// An empty line after an import.
    Gap,
    Other,
}

#[cfg(test)]
mod tests {
    use super::super::said;
    use super::check;

    fn count(text: &str) -> usize {
        said(check, &[("crates/engine/src/lib.rs", text)]).len()
    }

    #[test]
    fn imports_in_two_blocks_are_found() {
        assert_eq!(count("use a::b;\n\nuse std::c;\n"), 1);
        assert_eq!(count("use a::{\n    b,\n};\n\n#[cfg(test)]\nuse std::c;\n\nuse std::d;\n"), 2);
    }

    #[test]
    fn one_block_and_re_exports_beside_it_are_not() {
        assert_eq!(
            count("use a::b;\n#[cfg(test)]\nuse std::c;\n\npub use a::d;\n\nfn f() {\n    use x::y;\n}\n"),
            0
        );
        assert_eq!(count("pub use a::d;\n\nuse a::{\n    b,\n\n    c,\n};\n\nmod tests {\n}\n\nuse e;\n"), 0);
    }
}
