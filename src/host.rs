//! The module as Envoy sees it: contexts that translate callbacks to events and commands to host
//! calls. No decision is made here.

mod abi;
mod body;
mod calls;
mod checker;
mod discovery;
mod ledger;
mod logger;
mod metrics;
mod root;
mod scraper;
mod shared;
mod stream;
mod switches;
mod watchdog;

use proxy_wasm::traits::RootContext;

proxy_wasm::main! {{
    logger::install();
    proxy_wasm::set_root_context(|id| -> Box<dyn RootContext> { Box::new(root::Root::new(id)) });
}}
