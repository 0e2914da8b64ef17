//! Small files of operators: read whole, and replaced whole.

use karstdb::io::{Env, Error, FileSystem, Result};
use std::path::Path;

/// Maximum size of a file that is read, in bytes.
const READ_AT_MOST: u64 = 64 << 20;

/// Reads a file of at most 64 MiB. Blocks.
///
/// # Errors
/// It is larger, or cannot be read.
pub(crate) fn read_whole(files: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    if files.metadata(path)?.len > READ_AT_MOST {
        let why = std::io::Error::other("the file has more than 64 MiB");
        return Err(Error::new("read", path.display().to_string(), why));
    }
    files.read_file(path)
}

/// Puts a text in place of a file, so that the file has the old text or the new one, also after a
/// crash. It has the access rights of the old one, or is its owner's only; a symbolic link to it
/// stays. A crash may leave a file whose name ends with `.new`. Blocks.
///
/// # Errors
/// It cannot be written. The file of before is kept.
pub(crate) fn replace(env: &Env, path: &Path, text: &[u8]) -> Result<()> {
    let files = &**env.fs();
    let path = &files.canonical(path);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.new", env.random_seed()));
    let new = Path::new(&name);
    let mut file = files.create_like(new, path)?;
    let written = (|| {
        file.append(text)?;
        file.sync_all()?;
        files.rename(new, path)?;
        match path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => files.sync_dir(directory),
            _ => files.sync_dir(Path::new(".")),
        }
    })();
    if written.is_err() {
        let _was_there = files.remove(new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use karstdb::io::MemoryFileSystem;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::Arc;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let (files, path) = (Arc::new(MemoryFileSystem::new()), Path::new("/a/users"));
        let env = Env::builder().file_system(files.clone()).build();
        files.create_dir(Path::new("/a")).unwrap();
        assert!(read_whole(&*files, path).is_err());
        for text in [&b"first"[..], b"2"] {
            replace(&env, path, text).unwrap();
            assert_eq!(read_whole(&*files, path).unwrap(), text);
        }
        assert_eq!(files.list_dir(Path::new("/a")).unwrap(), ["users"]);
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("users"), directory.path().join("link"));
        let (env, mode) = (Env::posix(), || fs::metadata(&path).unwrap().permissions().mode() & 0o777);
        replace(&env, &path, b"1").unwrap();
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        replace(&env, &link, b"2").unwrap();
        assert_eq!((mode(), fs::read(&path).unwrap()), (0o640, b"2".to_vec()));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn replacements_at_the_same_time_leave_one_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let (path, env) = (directory.path().join("users"), Env::posix());
        std::thread::scope(|scope| {
            for byte in *b"abcd" {
                let (env, path) = (&env, &path);
                scope.spawn(move || (0..20).for_each(|_| replace(env, path, &[byte; 5000]).unwrap()));
            }
        });
        let text = fs::read(&path).unwrap();
        assert!(text.len() == 5000 && text.iter().all(|byte| *byte == text[0]));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
