//! The `OpenAI` API as vLLM speaks it: what a request asks for, and the errors it can get.

pub mod error;
pub mod request;
pub mod response;
pub mod stream;
