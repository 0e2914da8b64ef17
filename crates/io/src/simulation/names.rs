//! A disk's names and their changes, generic over the named object.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Objects by normalized absolute path; the root always exists and is not listed.
pub(super) type Names<N> = BTreeMap<PathBuf, N>;

#[derive(Clone, Debug)]
pub(super) enum NameChange<N> {
    Put(PathBuf, N),
    Remove(PathBuf),
    Rename { from: PathBuf, to: PathBuf, node: N },
}

impl<N: Clone> NameChange<N> {
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Put(path, _) | Self::Remove(path) => path.parent() == Some(dir),
            Self::Rename { from, to, .. } => [from, to].iter().any(|path| path.parent() == Some(dir)),
        }
    }

    /// Returns this change with its object mapped by `of`.
    pub(super) fn map<M>(&self, of: impl Fn(&N) -> M) -> NameChange<M> {
        match self {
            Self::Put(path, node) => NameChange::Put(path.clone(), of(node)),
            Self::Remove(path) => NameChange::Remove(path.clone()),
            Self::Rename { from, to, node } => {
                NameChange::Rename { from: from.clone(), to: to.clone(), node: of(node) }
            }
        }
    }

    pub(super) fn apply(&self, names: &mut Names<N>) {
        match self {
            Self::Put(path, node) => drop(names.insert(path.clone(), node.clone())),
            Self::Remove(path) => drop(names.remove(path)),
            Self::Rename { from, to, node } => {
                let below: Vec<_> =
                    names.keys().filter(|p| p.starts_with(from) && *p != from).cloned().collect();
                for path in below {
                    if let (Some(node), Ok(rest)) = (names.remove(&path), path.strip_prefix(from)) {
                        names.insert(to.join(rest), node);
                    }
                }
                names.remove(from);
                names.insert(to.clone(), node.clone());
            }
        }
    }
}

/// Removes the names below directories that do not exist.
pub(super) fn remove_orphans<N>(names: &mut Names<N>, is_directory: impl Fn(&N) -> bool) {
    let has_parent = |path: &Path| {
        let mut above = path.ancestors().skip(1);
        above.all(|up| up == Path::new("/") || names.get(up).is_some_and(&is_directory))
    };
    let lost: Vec<_> = names.keys().filter(|path| !has_parent(path)).cloned().collect();
    for path in lost {
        names.remove(&path);
    }
}
