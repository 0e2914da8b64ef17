//! Compression and decompression of blocks.
//!
//! | type | number | bytes in front of the compressed data | dictionary |
//! |---|---|---|---|
//! | none | 0 | | |
//! | Snappy | 1 | none: Snappy stores the size itself | ignored |
//! | zlib, raw deflate | 2 | size, varint32 | yes |
//! | bzip2 | 3 | size, varint32 | ignored |
//! | LZ4 | 4 | size, varint32 | yes |
//! | LZ4HC | 5 | size, varint32 | yes |
//! | ZSTD | 7 | size, varint32 | yes |
//! | ZSTDNotFinal | 0x40 | size, varint32 | yes |
//!
//! In format_versions 0 and 1 zlib and bzip2 have no size in front, and LZ4 has it in eight bytes
//! of which four count. Numbers from 0x80 on belong to a program's own compressions; they are
//! rejected by name, like Xpress (6), which exists on Windows only. Specified by RocksDB's
//! util/compression.cc and include/rocksdb/compression_type.h.
//!
//! In: bytes with a verified checksum. Out: exactly as many bytes as their stored size, or
//! [`Corruption`].
//! Invariant: an allocation exceeds neither the caller's limit nor, for algorithms with a maximum
//! ratio, the most that the compressed bytes can expand to. Contexts are kept per thread, so that a
//! block costs no set-up.
//!
//! Each algorithm is a feature of the crate: `snappy`, `zlib`, `bzip2`, `lz4`, `zstd`. An algorithm
//! missing from a build is rejected by name ([`CompressionType::check_built_in`]).

// Builds without some algorithms have imports and arguments that only these use.
#![cfg_attr(
    not(all(feature = "snappy", feature = "zlib", feature = "bzip2", feature = "lz4", feature = "zstd")),
    allow(unused_imports, unused_variables, unused_mut, unreachable_code, dead_code)
)]

use crate::coding::{Reader, put_varint32};
use crate::corruption::Corruption;
#[cfg(feature = "zlib")]
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;
use std::io::Cursor;
use std::sync::OnceLock;
#[cfg(feature = "zstd")]
use zstd::zstd_safe::{self, CCtx, CDict, DCtx, DDict};

#[cfg(test)]
mod tests;

/// Trains a ZSTD dictionary of at most `max_bytes` on concatenated samples. Returns `None` if the
/// samples are too few to train on.
#[must_use]
pub fn train_dictionary(samples: &[u8], lengths: &[usize], max_bytes: usize) -> Option<Vec<u8>> {
    #[cfg(feature = "zstd")]
    {
        let mut dictionary = Vec::with_capacity(max_bytes);
        zstd_safe::train_from_buffer(&mut dictionary, samples, lengths).ok()?;
        Some(dictionary).filter(|dictionary| !dictionary.is_empty())
    }
    #[cfg(not(feature = "zstd"))]
    None
}

/// Largest block that decompression accepts if the caller has no lower limit: 1 GiB.
pub const MAX_BLOCK_BYTES: usize = 1 << 30;

/// Compression algorithm of a block, by the number in its trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are RocksDB's and say it")]
pub enum CompressionType {
    #[default]
    None = 0,
    Snappy = 1,
    Zlib = 2,
    Bzip2 = 3,
    Lz4 = 4,
    /// The format of LZ4, compressed with more effort.
    Lz4hc = 5,
    Zstd = 7,
    /// ZSTD from before its format was final, as RocksDB 4 wrote it; the format has not changed
    /// since.
    ZstdNotFinal = 0x40,
}

impl CompressionType {
    /// All types.
    pub const ALL: [CompressionType; 8] = [
        CompressionType::None,
        CompressionType::Snappy,
        CompressionType::Zlib,
        CompressionType::Bzip2,
        CompressionType::Lz4,
        CompressionType::Lz4hc,
        CompressionType::Zstd,
        CompressionType::ZstdNotFinal,
    ];

