//! The values in shared data that are not the log.

use crate::replication::PoolKey;

/// Named values that all VMs read and the scrape leader writes.
pub trait Board {
    /// The value under `key`, if it was ever written.
    fn get(&self, key: &str) -> Option<Vec<u8>>;

    /// Writes the value under `key`. Where that fails, readers keep the one before.
    fn set(&mut self, key: &str, value: &[u8]);
}

/// Open leases of `pool`.
pub(super) fn leases(pool: PoolKey) -> String {
    format!("leases/{:016x}", pool.0)
}

/// The checkpoint's table of contents.
pub(super) fn contents(pool: PoolKey) -> String {
    format!("checkpoint/{:016x}", pool.0)
}

/// The checkpoint's chunk `number`.
pub(super) fn chunk(pool: PoolKey, number: u32) -> String {
    format!("checkpoint/{:016x}/{number}", pool.0)
}
