//! `vllm-sim`: model servers that behave like vLLM, many in one process, without a GPU.
//!
//! Prefix cache, scheduler, queue, metrics page, API and errors follow vLLM as it was recorded;
//! `tests/sim_*.rs` replay those recordings. It uses nothing of the module under test: tokenizer,
//! chat template and hashes are its own, so what the router predicts and what a server counts agree
//! only if the router is right.
//!
//! Responses, messages, embeddings and the two `generate` APIs are computed as the completion or chat
//! they come down to, and answered whole, in the fields that clients read.
//!
//! Known differences: one prompt is computed at a time, decode speed does not depend on the batch,
//! `stop` and `logprobs` change nothing, loading an adapter stops no other request, and with several
//! engines all prompts of one HTTP request go to the same one.
//!
//! What a server does not do by itself, [`Overrides`] make it do: `SimServer::set_overrides` here,
//! `POST /sim/override` with the same as JSON over HTTP.

mod adapter;
pub mod cache;
pub mod config;
mod connection;
mod driver;
pub mod engine;
mod engines;
mod exposition;
pub mod faults;
mod further;
mod generate;
pub mod generator;
mod inject;
mod instance;
pub mod log;
mod metrics;
pub mod observe;
mod openai;
pub mod preset;
mod routes;
mod server;
pub mod stats;
pub mod template;
pub mod tokenizer;
mod transfer;

pub use adapter::Adapter;
pub use config::SimConfig;
pub use faults::{Failure, Hold, MetricsAnswer, Overrides, Reset, ResetPoint, Span, Status};
pub use instance::{EngineState, State};
pub use log::LogEntry;
pub use preset::Preset;
pub use server::{Sim, SimServer};
pub use stats::{Counters, Gauges};
pub use transfer::LoadFailure;
