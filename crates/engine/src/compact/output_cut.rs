//! Where the outputs of a compaction are cut: the rules of `lsm`, as the run writer asks for them.

use karst_lsm::pick::Compaction;
use karst_lsm::{OpenOutput, OutputCutter};

use crate::table::writer::CutPolicy;

/// See the module.
#[derive(Debug)]
pub(crate) struct OutputCut(OutputCutter);

impl OutputCut {
    pub(crate) fn new(compaction: &Compaction) -> Self {
        OutputCut(OutputCutter::new(compaction))
    }
}

impl CutPolicy for OutputCut {
    fn cut_before(&mut self, internal_key: &[u8], file_bytes: u64) -> bool {
        // The writer counts what is behind the data already, and keeps the answer until the user key ends.
        let open = OpenOutput { file_bytes, tail_bytes: 0 };
        self.0.ends_before(internal_key, true, Some(open))
    }
}
