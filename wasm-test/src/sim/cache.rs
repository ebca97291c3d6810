//! The KV cache of one engine: fixed blocks, a prefix cache over them, an LRU free queue.
//!
//! The rules are vLLM's (v1): only full blocks are shared; a block in use is never evicted; blocks
//! that nobody uses stay cached until their turn in the free queue, where a request's blocks stand
//! tail first, so a prefix outlives what follows it. Blocks that nobody can hit, as they were never
//! full, are taken before all others.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::Xxh3;

use crate::sim::tokenizer::Token;

/// Index of a physical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId(usize);

/// Chained hash of a full block: equal hashes mean equal tokens from the start of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHash(u128);

/// What beside the tokens tells two prompts apart. It enters the first block and, through the
/// chain, all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheScope {
    pub lora: Option<String>,
    pub salt: Option<String>,
}

impl CacheScope {
    /// The hash the first block chains from.
    fn root(&self) -> BlockHash {
        let mut hasher = Xxh3::new();
        for (tag, part) in [(1, &self.lora), (2, &self.salt)] {
            if let Some(text) = part {
                hasher.update(&[tag]);
                hasher.update(&text.len().to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
        BlockHash(hasher.digest128())
    }
}

/// The hash chain of one growing sequence of tokens.
#[derive(Debug, Clone)]
pub struct Chain {
    block_size: usize,
    root: BlockHash,
    hashes: Vec<BlockHash>,
}

impl Chain {
    /// `block_size` in tokens, at least 1.
    pub fn new(scope: &CacheScope, block_size: usize) -> Self {
        Self {
            block_size,
            root: scope.root(),
            hashes: Vec::new(),
        }
    }

    /// What [`Self::extend`] returned last.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// Hashes of the full blocks of `tokens`, which must extend what earlier calls were given.
    pub fn extend(&mut self, tokens: &[Token]) -> &[BlockHash] {
        let done = self.hashes.len() * self.block_size;
        for block in tokens[done..].chunks_exact(self.block_size) {
            let parent = self.hashes.last().unwrap_or(&self.root);
            let mut hasher = Xxh3::new();
            hasher.update(&parent.0.to_le_bytes());
            for token in block {
                hasher.update(&token.id().to_le_bytes());
            }
            self.hashes.push(BlockHash(hasher.digest128()));
        }
        &self.hashes
    }
}

#[derive(Debug, Clone, Default)]
struct Block {
    references: usize,
    hash: Option<BlockHash>,
    /// Key in the free queue while nobody uses the block.
    queued: Option<i64>,
}

/// All blocks of one engine.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// Free queue: the lowest key is evicted first.
    free: BTreeMap<i64, BlockId>,
    /// Of the next block at the queue's end; of the next one at its front.
    last_key: i64,
    first_key: i64,
    /// Every copy of a hash, oldest first: a recomputed block is a further copy, not a new entry.
    cached: HashMap<BlockHash, Vec<BlockId>>,
}

impl BlockPool {
    /// A pool of `num_gpu_blocks`, of which one is the null block and never given out.
    pub fn new(num_gpu_blocks: usize) -> Self {
        let mut pool = Self {
            blocks: vec![Block::default(); num_gpu_blocks.saturating_sub(1)],
            free: BTreeMap::new(),
            last_key: 0,
            first_key: -1,
            cached: HashMap::new(),
        };
        for index in 0..pool.blocks.len() {
            pool.queue(BlockId(index));
        }
        pool
    }

    /// Blocks that can be given out at all.
    pub fn capacity(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks some request holds. Cached blocks nobody uses do not count.
    pub fn in_use(&self) -> usize {
        self.capacity() - self.free.len()
    }

    /// Number of distinct blocks a prompt can hit.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// The cached blocks of the longest unbroken prefix of `hashes`.
    pub fn longest_prefix(&self, hashes: &[BlockHash]) -> Vec<BlockId> {
        hashes
            .iter()
            .map_while(|hash| {
                self.cached
                    .get(hash)
                    .and_then(|copies| copies.first().copied())
            })
            .collect()
    }

    /// Takes a reference on every block of `hits` and `fresh` further blocks, or changes nothing
    /// when they are not free.
    pub fn acquire(&mut self, hits: &[BlockId], fresh: usize) -> Option<Vec<BlockId>> {
        let idle_hits = hits
            .iter()
            .filter(|id| self.blocks[id.0].queued.is_some())
            .count();
        if fresh > self.free.len() - idle_hits {
            return None;
        }
        for id in hits {
            let block = &mut self.blocks[id.0];
            block.references += 1;
            if let Some(key) = block.queued.take() {
                self.free.remove(&key);
            }
        }
        let mut held = hits.to_vec();
        held.extend((0..fresh).map_while(|_| self.evict_oldest()));
        Some(held)
    }

    /// Makes a full, computed block a hit for others.
    pub fn publish(&mut self, id: BlockId, hash: BlockHash) {
        let block = &mut self.blocks[id.0];
        if block.hash.is_none() {
            block.hash = Some(hash);
            self.cached.entry(hash).or_default().push(id);
        }
    }

    /// Gives a request's blocks back, the last block first; those without a hash to the front.
    pub fn release(&mut self, held: &[BlockId]) {
        for id in held {
            self.blocks[id.0].references -= 1;
        }
        let unused = |id: &&BlockId| self.blocks[id.0].references == 0;
        let unused: Vec<BlockId> = held.iter().filter(unused).copied().collect();
        let (cached, blank): (Vec<BlockId>, Vec<BlockId>) = unused
            .into_iter()
            .partition(|id| self.blocks[id.0].hash.is_some());
        for id in cached.into_iter().rev() {
            self.queue(id);
        }
        // In this order the last block of a request ends up in front.
        for id in blank {
            self.blocks[id.0].queued = Some(self.first_key);
            self.free.insert(self.first_key, id);
            self.first_key -= 1;
        }
    }

    /// Forgets every cached prefix. Refused, as vLLM refuses it, while a block is in use.
    pub fn reset(&mut self) -> bool {
        if self.in_use() > 0 {
            return false;
        }
        self.cached.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
        true
    }

    fn queue(&mut self, id: BlockId) {
        self.blocks[id.0].queued = Some(self.last_key);
        self.free.insert(self.last_key, id);
        self.last_key += 1;
    }

    fn evict_oldest(&mut self) -> Option<BlockId> {
        let (_, id) = self.free.pop_first()?;
        let block = &mut self.blocks[id.0];
        block.queued = None;
        block.references = 1;
        if let Some(hash) = block.hash.take()
            && let Some(copies) = self.cached.get_mut(&hash)
        {
            copies.retain(|copy| *copy != id);
            if copies.is_empty() {
                self.cached.remove(&hash);
            }
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests;
