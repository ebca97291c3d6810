//! What the call of a prefill endpoint does to its stream.

use super::{Action, State, Step, Stream};
use crate::flow::event::PrefillEnd;
use crate::flow::router::Router;
use crate::time::Timestamp;

impl Stream {
    /// The call for the prompt is on its way: the request waits for its end, or goes on beside it.
    pub(super) fn prefill_sent(&mut self) -> Step {
        let mut commands = None;
        if let State::Prefilling(held) = &mut self.state {
            let prefill = held.route.prefill.as_mut();
            commands = prefill.and_then(|prefill| prefill.sent());
        }
        let Some(commands) = commands else {
            return self.nothing_new();
        };
        self.state = match core::mem::take(&mut self.state) {
            State::Prefilling(held) => State::Routed(held),
            other @ (State::New | State::Held(_) | State::Routed(_) | State::Passed) => other,
        };
        Step {
            action: Action::Continue,
            commands,
        }
    }

    /// The call for the prompt is over. The request goes on where it waited for that.
    pub(super) fn prefill_ended(
        &mut self,
        router: &mut Router,
        end: &PrefillEnd,
        now: Timestamp,
    ) -> Step {
        let waits = matches!(self.state, State::Prefilling(_));
        let (State::Prefilling(sent) | State::Routed(sent)) = &mut self.state else {
            return hold();
        };
        let Some(prefill) = sent.route.prefill.take() else {
            return hold();
        };
        let (result, commands) = if waits {
            prefill.ended(end, now)
        } else {
            prefill.ended_beside(end, now)
        };
        if let (Some(ticket), Some(pool)) =
            (&mut sent.route.ticket, router.pool_mut(sent.route.pool))
        {
            ticket.prefilled(pool, result);
        }
        let action = if waits {
            Action::Continue
        } else {
            Action::Pause
        };
        self.state = match core::mem::take(&mut self.state) {
            State::Prefilling(held) => State::Routed(held),
            other @ (State::New | State::Held(_) | State::Routed(_) | State::Passed) => other,
        };
        Step { action, commands }
    }
}

/// Nothing goes on that did not already.
fn hold() -> Step {
    Step {
        action: Action::Pause,
        commands: Vec::new(),
    }
}
