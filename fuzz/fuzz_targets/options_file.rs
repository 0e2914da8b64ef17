//! Any bytes as an OPTIONS file and as an option string. A parsed value must survive printing.
#![no_main]

use karst_format::options::{ColumnFamilyOptions, OptionSet, OptionsFile, UnknownOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(file) = OptionsFile::parse(data, UnknownOptions::Keep) {
        let printed = file.print();
        let again =
            OptionsFile::parse(printed.as_bytes(), UnknownOptions::Keep).expect("what was printed parses");
        assert_eq!(again.print(), printed);
    }
    let mut options = ColumnFamilyOptions::default();
    if let Ok(text) = std::str::from_utf8(data)
        && options.set_all(text).is_ok()
    {
        let mut again = ColumnFamilyOptions::default();
        again.set_all(&options.to_text()).expect("what was printed parses");
        assert_eq!(again.to_text(), options.to_text());
    }
});
