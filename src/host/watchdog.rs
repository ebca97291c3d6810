//! Streams that are held, in case this host never delivers their bodies.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proxy_wasm::types::Action;

use super::abi;
use super::root::Shared;
use super::stream;
use crate::flow::{BodyDelivery, Event, Stream};
use crate::time::Timestamp;

/// Held streams by context id, while it is not known whether the host delivers bodies. Bounded by
/// the open streams; empty from the first body on.
#[derive(Default)]
pub(super) struct Watchdog {
    held: RefCell<BTreeMap<u32, Held>>,
    /// Streams resumed by the latest tick, until something else happens than their bodies: the host
    /// resumes them when the tick is over, and hands a withheld body over in the same breath.
    resumed: RefCell<BTreeSet<u32>>,
    resumed_at: Cell<Timestamp>,
}

/// A withheld body follows its resume within this time (measured: about 1 ms).
const AT_ONCE: Duration = Duration::from_millis(5);

struct Held {
    stream: Rc<RefCell<Stream>>,
    since: Timestamp,
}

impl Watchdog {
    /// `stream` is held from now on.
    pub(super) fn watch(&self, context_id: u32, stream: &Rc<RefCell<Stream>>, since: Timestamp) {
        if let Ok(mut held) = self.held.try_borrow_mut() {
            let stream = Rc::clone(stream);
            held.insert(context_id, Held { stream, since });
        }
    }

    /// The stream is over.
    pub(super) fn forget(&self, context_id: u32) {
        if let Ok(mut held) = self.held.try_borrow_mut() {
            held.remove(&context_id);
        }
    }

    /// Whether a body of this stream follows its resume at once.
    pub(super) fn follows_resume(&self, context_id: u32, now: fn() -> Timestamp) -> bool {
        let was_resumed = self
            .resumed
            .try_borrow_mut()
            .is_ok_and(|mut resumed| resumed.remove(&context_id));
        was_resumed && now().since(self.resumed_at.get()) <= AT_ONCE
    }

    /// A callback came that is no body of a resumed stream: what follows follows something else.
    pub(super) fn something_else(&self) {
        if let Ok(mut resumed) = self.resumed.try_borrow_mut() {
            resumed.clear();
        }
    }

    fn was_resumed(&self, context_id: u32, now: Timestamp) {
        self.resumed_at.set(now);
        if let Ok(mut resumed) = self.resumed.try_borrow_mut() {
            resumed.insert(context_id);
        }
    }

    /// Takes out the streams held for at least `patience`; all of them once bodies are known to
    /// come, since then nobody is resumed.
    fn take_overdue(&self, now: Timestamp, patience: Duration, all: bool) -> BTreeMap<u32, Held> {
        let Ok(mut held) = self.held.try_borrow_mut() else {
            return BTreeMap::new();
        };
        let (overdue, waiting) = core::mem::take(&mut *held)
            .into_iter()
            .partition(|(_, one)| all || now.since(one.since) >= patience);
        *held = waiting;
        overdue
    }
}

/// Routes and resumes what was held for longer than `patience` without a body. Runs in the root
/// context, which it becomes again at the end.
pub(super) fn resume_overdue(
    shared: &Rc<Shared>,
    root_context: u32,
    now: Timestamp,
    patience: Duration,
) {
    let Ok(delivery) = shared.router.try_borrow().map(|router| router.delivery()) else {
        return;
    };
    shared.watchdog.something_else();
    let known = !delivery.is_unknown();
    let overdue = shared.watchdog.take_overdue(now, patience, known);
    if delivery == BodyDelivery::WhileHeld || overdue.is_empty() {
        return;
    }
    for (context_id, Held { stream, .. }) in overdue {
        let is_held = stream.try_borrow().is_ok_and(|stream| stream.is_held());
        // A context that is gone needs nothing.
        if is_held && abi::set_effective_context(context_id).is_ok() {
            let action = stream::run(shared, &stream, Event::BodyOverdue);
            if action == Action::Pause {
                continue;
            }
            match abi::continue_request() {
                Ok(()) => shared.watchdog.was_resumed(context_id, abi::now()),
                Err(error) => log::debug!("the host refused to resume a request: {error:?}"),
            }
        }
    }
    if let Err(error) = abi::set_effective_context(root_context) {
        log::debug!("the host refused the root context: {error:?}");
    }
}
