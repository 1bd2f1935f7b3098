//! Bytes as a row of choices. When they are used up, the first choice is taken.

/// The choices that are left.
#[derive(Debug)]
pub struct Choices<'a>(&'a [u8]);

/// Numbers at which arithmetic goes wrong.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    8,
    255,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    1_800_000_000_000,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX - 1,
    u64::MAX,
    u64::MAX / 1_000,
];

impl<'a> Choices<'a> {
    /// All of them.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True when there are no more.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    /// True now and then.
    pub fn seldom(&mut self) -> bool {
        self.byte() % 8 == 7
    }

    /// A number: a small one most of the time.
    pub fn number(&mut self) -> u64 {
        let byte = self.byte();
        if byte < 128 { u64::from(byte % 8) } else { EDGES[usize::from(byte) % EDGES.len()] }
    }

    /// One of these.
    pub fn one<'b, T>(&mut self, of: &'b [T]) -> Option<&'b T> {
        of.get(self.below(of.len()))
    }

    /// Some of the bytes as they are.
    pub fn bytes(&mut self) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(usize::from(self.byte_ahead()).min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn byte_ahead(&mut self) -> u8 {
        self.byte()
    }
}
