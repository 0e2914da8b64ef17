//! SHA-256 (FIPS 180-4), for the passwords that ACL LIST shows.

/// Fractional parts of the square roots of the first 8 primes.
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Number of bytes of a block.
const BLOCK: usize = 64;
/// Number of rounds of a block, each with a constant of its own.
const ROUNDS: usize = 64;

/// Fractional parts of the cube roots of the first 64 primes, 32 bits of each.
fn constants() -> [u32; ROUNDS] {
    let mut constants = [0; ROUNDS];
    let primes = (2u128..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d)));
    for (constant, prime) in constants.iter_mut().zip(primes) {
        // The cube root with 32 bits behind the point, by bisection.
        let (mut low, mut high) = (0u128, 8u128 << 32);
        while high - low > 1 {
            let middle = u128::midpoint(low, high);
            match middle * middle * middle <= prime << 96 {
                true => low = middle,
                false => high = middle,
            }
        }
        *constant = low as u32;
    }
    constants
}

/// The hash of a text.
pub(super) fn sha256(text: &[u8]) -> [u8; 32] {
    let constants = constants();
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(BLOCK) - 8, 0);
    padded.extend((text.len() as u64 * 8).to_be_bytes());
    let mut state = START;
    padded.chunks_exact(BLOCK).for_each(|block| compress(&mut state, block, &constants));
    let mut hash = [0; 32];
    for (bytes, word) in hash.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    hash
}

fn compress(state: &mut [u32; 8], block: &[u8], constants: &[u32; ROUNDS]) {
    let mut words = [0u32; ROUNDS];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..ROUNDS {
        let (near, far) = (words[at - 2], words[at - 15]);
        let near = near.rotate_right(17) ^ near.rotate_right(19) ^ near >> 10;
        let far = far.rotate_right(7) ^ far.rotate_right(18) ^ far >> 3;
        words[at] = words[at - 16].wrapping_add(far).wrapping_add(words[at - 7]).wrapping_add(near);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.iter().zip(constants) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = e & f ^ !e & g;
        let one = h.wrapping_add(sum).wrapping_add(chosen).wrapping_add(*constant).wrapping_add(*word);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let two = sum.wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(one));
        (d, c, b, a) = (c, b, a, one.wrapping_add(two));
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(add);
    }
}

#[cfg(test)]
mod tests {
    use super::super::hexadecimal_hash;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let cases: [(&[u8], &str); 4] = [
            (b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
            (&[b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        ];
        for (text, hash) in cases {
            assert_eq!(hexadecimal_hash(text), hash);
        }
    }
}