    /// Returns the type with the number `n`; the error names the unsupported algorithm.
    pub fn from_u8(n: u8) -> Result<CompressionType, Corruption> {
        Ok(match n {
            0 => CompressionType::None,
            1 => CompressionType::Snappy,
            2 => CompressionType::Zlib,
            3 => CompressionType::Bzip2,
            4 => CompressionType::Lz4,
            5 => CompressionType::Lz4hc,
            7 => CompressionType::Zstd,
            0x40 => CompressionType::ZstdNotFinal,
            6 => return Err(Corruption::new("compression type Xpress is not supported", 0u64)),
            0x80..=0xfe => {
                return Err(Corruption::new(
                    format!("custom compression type {n:#04x} is not supported"),
                    0u64,
                ));
            }
            _ => return Err(Corruption::new(format!("unknown compression type {n:#04x}"), 0u64)),
        })
    }

    /// Returns the name in table properties, such as `Snappy`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CompressionType::None => "NoCompression",
            CompressionType::Snappy => "Snappy",
            CompressionType::Zlib => "Zlib",
            CompressionType::Bzip2 => "BZip2",
            CompressionType::Lz4 => "LZ4",
            CompressionType::Lz4hc => "LZ4HC",
            CompressionType::Zstd => "ZSTD",
            CompressionType::ZstdNotFinal => "ZSTDNotFinal",
        }
    }

    /// Returns the name in option strings, such as `kSnappyCompression`.
    #[must_use]
    pub const fn option_name(self) -> &'static str {
        match self {
            CompressionType::None => "kNoCompression",
            CompressionType::Snappy => "kSnappyCompression",
            CompressionType::Zlib => "kZlibCompression",
            CompressionType::Bzip2 => "kBZip2Compression",
            CompressionType::Lz4 => "kLZ4Compression",
            CompressionType::Lz4hc => "kLZ4HCCompression",
            CompressionType::Zstd => "kZSTD",
            CompressionType::ZstdNotFinal => "kZSTDNotFinalCompression",
        }
    }

    /// Returns the type with this name in table properties or option strings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<CompressionType> {
        CompressionType::ALL.into_iter().find(|t| t.name() == name || t.option_name() == name)
    }

    /// Returns the feature of this crate, and of those above it, that the algorithm requires.
    #[must_use]
    pub const fn feature(self) -> Option<&'static str> {
        match self {
            CompressionType::None => None,
            CompressionType::Snappy => Some("snappy"),
            CompressionType::Zlib => Some("zlib"),
            CompressionType::Bzip2 => Some("bzip2"),
            CompressionType::Lz4 | CompressionType::Lz4hc => Some("lz4"),
            CompressionType::Zstd | CompressionType::ZstdNotFinal => Some("zstd"),
        }
    }

    /// Returns true if this build has the algorithm.
    #[must_use]
    pub const fn is_built_in(self) -> bool {
        match self {
            CompressionType::None => true,
            CompressionType::Snappy => cfg!(feature = "snappy"),
            CompressionType::Zlib => cfg!(feature = "zlib"),
            CompressionType::Bzip2 => cfg!(feature = "bzip2"),
            CompressionType::Lz4 | CompressionType::Lz4hc => cfg!(feature = "lz4"),
            CompressionType::Zstd | CompressionType::ZstdNotFinal => cfg!(feature = "zstd"),
        }
    }

    /// Returns an error for an algorithm that this build does not have; it names the feature
    /// ([`Corruption::missing_feature`]).
    #[inline]
    pub fn check_built_in(self) -> Result<(), Corruption> {
        if self.is_built_in() { Ok(()) } else { Err(self.not_built_in()) }
    }

    #[cold]
    fn not_built_in(self) -> Corruption {
        let (name, feature) = (self.name(), self.feature().unwrap_or_default());
        let what = format!("compression {name} takes the feature `{feature}`, which this build is without");
        Corruption { what: what.into(), offset: 0, missing_feature: self.feature() }
    }

    /// Returns true if the algorithm uses dictionaries.
    #[must_use]
    pub const fn uses_dictionary(self) -> bool {
        use CompressionType::*;
        matches!(self, Zlib | Lz4 | Lz4hc | Zstd | ZstdNotFinal)
    }
}

/// A table's compression dictionary: bytes that its blocks may refer to. It is digested once for
/// ZSTD, then shared.
pub struct Dictionary {
    raw: Box<[u8]>,
    #[cfg(feature = "zstd")]
    for_decompression: OnceLock<DDict<'static>>,
    /// Digest for the level of the first compression; a table is written with one level.
    #[cfg(feature = "zstd")]
    for_compression: OnceLock<(i32, CDict<'static>)>,
}

impl Dictionary {
    /// Takes the contents of the dictionary block.
    #[must_use]
    pub fn new(raw: Box<[u8]>) -> Dictionary {
        Dictionary {
            raw,
            #[cfg(feature = "zstd")]
            for_decompression: OnceLock::new(),
            #[cfg(feature = "zstd")]
            for_compression: OnceLock::new(),
        }
    }

