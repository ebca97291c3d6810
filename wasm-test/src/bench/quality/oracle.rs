//! The best choice for one request, by one who knows every server's cache and queue.
//!
//! It takes the server with the earliest first token, as things are; it does not know the future,
//! so it is no bound for a whole load, only what no router can know more than.

use std::time::Duration;

use super::text::Prompt;
use crate::sim::engine::Outlook;
use crate::sim::{Sim, SimServer};

/// The server with the earliest first token for `prompt`; equals take turns by `number`.
pub fn best(sim: &Sim, prompt: &Prompt, number: usize) -> usize {
    let time = |server: &SimServer| {
        let outlooks = server.outlooks(&prompt.hashes, prompt.tokens);
        let first = outlooks
            .iter()
            .map(|Outlook { wait, prefill }| *wait + *prefill);
        first.min().unwrap_or(Duration::MAX)
    };
    let times: Vec<Duration> = sim.servers().iter().map(time).collect();
    earliest(&times, number)
}

fn earliest(times: &[Duration], number: usize) -> usize {
    let count = times.len().max(1);
    let in_turn = (0..count).map(|step| (number + step) % count);
    in_turn.min_by_key(|at| times.get(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_taken_and_equals_in_turn() {
        let times = [3, 1, 2, 1].map(Duration::from_millis);
        let taken: Vec<usize> = (0..4).map(|number| earliest(&times, number)).collect();
        assert_eq!(taken, [1, 1, 3, 3]);
    }
}
