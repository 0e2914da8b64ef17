//! Checksums of whole files: computed while tables and blob files are written, stored in the
//! MANIFEST with the function's name, verified on demand and when files are copied or ingested.
//!
//! In: a [`FileChecksumGenFactory`], the user's or RocksDB's for CRC32c. Out: a [`FileChecksum`].
//!
//! Generators are called by jobs and by verifying callers, and must not block or use the database;
//! a panic fails the writing job, and the database then refuses writes; during verification it
//! reaches the caller.

use karst_base::error::{Error, Result};
use karst_format::options::DbOptions;
use karst_format::version_edit::FileChecksum;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// The file that a generator is created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChecksumGenContext<'a> {
    /// Path of the file, which may not exist yet.
    pub file_name: &'a Path,
    /// Name of the function to verify with; empty if any function is accepted.
    pub requested_checksum_func_name: &'a str,
}

/// Computes the checksum of one file.
pub trait FileChecksumGenerator: Send {
    /// Name of the function, as recorded in the MANIFEST; not empty.
    fn name(&self) -> &str;

    /// Adds the next bytes of the file.
    fn update(&mut self, bytes: &[u8]);

    /// Returns the checksum of all bytes; not empty.
    fn finalize(self: Box<Self>) -> Vec<u8>;
}

/// Creates generators; see the module.
pub trait FileChecksumGenFactory: Send + Sync + Debug {
    /// The name written to OPTIONS.
    fn name(&self) -> &str;

    /// Creates the generator for one file; `None` if the requested function is unknown, or to write
    /// the file without a checksum.
    fn create(&self, context: &FileChecksumGenContext<'_>) -> Option<Box<dyn FileChecksumGenerator>>;
}

/// RocksDB's factory of CRC32c checksums, which are stored in big-endian order.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileChecksumGenCrc32cFactory;

const CRC32C_FACTORY: &str = "FileChecksumGenCrc32cFactory";
const CRC32C: &str = "FileChecksumCrc32c";

impl FileChecksumGenFactory for FileChecksumGenCrc32cFactory {
    fn name(&self) -> &str {
        CRC32C_FACTORY
    }

    fn create(&self, context: &FileChecksumGenContext<'_>) -> Option<Box<dyn FileChecksumGenerator>> {
        let known = ["", CRC32C].contains(&context.requested_checksum_func_name);
        known.then(|| Box::new(Crc32c(0)) as Box<dyn FileChecksumGenerator>)
    }
}

struct Crc32c(u32);

impl FileChecksumGenerator for Crc32c {
    fn name(&self) -> &str {
        CRC32C
    }

    fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.to_be_bytes().to_vec()
    }
}

/// Returns the factory for files that are written: `supplied`, the one named in `options`, or none.
///
/// # Errors
/// `options` name an unknown factory.
pub fn factory(
    options: &DbOptions,
    supplied: Option<&Arc<dyn FileChecksumGenFactory>>,
) -> Result<Option<Arc<dyn FileChecksumGenFactory>>> {
    match (supplied, options.file_checksum_gen_factory.id()) {
        (Some(supplied), _) => Ok(Some(supplied.clone())),
        (None, None) => Ok(None),
        (None, Some(CRC32C_FACTORY)) => Ok(Some(Arc::new(FileChecksumGenCrc32cFactory))),
        (None, Some(other)) => Err(Error::not_supported(format!(
            "option file_checksum_gen_factory: {other:?} is not built in and not supplied; nullptr does without"
        ))),
    }
}

/// A checksum in progress.
pub struct RunningChecksum(Box<dyn FileChecksumGenerator>);

impl RunningChecksum {
    /// Starts the checksum of a file to be written at `path`; `None` if the factory declines.
    pub fn of_new(factory: &Arc<dyn FileChecksumGenFactory>, path: &Path) -> Option<RunningChecksum> {
        factory.create(&context(path, "")).map(RunningChecksum)
    }

