//! Waiting for what happens soon but not at once.

use std::time::{Duration, Instant};

/// How long anything may take that happens at once on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(10);

/// Asks until there is an answer, and returns it.
///
/// # Panics
/// When there is none within [`PATIENCE`]; `what` says what was waited for.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
}
