//! Any text as a file name, a prefix extractor's name and a filter policy. A parsed value must
//! survive printing.
#![no_main]

use karst_format::file_name::{FileName, parse_current};
use karst_format::filter::FilterPolicy;
use karst_format::slice_transform::PrefixExtractor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = parse_current(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(name) = FileName::parse(text) {
        assert_eq!(FileName::parse(&name.to_string()), Some(name));
    }
    if let Some(extractor) = PrefixExtractor::from_name(text) {
        assert!(extractor.has_name(&extractor.name()));
        assert!(extractor.prefix(data).is_none_or(|p| data.starts_with(p)));
    }
    if let Ok(Some(policy)) = FilterPolicy::from_option_string(text) {
        assert_eq!(FilterPolicy::from_option_string(&policy.to_option_string()), Ok(Some(policy)));
    }
});
