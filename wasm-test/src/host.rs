//! A fake of Envoy's proxy-wasm host, in the test's own process, for the module as it is built.
//!
//! It keeps state as Envoy does (VMs over one shared data, streams, stats, calls) and runs on a
//! clock that only the test moves, so that what takes time, or needs two VMs to meet in a certain
//! order, happens exactly as a test says. What it models was measured on Envoy 1.40;
//! `tests/host_model.rs` shows it next to a real one.
//!
//! Not modelled: responses that a module pauses, gRPC, queues, foreign functions (a call of these
//! traps), and what only a network does (partial reads, flow control).

mod calls;
mod engine;
mod guest;
mod http;
mod metrics;
mod setup;
mod stream;
mod threads;
mod vm;
mod world;

pub use calls::{Answer, Call, Request, Responder};
pub use http::Reply;
pub use setup::{Setup, StartError};
pub use stream::{Pairs, Progress, Response, Sent, Stream};
pub use world::{Level, LogLine};

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;

use threads::Threads;
use world::World;

/// `name`, `root_id` and `vm_id` of the plugin.
pub const PLUGIN: &str = "inline-epp";

/// A thread of Envoy; each has a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thread {
    /// The VM in which a configuration is tried, before any other gets it. It never ticks.
    Canary,
    /// Takes no requests.
    Main,
    /// A worker, counted from 0.
    Worker(usize),
}

/// The fake. Clones are the same host.
#[derive(Clone, Debug)]
pub struct Host {
    world: Rc<RefCell<World>>,
    threads: Rc<RefCell<Threads>>,
}

impl Host {
    /// Prepares a host for the module built from this checkout.
    ///
    /// # Panics
    /// When the module does not build.
    pub fn setup() -> Setup {
        Setup::new(crate::artifact::module().expect("the module builds"))
    }

    /// Begins a stream on a worker; one without a VM gets a new one first, as the failure policy
    /// `FAIL_RELOAD` has it.
    pub fn stream(&self, worker: usize) -> Stream {
        Stream::new(self, Thread::Worker(worker))
    }

    /// Replaces the plugin configuration, a JSON object: the canary tries it, then every VM gets
    /// another root context. Streams there are, and the ticks of their root contexts, go on until
    /// [`Host::end_drain`].
    ///
    /// # Errors
    /// When the module refuses it; everything stays as it was then.
    pub fn reconfigure(&self, plugin: &serde_json::Value) -> Result<(), StartError> {
        let configuration = setup::struct_bytes(plugin).into();
        self.threads.borrow_mut().reconfigure(configuration)
    }

    /// Ends the root contexts of configurations that were replaced, and the calls they wait for.
    pub fn end_drain(&self) {
        self.threads.borrow_mut().end_drain();
    }
}

/// Time.
impl Host {
    /// Time on the monotonic clock.
    pub fn now(&self) -> Duration {
        self.world.borrow().now
    }

    /// Lets time pass: ticks run and calls end when they are due, in order; at the same moment
    /// calls before ticks, and the main thread before the workers.
    pub fn advance(&self, by: Duration) {
        self.threads.borrow_mut().advance(by);
    }

    /// A stalled thread does nothing: what is due waits until [`Host::wake`].
    pub fn stall(&self, thread: Thread) {
        self.threads.borrow_mut().set_stalled(thread, true);
    }

    /// Ends [`Host::stall`]; what was due meanwhile happens with the next [`Host::advance`].
    pub fn wake(&self, thread: Thread) {
        self.threads.borrow_mut().set_stalled(thread, false);
    }

    /// Ends the VM of `thread` as a trap would: its contexts are gone without a callback.
    pub fn kill(&self, thread: Thread) {
        self.threads.borrow_mut().lose(thread, "killed by the test");
    }

    /// Bytes of memory that `thread`'s VM has taken; it never gives any back.
    ///
    /// # Panics
    /// When it has none.
    pub fn memory_bytes(&self, thread: Thread) -> usize {
        let mut threads = self.threads.borrow_mut();
        threads
            .run(thread, |vm| Ok(vm.memory_bytes()))
            .expect("a VM")
    }

    /// Whether `thread` has a VM.
    pub fn has_vm(&self, thread: Thread) -> bool {
        self.threads.borrow().vm(thread).is_some()
    }
}

/// What the VMs share.
impl Host {
    /// The sum over the counters and gauges called `name` that carry all of `labels`; `None` when
    /// there is none.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        self.world.borrow().metrics.sum(name, labels)
    }

    /// What was recorded in a histogram, oldest first; nothing when there is none.
    pub fn samples(&self, name: &str) -> Vec<u64> {
        self.world.borrow().metrics.samples(name)
    }

    /// The log so far, of all levels.
    pub fn log(&self) -> Ref<'_, [LogLine]> {
        Ref::map(self.world.borrow(), |world| world.log.as_slice())
    }

    /// Keys of the shared data.
    pub fn shared_keys(&self) -> Vec<String> {
        self.world.borrow().shared.keys()
    }

    /// A value of the shared data.
    pub fn shared_value(&self, key: &str) -> Option<Vec<u8>> {
        self.world.borrow().shared.get(key).map(|(value, _)| value)
    }

    /// Overwrites a value of the shared data, as another plugin may.
    pub fn set_shared(&self, key: &str, value: &[u8]) {
        let mut world = self.world.borrow_mut();
        world.shared.set(key.to_owned(), value.to_vec(), 0);
    }
}

/// HTTP calls of the module.
impl Host {
    /// Calls under way, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.world.borrow().calls.open().cloned().collect()
    }

    /// Ends the call `token` now, that is with the next [`Host::advance`], be it of no time at all.
    /// Nothing happens when it has ended.
    pub fn answer(&self, token: u32, answer: Answer) {
        let mut world = self.world.borrow_mut();
        let now = world.now;
        world.calls.answer(token, now, answer);
    }

    /// Has calls answered from here on as `responder` says. It must not use the host.
    pub fn answer_calls(
        &self,
        responder: impl FnMut(&Call) -> Option<(Duration, Answer)> + 'static,
    ) {
        self.world.borrow_mut().calls.responder = Some(Box::new(responder));
    }

    /// Has the host refuse calls to `cluster` at once, as it does when no host is there or a circuit
    /// breaker is open; or take them again.
    pub fn set_exhausted(&self, cluster: &str, exhausted: bool) {
        let refusing = &mut self.world.borrow_mut().calls.exhausted;
        if exhausted {
            refusing.insert(cluster.to_owned());
        } else {
            refusing.remove(cluster);
        }
    }
}
