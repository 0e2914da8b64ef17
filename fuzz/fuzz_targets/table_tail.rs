//! Any bytes as a whole table: footer, metaindex and properties, with and without their checksums;
//! and as each of them alone.
#![no_main]

use karst_format::footer::{Footer, MAX_FOOTER_BYTES};
use karst_format::metaindex::Metaindex;
use karst_format::properties::TableProperties;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let size = data.len() as u64;
    if let Ok(metaindex) = Metaindex::decode(data.into(), size) {
        let _ = (metaindex.filter(), metaindex.properties());
        let again = Metaindex::decode(metaindex.encode().into(), size).unwrap();
        assert_eq!(again, metaindex);
    }
    if let Ok(properties) = TableProperties::decode(data.into()) {
        let _ = (properties.to_pairs(), properties.index_layout(), properties.index_type());
        let again = TableProperties::decode(properties.encode().into()).unwrap();
        assert_eq!(again, properties);
    }
    let Ok(footer) = Footer::decode(&data[data.len().saturating_sub(MAX_FOOTER_BYTES)..], size) else {
        return;
    };
    let range = footer.metaindex_handle.range(size).expect("the footer's handles lie in the file");
    let metaindex = &data[range.start as usize..range.end as usize];
    let _ = TableProperties::decode_verified(metaindex, &footer, range.start);
    let Ok(metaindex) = Metaindex::decode(metaindex[..metaindex.len() - 5].into(), size) else { return };
    let Some(range) = metaindex.properties().and_then(|handle| handle.range(size)) else { return };
    let properties = &data[range.start as usize..range.end as usize];
    let _ = TableProperties::decode_verified(properties, &footer, range.start);
});
