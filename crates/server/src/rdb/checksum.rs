//! The checksum of payloads: CRC-64 with the polynomial of Jones, reflected, beginning with 0.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// For each byte, its part of the sum once 0 to 7 zeros follow it.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u64, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// The sum of the bytes so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Adds bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let mixed = (self.0 ^ u64::from_le_bytes(*word)).to_le_bytes();
            let parts = mixed.iter().zip(TABLES.iter().rev());
            self.0 = parts.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            self.0 = TABLES[0][usize::from(self.0 as u8 ^ byte)] ^ self.0 >> 8;
        }
    }

    /// The sum.
    pub(crate) fn sum(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_standard_and_of_any_pieces() {
        let mut sum = Checksum::default();
        sum.add(b"123456789");
        assert_eq!(sum.sum(), 0xe9c6_d914_c4b8_d9ca);
        let bytes: Vec<u8> = (0..200).collect();
        let mut whole = Checksum::default();
        whole.add(&bytes);
        for size in 1..30 {
            let mut pieces = Checksum::default();
            bytes.chunks(size).for_each(|piece| pieces.add(piece));
            assert_eq!(pieces.sum(), whole.sum());
        }
    }
}
