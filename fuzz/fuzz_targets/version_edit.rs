//! Any bytes as a MANIFEST record. A decoded record must survive encoding.
#![no_main]

use karst_format::version_edit::VersionEdit;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match VersionEdit::decode(data) {
        Ok(edit) => {
            let again = VersionEdit::decode(&edit.encode()).expect("what was encoded decodes");
            assert_eq!(again.encode(), edit.encode());
        }
        Err(corruption) => assert!(corruption.offset <= data.len() as u64),
    }
});
