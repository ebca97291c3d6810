//! A server that takes two seconds for everything and as many requests as come, at next to no cost:
//! hundreds of open requests need no simulated engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use tokio::net::TcpListener;

/// One server. It ends with the runtime.
#[derive(Debug)]
pub struct SlowServer {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    running: AtomicUsize,
    scrapes: AtomicUsize,
    /// The next page ends the VM that reads it, where that VM is a test's.
    trap: AtomicBool,
}

impl SlowServer {
    /// Starts one.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let seen = Arc::<Seen>::default();
        let app = Router::new()
            .route("/v1/chat/completions", post(answer))
            .route("/metrics", get(metrics))
            .fallback(|| async { "well" })
            .with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, seen }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Pages asked for.
    pub fn scrapes(&self) -> usize {
        self.seen.scrapes.load(Ordering::Relaxed)
    }

    /// Ends the VM that asks next.
    pub fn trap_next_scraper(&self) {
        self.seen.trap.store(true, Ordering::Relaxed);
    }

    /// Whether one has asked.
    pub fn has_trapped(&self) -> bool {
        !self.seen.trap.load(Ordering::Relaxed)
    }
}

async fn answer(State(seen): State<Arc<Seen>>) -> &'static str {
    seen.running.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    seen.running.fetch_sub(1, Ordering::Relaxed);
    "{}"
}

async fn metrics(State(seen): State<Arc<Seen>>) -> String {
    seen.scrapes.fetch_add(1, Ordering::Relaxed);
    if seen.trap.swap(false, Ordering::Relaxed) {
        return "epp_trap 1\n".to_owned();
    }
    let running = seen.running.load(Ordering::Relaxed);
    format!(
        "vllm:num_requests_running{{engine=\"0\"}} {running}\n\
         vllm:num_requests_waiting{{engine=\"0\"}} 0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.1\n"
    )
}
