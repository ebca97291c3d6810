//! Envoy's threads: which VM each has, and what happens on it next.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::calls::Call;
use super::engine::{Compiled, Trapped};
use super::vm::{Rules, Vm};
use super::world::{Level, World};
use super::{StartError, Thread};

#[derive(Debug)]
pub(super) struct Threads {
    compiled: Compiled,
    world: Rc<RefCell<World>>,
    rules: Rules,
    reload_interval: Duration,
    /// The configuration of new root contexts.
    configuration: Rc<[u8]>,
    slots: Vec<Slot>,
    /// VMs made so far.
    generations: u64,
}

#[derive(Debug)]
struct Slot {
    thread: Thread,
    vm: Option<Vm>,
    loaded_at: Duration,
    stalled: bool,
}

/// What happens next on a thread.
#[derive(Clone, Copy, Debug)]
enum Event {
    CallEnds { token: u32 },
    Tick { root: u32 },
}

impl Threads {
    pub(super) fn new(
        compiled: Compiled,
        world: &Rc<RefCell<World>>,
        rules: Rules,
        reload_interval: Duration,
    ) -> Self {
        Self {
            compiled,
            world: Rc::clone(world),
            rules,
            reload_interval,
            configuration: Rc::default(),
            slots: Vec::new(),
            generations: 0,
        }
    }

    pub(super) fn start(
        &mut self,
        workers: usize,
        configuration: Rc<[u8]>,
    ) -> Result<(), StartError> {
        self.configuration = configuration;
        self.load(Thread::Canary)?;
        for thread in std::iter::once(Thread::Main).chain((0..workers).map(Thread::Worker)) {
            let vm = Some(self.load(thread)?);
            let loaded_at = self.world.borrow().now;
            self.slots.push(Slot {
                thread,
                vm,
                loaded_at,
                stalled: false,
            });
        }
        Ok(())
    }

    pub(super) fn reconfigure(&mut self, configuration: Rc<[u8]>) -> Result<(), StartError> {
        let before = std::mem::replace(&mut self.configuration, configuration);
        if let Err(error) = self.load(Thread::Canary) {
            self.configuration = before;
            return Err(error);
        }
        let configuration = Rc::clone(&self.configuration);
        self.on_every_vm(|vm| {
            vm.drain();
            vm.add_root(&configuration).map(|_| ())
        });
        Ok(())
    }

    pub(super) fn end_drain(&mut self) {
        self.on_every_vm(Vm::remove_drained);
        let alive: Vec<(Thread, u32)> = self.slots.iter().flat_map(roots).collect();
        let mut world = self.world.borrow_mut();
        world
            .calls
            .cancel(|call| !alive.contains(&(call.thread, call.root)));
    }

    /// A configured VM.
    fn load(&mut self, thread: Thread) -> Result<Vm, StartError> {
        self.generations += 1;
        let mut vm = Vm::start(
            &self.compiled,
            thread,
            &self.world,
            self.rules,
            self.generations,
        );
        match vm.as_mut().map(|vm| vm.add_root(&self.configuration)) {
            Ok(Ok(true)) | Err(_) => {}
            Ok(Ok(false)) => return Err(self.start_error()),
            Ok(Err(trap)) => return Err(self.trapped_at_start(thread, trap)),
        }
        vm.map_err(|trap| self.trapped_at_start(thread, trap))
    }

    fn trapped_at_start(&self, thread: Thread, trap: Trapped) -> StartError {
        self.world.borrow_mut().log(thread, Level::Critical, trap.0);
        self.start_error()
    }

    fn start_error(&self) -> StartError {
        StartError {
            log: self.world.borrow().log.clone(),
        }
    }

    fn on_every_vm(&mut self, action: impl Fn(&mut Vm) -> Result<(), Trapped>) {
        let threads: Vec<Thread> = self.slots.iter().map(|slot| slot.thread).collect();
        for thread in threads {
            self.run(thread, |vm| action(vm));
        }
    }
}