    /// Starts a checksum with the function `name`, for verification. CRC32c is known with any
    /// factory.
    ///
    /// # Errors
    /// `InvalidArgument`: the function is unknown, or the factory's generator has another name.
    pub fn by_function(
        factory: Option<&Arc<dyn FileChecksumGenFactory>>,
        path: &Path,
        name: &[u8],
    ) -> Result<RunningChecksum> {
        let shown = String::from_utf8_lossy(name);
        let made = factory.and_then(|factory| factory.create(&context(path, &shown)));
        let what = match made {
            Some(made) if made.name().as_bytes() == name => return Ok(RunningChecksum(made)),
            _ if name == CRC32C.as_bytes() => return Ok(RunningChecksum(Box::new(Crc32c(0)))),
            Some(other) => format!("the file checksum generator for {shown:?} is named {:?}", other.name()),
            None => {
                let factory = factory.map_or("none", |factory| factory.name());
                format!("there is no file checksum generator for {shown:?}; the factory is {factory:?}")
            }
        };
        Err(Error::invalid_argument(format!("{}: {what}", path.display())))
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum; `None` if the generator returns no bytes or an empty name.
    pub fn finish(self) -> Option<FileChecksum> {
        let function: Box<[u8]> = self.0.name().as_bytes().into();
        let value: Box<[u8]> = self.0.finalize().into();
        (!function.is_empty() && !value.is_empty()).then_some(FileChecksum { value, function })
    }
}

impl Debug for RunningChecksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RunningChecksum").field(&self.0.name()).finish()
    }
}

fn context<'a>(file_name: &'a Path, requested_checksum_func_name: &'a str) -> FileChecksumGenContext<'a> {
    FileChecksumGenContext { file_name, requested_checksum_func_name }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has one name, regardless of the requested one.
    #[derive(Debug)]
    struct Stubborn(&'static str);

    impl FileChecksumGenFactory for Stubborn {
        fn name(&self) -> &str {
            "test.Factory"
        }

        fn create(&self, _: &FileChecksumGenContext<'_>) -> Option<Box<dyn FileChecksumGenerator>> {
            Some(Box::new(Named(self.0)))
        }
    }

    struct Named(&'static str);

    impl FileChecksumGenerator for Named {
        fn name(&self) -> &str {
            self.0
        }
        fn update(&mut self, _: &[u8]) {}
        fn finalize(self: Box<Self>) -> Vec<u8> {
            b"sum".to_vec()
        }
    }

    #[test]
    fn functions_are_found_by_their_names_or_said_to_be_unknown() {
        let path = Path::new("/db/000007.sst");
        let own: Arc<dyn FileChecksumGenFactory> = Arc::new(Stubborn("own"));
        let crc: Arc<dyn FileChecksumGenFactory> = Arc::new(FileChecksumGenCrc32cFactory);
        let named = |factory, name: &str| {
            let running = RunningChecksum::by_function(factory, path, name.as_bytes());
            running.map(|running| running.finish().unwrap()).map_err(|e| e.to_string())
        };
        assert_eq!(*named(Some(&own), "own").unwrap().value, *b"sum");
        for factory in [None, Some(&own), Some(&crc)] {
            assert_eq!(*named(factory, CRC32C).unwrap().value, [0; 4]);
        }
        let told = named(Some(&own), "other").unwrap_err();
        assert!(told.contains("000007.sst") && told.contains("other") && told.contains("own"), "{told}");
        let told = named(Some(&crc), "other").unwrap_err();
        assert!(told.contains("other") && told.contains(CRC32C_FACTORY), "{told}");
        named(None, "").unwrap_err();
    }

    #[test]
    fn a_checksum_without_a_name_is_none() {
        let path = Path::new("/db/000007.sst");
        let nameless: Arc<dyn FileChecksumGenFactory> = Arc::new(Stubborn(""));
        assert!(RunningChecksum::of_new(&nameless, path).unwrap().finish().is_none());
        let named: Arc<dyn FileChecksumGenFactory> = Arc::new(Stubborn("own"));
        assert_eq!(*RunningChecksum::of_new(&named, path).unwrap().finish().unwrap().function, *b"own");
    }
}
