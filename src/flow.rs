//! One HTTP stream, without I/O: events go in with the time they happened, commands come out.
//!
//! ```text
//! headers ─ not ours ──────────────────────────────► Passed
//!    │ └─── no prompt to read ── pick by load ─────► Routed
//!    └ hold ── body end, trailers or limit ── read ─ parse, hash, pick ► Routed
//!                                                                  └ call prefill ─ answer ► Routed
//! Routed ── response headers: confirm, move or take back ── end: close the lease
//! ```
//!
//! `flow` decides and `host` obeys. A request header is never written after the request was
//! released.

mod command;
mod control_headers;
mod decide;
mod delivery;
mod destination;
mod event;
mod prefill;
mod prompt;
mod proxy;
mod request;
mod router;
mod stream;
mod usage;

pub use command::{Action, Command, Count, PrefillCall, Replacement, Step};
pub use control_headers::CONTROL_HEADERS;
pub use delivery::BodyDelivery;
pub use event::{Event, Headers, MAX_ANSWER, PrefillEnd};
pub use proxy::{Offer, ProxyVersion};
pub use router::Router;
pub use stream::Stream;
