//! What VMs call the things they speak of.

use xxhash_rust::xxh64::xxh64;

/// Place of an entry in the decision log. Entries are numbered without gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The first number of entries that were not appended anywhere: only the VM that made them knows
    /// them. No log gets this far.
    pub const FIRST_LOCAL: Self = Self(1 << 63);

    /// Whether only one VM knows the entry.
    pub const fn is_local(self) -> bool {
        self.0 >= Self::FIRST_LOCAL.0
    }

    /// The place `by` entries later; numbers end with the type (at a million entries a second,
    /// after half a million years).
    #[must_use]
    pub const fn plus(self, by: u64) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Entries from `earlier` on that come before `self`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One request's place in the count of those in flight: the number of the entry that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub Sequence);

impl LeaseId {
    /// The lowest number there is.
    pub const FIRST: Self = Self(Sequence(0));
}

/// A pool, by a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey(pub u64);

impl PoolKey {
    /// The key of the pool called `name`.
    pub fn new(name: &str) -> Self {
        Self(xxh64(name.as_bytes(), 0))
    }
}

/// A VM of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VmId(pub u32);

/// How much work a request's prompt is, in tokens, at most [`Weight::MAX`]: three bytes are enough
/// for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    /// The heaviest: 16.8 million tokens.
    pub const MAX: Self = Self((1 << 24) - 1);

    /// The weight of a prompt of `tokens` tokens; [`Self::MAX`] for a longer one.
    pub const fn from_tokens(tokens: u32) -> Self {
        if tokens < Self::MAX.0 {
            Self(tokens)
        } else {
            Self::MAX
        }
    }

    /// Tokens.
    pub const fn tokens(self) -> u32 {
        self.0
    }
}
