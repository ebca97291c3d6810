//! `vllm-sim`: model servers that behave like vLLM, many in one process, without a GPU.
//!
//! Prefix cache, scheduler, queue, metrics page, API and errors follow vLLM as it was recorded;
//! `tests/sim_*.rs` replay those recordings. It uses nothing of the module under test: tokenizer,
//! chat template and hashes are its own, so what the router predicts and what a server counts agree
//! only if the router is right.
//!
//! Known differences: one prompt is computed at a time, decode speed does not depend on the batch,
//! `stop` and `logprobs` change nothing, and a request for more adapters than fit does not wait.

pub mod cache;
pub mod config;
mod connection;
mod driver;
pub mod engine;
mod exposition;
pub mod faults;
mod generate;
pub mod generator;
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

pub use config::SimConfig;
pub use faults::{Hold, Overrides};
pub use instance::State;
pub use log::LogEntry;
pub use preset::Preset;
pub use server::{Sim, SimServer};
pub use stats::{Counters, Gauges};