    /// Returns the contents of the dictionary block.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Returns the memory that the dictionary occupies, in bytes, for charging a cache; the digests
    /// are included before they are made.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A digest copies the content and adds tables of some 27 KiB.
        2 * self.raw.len() + (27 << 10) + size_of::<Dictionary>()
    }

    #[cfg(feature = "zstd")]
    fn decompression_digest(&self) -> &DDict<'static> {
        self.for_decompression.get_or_init(|| DDict::create(&self.raw))
    }
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.raw.len()).finish_non_exhaustive()
    }
}

#[cfg(feature = "snappy")]
thread_local! {
    static SNAPPY: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
}
#[cfg(feature = "zstd")]
thread_local! {
    static ZSTD_DECOMPRESS: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    static ZSTD_COMPRESS: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
}
#[cfg(feature = "zlib")]
thread_local! {
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Decompresses a block.
///
/// `data` is the block without its trailer, `dictionary` the table's dictionary, `max_bytes` the
/// limit of the decompressed size. [`CompressionType::None`] copies.
pub fn decompress(
    compression: CompressionType,
    data: &[u8],
    dictionary: Option<&Dictionary>,
    format_version: u32,
    max_bytes: usize,
) -> Result<Box<[u8]>, Corruption> {
    decompress_in(compression, data, dictionary, format_version, max_bytes, Vec::with_capacity)
        .map(Vec::into_boxed_slice)
}

/// Decompresses a block into memory that `memory` returns for a number of bytes; its previous
/// contents do not matter.
pub fn decompress_in(
    compression: CompressionType,
    data: &[u8],
    dictionary: Option<&Dictionary>,
    format_version: u32,
    max_bytes: usize,
    memory: impl FnOnce(usize) -> Vec<u8>,
) -> Result<Vec<u8>, Corruption> {
    use CompressionType as C;
    compression.check_built_in()?;
    let dictionary = dictionary.filter(|d| !d.raw.is_empty());
    let raw = dictionary.map_or(&[][..], |d| &d.raw);
    let (size, payload_at) = match compression {
        C::None => {
            return if data.len() <= max_bytes {
                let mut out = memory(data.len());
                out.clear();
                out.extend_from_slice(data);
                Ok(out)
            } else {
                Err(too_large(data.len(), max_bytes))
            };
        }
        #[cfg(feature = "snappy")]
        C::Snappy => (snap::raw::decompress_len(data).map_err(|e| bad(compression, &e))?, 0),
        C::Zlib | C::Bzip2 if format_version < 2 => {
            return decompress_unsized(compression, data, raw, max_bytes).map(Vec::from);
        }
        C::Lz4 | C::Lz4hc if format_version < 2 => {
            let mut reader = Reader::new(data);
            let size = reader.fixed32()? as usize;
            reader.bytes(4)?;
            (size, reader.position())
        }
        _ => {
            let mut reader = Reader::new(data);
            (reader.varint32()? as usize, reader.position())
        }
    };
    let payload = &data[payload_at..];
    if size > max_bytes {
        return Err(too_large(size, max_bytes));
    }
    // A stored size beyond the algorithm's maximum ratio is rejected before anything is allocated
    // for it.
    let reach = match compression {
        C::Snappy => 32,
        C::Lz4 | C::Lz4hc => 256,
        C::Zlib => 1040,
        _ => usize::MAX,
    };
    if size > payload.len().saturating_mul(reach).saturating_add(64) {
        return Err(bad(compression, &format!("{} bytes cannot hold {size}", payload.len())));
    }
    let mut out = memory(size);
    if !matches!(compression, C::Zstd | C::ZstdNotFinal) {
        out.resize(size, 0);
    }
    let written: usize = match compression {
        C::None => unreachable!("handled above"),
        #[cfg(feature = "snappy")]
        C::Snappy => {
            snap::raw::Decoder::new().decompress(payload, &mut out).map_err(|e| bad(compression, &e))?
        }
        #[cfg(feature = "zlib")]
        C::Zlib => inflate(payload, raw, &mut out)?,
        #[cfg(feature = "bzip2")]
        C::Bzip2 => bunzip(payload, &mut out)?,
        #[cfg(feature = "lz4")]
        C::Lz4 | C::Lz4hc if raw.is_empty() => {
            lz4_flex::block::decompress_into(payload, &mut out).map_err(|e| bad(compression, &e))?
        }
        #[cfg(feature = "lz4")]
        C::Lz4 | C::Lz4hc => lz4_flex::block::decompress_into_with_dict(payload, &mut out, raw)
            .map_err(|e| bad(compression, &e))?,
        #[cfg(feature = "zstd")]
        C::Zstd | C::ZstdNotFinal => {
            if let Ok(Some(claimed)) = zstd_safe::get_frame_content_size(payload)
                && claimed != size as u64
            {
                return Err(bad(compression, &format!("frame of {claimed} bytes in a block of {size}")));
            }
            out.clear();
            let n = ZSTD_DECOMPRESS.with_borrow_mut(|context| match dictionary {
                Some(d) => context.decompress_using_ddict(&mut out, payload, d.decompression_digest()),
                None => context.decompress(&mut out, payload),
            });
            n.map_err(|code| bad(compression, &zstd_safe::get_error_name(code)))?
        }
        #[allow(unreachable_patterns, reason = "where all are built in")]
        _ => unreachable!("what is not built in is refused above"),
    };
    if written == size {
        Ok(out)
    } else {
        Err(bad(compression, &format!("{written} bytes in a block of {size}")))
    }
}

/// Decompresses data without a stored size (format_versions 0 and 1).
fn decompress_unsized(
    compression: CompressionType,
    data: &[u8],
    dictionary: &[u8],
    max_bytes: usize,
) -> Result<Box<[u8]>, Corruption> {
    let mut size = data.len().saturating_mul(5).max(4096).min(max_bytes);
    loop {
        let mut out = vec![0; size];
        let result = match compression {
            #[cfg(feature = "zlib")]
            CompressionType::Zlib => inflate(data, dictionary, &mut out),
            #[cfg(feature = "bzip2")]
            CompressionType::Bzip2 => bunzip(data, &mut out),
            _ => Err(compression.not_built_in()),
        };
        match result {
            Ok(n) => {
                out.truncate(n);
                return Ok(out.into_boxed_slice());
            }
            // Too small an output buffer looks like corruption; only at the limit is the error
            // final.
            Err(e) if size >= max_bytes => return Err(e),
            Err(_) => size = size.saturating_mul(4).min(max_bytes),
        }
    }
}

/// Inflates all of `data`, which must end with the stream; returns the number of bytes written.
#[cfg(feature = "zlib")]
fn inflate(data: &[u8], dictionary: &[u8], out: &mut [u8]) -> Result<usize, Corruption> {
    let zlib = CompressionType::Zlib;
    INFLATE.with_borrow_mut(|context| {
        context.reset(false);
        if !dictionary.is_empty() {
            context.set_dictionary(dictionary).map_err(|e| bad(zlib, &e))?;
        }
        match context.decompress(data, out, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => Ok(context.total_out() as usize),
            Ok(_) => Err(bad(zlib, &"the stream does not end where it should")),
            Err(e) => Err(bad(zlib, &e)),
        }
    })
}

/// Decompresses all of `data`, which must end with the stream; returns the number of bytes written.
#[cfg(feature = "bzip2")]
fn bunzip(data: &[u8], out: &mut [u8]) -> Result<usize, Corruption> {
    let bzip2 = CompressionType::Bzip2;
    let mut context = bzip2::Decompress::new(false);
    match context.decompress(data, out) {
        Ok(bzip2::Status::StreamEnd) => Ok(context.total_out() as usize),
        Ok(_) => Err(bad(bzip2, &"the stream does not end where it should")),
        Err(e) => Err(bad(bzip2, &e)),
    }
}

#[cold]
fn bad(compression: CompressionType, why: &dyn std::fmt::Display) -> Corruption {
    Corruption::new(format!("bad {} data: {why}", compression.name()), 0u64)
}

#[cold]
fn too_large(size: usize, max_bytes: usize) -> Corruption {
    Corruption::new(format!("block of {size} bytes is larger than the limit of {max_bytes}"), 0u64)
}

/// Appends `data`, compressed in the form of format_versions 2 and later.
///
/// `level` is the algorithm's own, `None` its default; Snappy and LZ4 have none. The caller decides
/// if the result is small enough to keep.
///
/// Compat: LZ4HC is written with LZ4's only effort; every reader accepts both numbers for the same
/// format.
///
/// # Panics
/// If this build does not have the algorithm; check [`CompressionType::is_built_in`] before.
pub fn compress_into(
    compression: CompressionType,
    level: Option<i32>,
    data: &[u8],
    dictionary: Option<&Dictionary>,
    out: &mut Vec<u8>,
) {
    use CompressionType as C;
    let dictionary = dictionary.filter(|d| !d.raw.is_empty());
    let raw = dictionary.map_or(&[][..], |d| &d.raw);
    if !matches!(compression, C::None | C::Snappy) {
        put_varint32(out, u32::try_from(data.len()).expect("a block is smaller than 4 GiB"));
    }
    let start = out.len();
    match compression {
        C::None => out.extend_from_slice(data),
        #[cfg(feature = "snappy")]
        C::Snappy => {
            out.resize(start + snap::raw::max_compress_len(data.len()), 0);
            let n = SNAPPY.with_borrow_mut(|encoder| encoder.compress(data, &mut out[start..]));
            out.truncate(start + n.expect("the output is as large as Snappy asks for"));
        }
        #[cfg(feature = "zlib")]
        C::Zlib => {
            // 6 is zlib's own default. The worst case is that of the fastest level, nine bits a
            // byte, for which the output buffer below has room.
            let level = flate2::Compression::new(level.map_or(6, |l| l.clamp(0, 9) as u32));
            // Compat: RocksDB inflates with a window of 14 bits.
            let mut context = Compress::new_with_window_bits(level, false, 14);
            if !raw.is_empty() {
                context.set_dictionary(raw).expect("a raw deflate stream takes a dictionary at its start");
            }
            out.resize(start + data.len() + data.len() / 4 + 256, 0);
            let status = context.compress(data, &mut out[start..], FlushCompress::Finish);
            assert!(matches!(status, Ok(Status::StreamEnd)), "the output is large enough for any input");
            out.truncate(start + context.total_out() as usize);
        }
        #[cfg(feature = "bzip2")]
        C::Bzip2 => {
            let mut context = bzip2::Compress::new(bzip2::Compression::new(1), 30);
            out.resize(start + data.len() + data.len() / 100 + 600, 0);
            let status = context.compress(data, &mut out[start..], bzip2::Action::Finish);
            assert!(
                matches!(status, Ok(bzip2::Status::StreamEnd)),
                "the output is large enough for any input"
            );
            out.truncate(start + context.total_out() as usize);
        }
        #[cfg(feature = "lz4")]
        C::Lz4 | C::Lz4hc => {
            out.resize(start + lz4_flex::block::get_maximum_output_size(data.len()), 0);
            let n = if raw.is_empty() {
                lz4_flex::block::compress_into(data, &mut out[start..])
            } else {
                lz4_flex::block::compress_into_with_dict(data, &mut out[start..], raw)
            };
            out.truncate(start + n.expect("the output is as large as LZ4 asks for"));
        }
        #[cfg(feature = "zstd")]
        C::Zstd | C::ZstdNotFinal => {
            let level = level.unwrap_or(3);
            out.reserve(zstd_safe::compress_bound(data.len()));
            // The compressed bytes are appended behind the existing ones.
            let mut behind = Cursor::new(out);
            behind.set_position(start as u64);
            let n = ZSTD_COMPRESS.with_borrow_mut(|context| match dictionary {
                None => context.compress(&mut behind, data, level),
                Some(d) => {
                    let (digest_level, digest) =
                        d.for_compression.get_or_init(|| (level, CDict::create(&d.raw, level)));
                    if *digest_level == level {
                        context.compress_using_cdict(&mut behind, data, digest)
                    } else {
                        context.compress_using_dict(&mut behind, data, &d.raw, level)
                    }
                }
            });
            n.map_err(zstd_safe::get_error_name).expect("the output is as large as ZSTD asks for");
        }
        #[allow(unreachable_patterns, reason = "where all are built in")]
        _ => panic!("{}", compression.not_built_in().what),
    }
}
