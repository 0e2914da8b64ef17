//! Any bytes as a wide-column entity, a blob reference, and the parts of a blob file. A decoded
//! value must survive encoding.
#![no_main]

use karst_format::blob::{BlobFooter, BlobHeader, BlobIndex, BlobRecord, BlobRecordHeader};
use karst_format::wide_column::{self, DefaultColumn};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let default = wide_column::default_column(data);
    match wide_column::decode(data) {
        Ok(columns) => {
            let mut out = Vec::new();
            wide_column::encode_into(&columns, &mut out);
            assert_eq!(wide_column::decode(&out).expect("what was encoded decodes"), columns);
            let first = columns.first().filter(|c| c.name.is_empty()).map(|c| (c.value, c.is_blob));
            let found = match default.expect("the entity decodes") {
                DefaultColumn::Absent => None,
                DefaultColumn::Inline(at) => Some((&data[at], false)),
                DefaultColumn::Blob(at) => Some((&data[at], true)),
            };
            assert_eq!(found, first);
        }
        Err(corruption) => {
            assert!(default.is_err());
            assert!(corruption.offset <= data.len() as u64);
        }
    }

    let mut out = Vec::new();
    if let Ok(index) = BlobIndex::decode(data) {
        index.encode_into(&mut out);
        assert_eq!(BlobIndex::decode(&out).expect("what was encoded decodes"), index);
    }
    let parts = [
        BlobHeader::decode(data).err(),
        BlobFooter::decode(data).err(),
        BlobRecordHeader::decode(data).err(),
        BlobRecord::parse(data).err(),
    ];
    assert!(parts.iter().flatten().all(|c| c.offset <= data.len() as u64));
    if let Some((&n, rest)) = data.split_first() {
        let (key, value) = rest.split_at(rest.len().min(usize::from(n)));
        let record = BlobRecord { key, value, expiration: 0 };
        out.clear();
        record.encode_into(&mut out);
        assert_eq!(BlobRecord::parse(&out).expect("what was encoded decodes"), record);
    }
});
