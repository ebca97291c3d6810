//! What surrounds a pick: what is known of each endpoint, what was sent where, who served it.

mod in_flight;
mod ledger;
mod load_guard;
mod pool;
mod ticket;
mod token_ratios;

pub use in_flight::{InFlight, Tally};
pub use ledger::{Board, End, Ledger, LedgerHandle, ReplicaLimits, RequestId, Sent, Upkeep};
pub use load_guard::LoadGuard;
pub use pool::{Followed, Pick, Pool};
pub use ticket::{Moved, PrefillResult, Served, Ticket};
