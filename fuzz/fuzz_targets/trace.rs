//! Any bytes as a record of a trace, and as the payload of one of every kind and version. A decoded
//! record must survive encoding.
#![no_main]

use karst_format::trace::{self, BEGIN, FileAccess, Prefix, Query, Version};
use libfuzzer_sys::fuzz_target;

fn version(text: &str) -> Version {
    let header = Prefix { micros: 0, kind: BEGIN, payload_bytes: 0 };
    trace::version(header, text.as_bytes()).expect("it is a header")
}

fuzz_target!(|data: &[u8]| {
    if let Ok((prefix, payload)) = trace::split(data) {
        let mut out = Vec::new();
        assert!(trace::put_record(&mut out, prefix.micros, prefix.kind, |out| out.extend_from_slice(payload)));
        assert_eq!(out, data);
        let _ = (trace::version(prefix, payload), trace::io_header(prefix, payload));
    }
    let old = version("feedcafedeadbeef\tTrace Version: 0.1\t");
    let new = version("feedcafedeadbeef\tTrace Version: 0.2\t");
    for kind in 0..=u8::MAX {
        for of in [old, new] {
            if let Ok(Some(query)) = Query::decode(of, kind, data) {
                let mut out = Vec::new();
                query.put_payload(&mut out);
                assert_eq!(Query::decode(new, kind, &out).expect("what was put decodes"), Some(query));
            }
        }
    }
    if let Ok(access) = FileAccess::decode(data) {
        let mut out = Vec::new();
        access.put_payload(&mut out);
        assert_eq!(FileAccess::decode(&out).expect("what was put decodes"), access);
    }
});
