//! Block hashes of a prompt, and the index that remembers which endpoint was sent which block.

mod chain;
mod index;

pub use chain::{BYTES_PER_TOKEN, BlockHash, Chain, ChainBuilder, Contents, Seed};
pub use index::{BYTES_PER_ENTRY, Held, PrefixIndex, Tail};
