//! The header that ExecuTorch writes before the FlatBuffer of several backends.
//!
//! A magic text, then where the FlatBuffer and the data behind it are. Nothing of it is believed here:
//! offsets are from the payload's first byte, whoever takes them holds them against its size.

/// A header; each range is offset and size.
pub(super) struct Header {
    /// The magic text.
    pub(super) magic: [u8; 4],
    /// Where the FlatBuffer is.
    pub(super) flatbuffer: (u64, u64),
    /// Where the data is.
    pub(super) data: (u64, u64),
}

impl Header {
    /// Its length in bytes.
    pub(super) const SIZE: usize = 30;

    /// The one in these bytes.
    pub(super) fn of(bytes: &[u8; Self::SIZE]) -> Self {
        let four = |at: usize| -> [u8; 4] { bytes[at..at + 4].try_into().expect("four bytes") };
        let number = |at: usize| u64::from(u32::from_le_bytes(four(at)));
        let size = bytes[22..30].try_into().expect("eight bytes");
        Self {
            magic: four(4),
            flatbuffer: (number(10), number(14)),
            data: (number(18), u64::from_le_bytes(size)),
        }
    }
}
