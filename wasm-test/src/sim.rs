//! `vllm-sim`: model servers that behave like vLLM without a GPU.
pub mod cache;
pub mod config;
pub mod driver;
pub mod engine;
pub mod generator;
pub mod preset;
pub mod stats;
pub mod template;
pub mod tokenizer;
