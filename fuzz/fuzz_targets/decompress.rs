//! Any bytes as compressed data of every kind, with and without a dictionary; and as data that must
//! survive compression.
#![no_main]

use karst_format::compression::{CompressionType, Dictionary, compress_into, decompress};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let [kind, version, split, data @ ..] = data else { return };
    let compression = CompressionType::ALL[*kind as usize % CompressionType::ALL.len()];
    let (dictionary, data) = data.split_at((*split as usize).min(data.len()));
    let dictionary = Dictionary::new(dictionary.into());
    for dictionary in [None, Some(&dictionary)] {
        if let Ok(out) = decompress(compression, data, dictionary, (version % 8).into(), LIMIT) {
            assert!(out.len() <= LIMIT);
        }
        let mut compressed = Vec::new();
        compress_into(compression, None, data, dictionary, &mut compressed);
        assert_eq!(
            &decompress(compression, &compressed, dictionary, 5, LIMIT.max(data.len())).unwrap()[..],
            data
        );
    }
});
