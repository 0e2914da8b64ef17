//! Small files of operators: read whole, and replaced whole.

use karstdb::io::{Error, FileSystem, Result};
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
/// crash. Blocks.
///
/// # Errors
/// It cannot be written. The file of before is kept.
pub(crate) fn replace(files: &dyn FileSystem, path: &Path, text: &[u8]) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = Path::new(&name);
    let written = (|| {
        let mut file = files.create(new)?;
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

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let (files, path) = (MemoryFileSystem::new(), Path::new("/a/users"));
        files.create_dir(Path::new("/a")).unwrap();
        assert!(read_whole(&files, path).is_err());
        for text in [&b"first"[..], b"2"] {
            replace(&files, path, text).unwrap();
            assert_eq!(read_whole(&files, path).unwrap(), text);
        }
        assert_eq!(files.list_dir(Path::new("/a")).unwrap(), ["users"]);
    }
}
