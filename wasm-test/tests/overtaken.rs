//! Workers that choose at the same time: one of them is first in the decision log, and the others
//! choose with its request known.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::rc::Rc;

use inline_epp::config::Config;
use inline_epp::flow::{Command, Event, Headers, Router, Step, Stream};
use inline_epp::replication::VmId;
use inline_epp::replication::ring::{Cas, Ring, SetResult, SharedStore};
use inline_epp::requestcontrol::{Ledger, LedgerHandle};
use inline_epp::time::Timestamp;
use memory::Memory;

#[path = "replication/memory.rs"]
mod memory;

const SLOTS: NonZeroU32 = NonZeroU32::new(256).unwrap();
/// No prompt can be read: the load decides, and between equals the entropy, which is the same for all.
const BODY: &str = "not JSON";
const NOW: Timestamp = Timestamp::from_nanos(1_000_000);

/// What happens elsewhere before a write of this worker.
type Rival = Rc<RefCell<Option<Box<dyn FnMut()>>>>;

/// Shared data as one worker sees it.
struct View {
    memory: Rc<RefCell<Memory>>,
    rival: Rival,
}

impl SharedStore for View {
    fn get(&self, slot: u32) -> Option<(Vec<u8>, Cas)> {
        self.memory.borrow().get(slot)
    }

    fn set(&mut self, slot: u32, value: &[u8], cas: Cas) -> SetResult {
        if let Some(rival) = self.rival.borrow_mut().as_mut() {
            rival();
        }
        self.memory.borrow_mut().set(slot, value, cas)
    }
}

struct Worker {
    router: Router,
    rival: Rival,
    streams: Vec<Stream>,
}

impl Worker {
    fn new(number: u32, memory: &Rc<RefCell<Memory>>, rival: &Rival) -> Self {
        let json = br#"{"pools":[{"name":"p","cluster":"c",
            "endpoints":["10.0.0.1:80","10.0.0.2:80","10.0.0.3:80"]}]}"#;
        Ring::create(SLOTS, &mut *memory.borrow_mut()).unwrap();
        let ring = Ring::join(SLOTS, &*memory.borrow());
        let view = View {
            memory: Rc::clone(memory),
            rival: Rc::clone(rival),
        };
        let ledger = Ledger::shared(VmId(number), ring, Box::new(view));
        let config = Config::parse(json).unwrap();
        Self {
            router: Router::new(config, &LedgerHandle::new(ledger)).unwrap(),
            rival: Rc::clone(rival),
            streams: Vec::new(),
        }
    }

    /// Where a request goes, which stays open.
    fn pick(&mut self) -> String {
        let mut stream = Stream::default();
        let pairs: [(&[u8], &[u8]); 3] = [
            (b":method", b"POST"),
            (b":path", b"/v1/completions"),
            (b":authority", b"llm.example"),
        ];
        let mut handle = |event| stream.handle(&mut self.router, event, NOW);
        handle(Event::RequestHeaders {
            headers: Headers::new(&pairs),
            end_of_stream: false,
            entropy: 1,
        });
        handle(Event::RequestBody {
            buffered: BODY.len(),
            end_of_stream: true,
        });
        let step = handle(Event::RequestBodyRead(&mut BODY.as_bytes()));
        self.streams.push(stream);
        destination(&step)
    }

    /// Open requests of all workers.
    fn open(&self) -> u32 {
        let pool = self.router.pools().first().unwrap();
        pool.catch_up();
        pool.endpoints().map(|(id, _)| pool.open_at(id)).sum()
    }
}

/// The first of the endpoints named, of which there is one list.
fn destination(step: &Step) -> String {
    let named = |command: &Command| match command {
        Command::SetRequestHeader(_, value) => Some(String::from_utf8(value.clone()).unwrap()),
        _ => None,
    };
    let mut lists = step.commands.iter().filter_map(named);
    let list = lists.next().expect("the request is routed");
    assert_eq!(lists.next(), None, "it is routed once");
    list.split(',').next().unwrap().to_owned()
}

/// One worker, and where the other one's requests go, of which one comes before each of the first
/// `times` writes of the one.
fn two_workers(times: usize) -> (Worker, Rc<RefCell<Vec<String>>>) {
    let memory = Rc::new(RefCell::new(Memory::default()));
    let rival = Rival::default();
    let one = Worker::new(1, &memory, &rival);
    let mut other = Worker::new(2, &memory, &Rival::default());
    let picks = Rc::new(RefCell::new(Vec::new()));
    let theirs = Rc::clone(&picks);
    *rival.borrow_mut() = Some(Box::new(move || {
        if theirs.borrow().len() < times {
            let pick = other.pick();
            theirs.borrow_mut().push(pick);
        }
    }));
    (one, picks)
}

#[test]
fn workers_that_choose_at_the_same_time_choose_different_servers() {
    let (mut alone, _) = two_workers(0);
    let favourite = alone.pick();
    let (mut one, theirs) = two_workers(1);
    let mine = one.pick();
    assert_eq!(*theirs.borrow(), std::slice::from_ref(&favourite));
    assert_ne!(mine, favourite);
    assert_eq!(one.open(), 2);
}

#[test]
fn a_worker_that_is_overtaken_every_time_still_sends_its_request_once() {
    let (mut one, theirs) = two_workers(40);
    one.pick();
    let theirs = theirs.borrow().len();
    assert!((3..=40).contains(&theirs), "{theirs} came before");
    assert_eq!(one.open(), u32::try_from(theirs).unwrap() + 1);
}

#[test]
fn workers_that_would_probe_an_unfit_server_at_the_same_time_send_one_probe() {
    let (mut one, theirs) = two_workers(1);
    let unfit = "10.0.0.1:80";
    // What this worker tells of it is no occasion for the other one's request.
    let rival = one.rival.borrow_mut().take();
    let pool = one.router.pools_mut().first_mut().unwrap();
    let id = pool.find(unfit.parse().unwrap()).unwrap();
    for _ in 0..20 {
        pool.failed(id);
    }
    *one.rival.borrow_mut() = rival;
    let mine = one.pick();
    assert_eq!(*theirs.borrow(), [unfit]);
    assert_ne!(mine, unfit);
}