/// Running.
impl Threads {
    pub(super) fn vm(&self, thread: Thread) -> Option<&Vm> {
        self.slots
            .iter()
            .find(|slot| slot.thread == thread)?
            .vm
            .as_ref()
    }

    fn slot(&mut self, thread: Thread) -> &mut Slot {
        let slot = self.slots.iter_mut().find(|slot| slot.thread == thread);
        slot.unwrap_or_else(|| panic!("the host has no {thread:?}"))
    }

    /// Runs something in the VM of `thread`, which is lost if that traps; `None` when it has none,
    /// or has it no longer.
    pub(super) fn run<T>(
        &mut self,
        thread: Thread,
        action: impl FnOnce(&mut Vm) -> Result<T, Trapped>,
    ) -> Option<T> {
        match action(self.slot(thread).vm.as_mut()?) {
            Ok(result) => Some(result),
            Err(trap) => {
                self.lose(thread, &trap.0);
                None
            }
        }
    }

    /// The VM of `thread` is gone, and with it everything in it. No callback runs.
    pub(super) fn lose(&mut self, thread: Thread, why: &str) {
        self.slot(thread).vm = None;
        let mut world = self.world.borrow_mut();
        world.calls.cancel(|call| call.thread == thread);
        world.log(thread, Level::Critical, format!("the VM is lost: {why}"));
    }

    /// Replaces a lost VM before a request, unless it is too soon. Whether `thread` has a VM then.
    pub(super) fn reload(&mut self, thread: Thread) -> bool {
        let now = self.world.borrow().now;
        let interval = self.reload_interval;
        let slot = self.slot(thread);
        if slot.vm.is_some() {
            return true;
        }
        if now < slot.loaded_at + interval {
            return false;
        }
        slot.loaded_at = now;
        let vm = self.load(thread).ok();
        self.slot(thread).vm = vm;
        self.vm(thread).is_some()
    }

    pub(super) fn set_stalled(&mut self, thread: Thread, stalled: bool) {
        self.slot(thread).stalled = stalled;
    }

    pub(super) fn advance(&mut self, by: Duration) {
        let until = self.world.borrow().now + by;
        while let Some((at, thread, event)) = self.next_event().filter(|next| next.0 <= until) {
            let now = {
                let mut world = self.world.borrow_mut();
                world.now = world.now.max(at);
                world.now
            };
            match event {
                Event::CallEnds { token } => {
                    let ended = self.world.borrow_mut().calls.end(token);
                    if let Some((call, answer)) = ended {
                        self.run(thread, |vm| vm.end_call(&call, answer));
                    }
                }
                Event::Tick { root } => {
                    self.run(thread, |vm| vm.tick(root, now));
                }
            }
        }
        self.world.borrow_mut().now = until;
    }

    fn next_event(&self) -> Option<(Duration, Thread, Event)> {
        let awake = || self.slots.iter().filter(|slot| !slot.stalled);
        let world = self.world.borrow();
        let ends = |call: &Call| {
            awake().find(|slot| slot.thread == call.thread)?;
            let event = Event::CallEnds { token: call.token };
            Some((call.ends_at()?, call.thread, event))
        };
        let calls = world.calls.open().filter_map(ends);
        let ticks = awake().flat_map(ticks);
        // Of several at the same time, the first.
        calls.chain(ticks).min_by_key(|(at, ..)| *at)
    }
}

fn roots(slot: &Slot) -> impl Iterator<Item = (Thread, u32)> {
    let roots = slot.vm.iter().flat_map(|vm| vm.guest().roots.keys());
    roots.map(|root| (slot.thread, *root))
}

fn ticks(slot: &Slot) -> impl Iterator<Item = (Duration, Thread, Event)> {
    let roots = slot.vm.iter().flat_map(|vm| &vm.guest().roots);
    roots.filter_map(|(id, root)| {
        let tick = root.tick?;
        Some((tick.next, slot.thread, Event::Tick { root: *id }))
    })
}
