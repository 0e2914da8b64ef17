//! Any bytes as a filter block that is queried for keys; and as keys to build filters of, each of
//! which the filter must match.
#![no_main]

use karst_format::filter::policy::FilterContext;
use karst_format::filter::{FilterHash, FilterPolicy, FilterReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let filter = FilterReader::parse(data);
    assert!(filter.memory_bytes() <= data.len());
    for key in data.windows(9).chain([&b""[..], data]) {
        let alone = filter.may_match_key(key);
        assert_eq!(alone, filter.may_match(key, FilterHash::new(key)));
    }

    let Some((&choice, keys)) = data.split_first() else { return };
    let bits = f64::from(choice & 31);
    let policy = if choice & 32 == 0 { FilterPolicy::bloom(bits) } else { FilterPolicy::ribbon(bits, 0) };
    let context = FilterContext { format_version: if choice & 64 == 0 { 5 } else { 4 }, level: None };
    let Some(mut builder) = policy.builder(context) else { return };
    for key in keys.chunks(3) {
        if choice & 128 == 0 {
            builder.add_key(key);
        } else {
            builder.add_key_and_prefix(key, &key[..1]);
        }
    }
    let promised = builder.block_bytes_for(builder.len());
    let block = builder.finish();
    assert_eq!(block.len(), promised);
    let filter = FilterReader::parse(&block);
    assert!(keys.chunks(3).all(|key| filter.may_match_key(key)));
});
