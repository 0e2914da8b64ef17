//! Any bytes as a write batch. A decoded batch must survive being rebuilt.
#![no_main]

use karst_format::write_batch::{BatchReader, Op, WriteBatch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(batch) = BatchReader::parse(data) else { return };
    let decoded: Result<Vec<Op<'_>>, _> = batch.ops().collect();
    match decoded {
        Ok(ops) => {
            let mut built = WriteBatch::new();
            built.set_seq(batch.seq());
            ops.iter().for_each(|op| built.push(*op));
            assert_eq!(built.count(), batch.count());
            let again: Vec<Op<'_>> =
                built.reader().ops().collect::<Result<_, _>>().expect("what was built decodes");
            assert_eq!(again, ops);
            assert!(WriteBatch::from_bytes(data.to_vec()).is_ok());
        }
        Err(corruption) => {
            assert!(corruption.offset <= data.len() as u64);
            assert!(WriteBatch::from_bytes(data.to_vec()).is_err());
        }
    }
});
