use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

const BLOCK: usize = 4;

/// An engine in virtual time: 100 ms for a prefill plus 1 ms a token, 10 ms for an output token.
struct Bench {
    engine: Engine,
    start: Instant,
    /// Of the next requests.
    adapter: Option<&'static str>,
}

struct Client {
    id: RequestId,
    outputs: UnboundedReceiver<Output>,
}

impl Bench {
    fn new(num_gpu_blocks: usize, max_num_seqs: usize) -> Self {
        let limits = Limits {
            block_size: BLOCK,
            num_gpu_blocks,
            max_num_seqs,
            max_num_queued_reqs: None,
            max_loras: 1,
            kv_lease: Duration::from_secs(30),
        };
        let timing = Timing {
            prefill_base: Duration::from_millis(100),
            prefill_per_token: Duration::from_millis(1),
            decode_per_token: Duration::from_millis(10),
            lora_load_per_rank: Duration::from_millis(10),
        };
        Self {
            engine: Engine::new(limits, timing),
            start: Instant::now(),
            adapter: None,
        }
    }

    fn at(&self, milliseconds: u64) -> Instant {
        self.start + Duration::from_millis(milliseconds)
    }

    fn try_submit(&mut self, at: u64, prompt: &[Token], output: usize) -> Result<Client, Busy> {
        let (sink, outputs) = unbounded_channel();
        let job = Job {
            prompt: prompt.to_vec(),
            scope: CacheScope {
                lora: self.adapter.map(str::to_owned),
                salt: None,
            },
            lora_rank: 16,
            answer: Answer::to(prompt, 0),
            max_tokens: output,
            finish: Finish::Length,
            choice: 0,
            sink,
            remote: Remote::None,
        };
        let ids = self.engine.submit(self.at(at), 0, vec![job])?;
        Ok(Client {
            id: ids[0],
            outputs,
        })
    }

    fn submit(&mut self, at: u64, prompt: &[Token], output: usize) -> Client {
        self.try_submit(at, prompt, output).expect("no queue limit")
    }

    fn advance(&mut self, at: u64) {
        self.engine.advance(self.at(at));
    }

    /// Running, waiting, blocks in use.
    fn load(&self) -> (usize, usize, usize) {
        (
            self.engine.running.len(),
            self.engine.waiting.len(),
            self.engine.pool.in_use(),
        )
    }
}

impl Client {
    fn cached(&mut self) -> Option<usize> {
        match self.outputs.try_recv().ok()?.event {
            OutputEvent::Started { cached } => Some(cached),
            OutputEvent::Token { .. } => None,
        }
    }

    /// The tokens received and how it ended.
    fn answer(&mut self) -> (Vec<&'static str>, Option<Finish>) {
        let mut words = Vec::new();
        let mut end = None;
        while let Ok(output) = self.outputs.try_recv() {
            if let OutputEvent::Token { text, finish } = output.event {
                words.push(text);
                end = finish;
            }
        }
        (words, end)
    }
}

fn prompt(start: u64, length: u64) -> Vec<Token> {
    (start..start + length).filter_map(Token::from_id).collect()
}

#[test]
fn tokens_come_at_their_rate_after_the_prefill() {
    let mut bench = Bench::new(64, 8);
    let mut client = bench.submit(0, &prompt(0, 20), 5);
    bench.advance(119);
    assert_eq!(client.cached(), Some(0));
    assert_eq!(client.answer().0.len(), 0);
    bench.advance(120);
    assert_eq!(client.answer().0.len(), 1);
    bench.advance(145);
    assert_eq!(
        client.answer(),
        (vec![client_word(20, 1), client_word(20, 2)], None)
    );
    bench.advance(160);
    let (rest, end) = client.answer();
    assert_eq!((rest.len(), end), (2, Some(Finish::Length)));
    assert_eq!(bench.load(), (0, 0, 0));
}

fn client_word(length: u64, index: usize) -> &'static str {
    Answer::to(&prompt(0, length), 0).word(index)
}

#[test]
fn a_late_caller_sees_the_same_tokens() {
    let outputs = |steps: &[u64]| {
        let mut bench = Bench::new(64, 8);
        let mut clients = [
            bench.submit(0, &prompt(0, 9), 7),
            bench.submit(0, &prompt(50, 9), 4),
        ];
        for step in steps {
            bench.advance(*step);
        }
        (
            clients.each_mut().map(Client::answer),
            bench.engine.stats().counters,
        )
    };
    let every_millisecond: Vec<u64> = (0..=500).collect();
    assert_eq!(outputs(&[500]), outputs(&every_millisecond));
}

#[test]
fn prefill_is_serial_and_decode_is_not() {
    let mut bench = Bench::new(64, 8);
    let mut first = bench.submit(0, &prompt(0, 20), 100);
    let mut second = bench.submit(0, &prompt(100, 20), 100);
    assert_eq!(bench.load().1, 1);
    bench.advance(120);
    assert_eq!(bench.load().1, 0);
    bench.advance(239);
    assert_eq!((first.answer().0.len(), second.answer().0.len()), (12, 0));
    bench.advance(340);
    assert_eq!((first.answer().0.len(), second.answer().0.len()), (11, 11));
}

#[test]
fn only_uncached_tokens_cost_prefill_time() {
    let mut bench = Bench::new(64, 8);
    bench.submit(0, &prompt(0, 40), 1);
    bench.advance(140);
    let mut again = bench.submit(1000, &prompt(0, 40), 1);
    assert_eq!(again.cached(), Some(36));
    bench.advance(1103);
    assert_eq!(again.answer().0.len(), 0);
    bench.advance(1104);
    assert_eq!(again.answer().0.len(), 1);
}

#[test]
fn the_last_block_is_always_recomputed() {
    for (length, cached) in [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8), (12, 8)] {
        let mut bench = Bench::new(64, 8);
        bench.submit(0, &prompt(0, length), 1);
        let mut again = bench.submit(1000, &prompt(0, length), 1);
        assert_eq!(again.cached(), Some(cached), "{length} tokens");
    }
}

#[test]
fn generated_blocks_are_hits_for_the_next_turn() {
    let mut bench = Bench::new(64, 8);
    let mut first = bench.submit(0, &prompt(0, 8), 6);
    bench.advance(500);
    let said = first.answer().0;
    let words: Vec<Token> = said.iter().map(|word| Token::of_piece(word)).collect();
    let next = [prompt(0, 8), words, prompt(500, 3)].concat();
    // 8 + 6 tokens, of which the last generated one was never computed: three full blocks.
    assert_eq!(bench.submit(1000, &next, 1).cached(), Some(12));
}

#[test]
fn the_newest_token_fills_no_block() {
    let mut bench = Bench::new(64, 8);
    let mut first = bench.submit(0, &prompt(0, 8), 4);
    bench.advance(500);
    let words: Vec<Token> = first
        .answer()
        .0
        .iter()
        .map(|word| Token::of_piece(word))
        .collect();
    let next = [prompt(0, 8), words, prompt(500, 3)].concat();
    assert_eq!(bench.submit(1000, &next, 1).cached(), Some(8));
}

#[test]
fn blocks_become_hits_when_the_prefill_ends() {
    let mut bench = Bench::new(64, 8);
    let first = bench.submit(0, &prompt(0, 8), 5);
    bench.engine.abort(bench.at(50), first.id);
    assert_eq!(bench.load(), (0, 0, 0));
    assert_eq!(bench.submit(60, &prompt(0, 8), 1).cached(), Some(0));
    bench.advance(500);
    assert_eq!(bench.submit(600, &prompt(0, 8), 1).cached(), Some(4));
}

#[test]
fn requests_beyond_max_num_seqs_wait_in_order() {
    let mut bench = Bench::new(64, 1);
    let mut clients: Vec<Client> = (0..5)
        .map(|index| bench.submit(index, &prompt(index * 100, 10), 10))
        .collect();
    // Each takes 110 ms of prefill and nine decode steps of 10 ms.
    for (at, waiting) in [(10, 4), (199, 4), (200, 3), (400, 2), (600, 1), (800, 0)] {
        bench.advance(at);
        assert_eq!(bench.load().0, 1, "at {at} ms");
        assert_eq!(bench.load().1, waiting, "at {at} ms");
    }
    bench.advance(1000);
    assert_eq!(bench.load(), (0, 0, 0));
    assert!(
        clients
            .iter_mut()
            .all(|client| client.answer().0.len() == 10)
    );
}

#[test]
fn a_request_that_does_not_fit_waits_for_blocks() {
    let mut bench = Bench::new(9, 8);
    bench.submit(0, &prompt(0, 20), 10);
    let mut second = bench.submit(0, &prompt(100, 20), 1);
    bench.advance(150);
    assert_eq!(bench.load(), (1, 1, 6));
    assert_eq!(second.cached(), None);
    bench.advance(210);
    assert_eq!(bench.load().0, 1);
    assert_eq!(second.cached(), Some(0));
}

#[test]
fn the_latest_request_is_preempted_and_still_says_the_same() {
    let mut bench = Bench::new(9, 8);
    let mut first = bench.submit(0, &prompt(0, 12), 16);
    let mut second = bench.submit(0, &prompt(100, 12), 16);
    bench.advance(10_000);
    assert!(bench.engine.stats().counters.preemptions > 0);
    for (client, start) in [(&mut first, 0), (&mut second, 100)] {
        let expected = Answer::to(&prompt(start, 12), 0);
        let words: Vec<&str> = (0..16).map(|index| expected.word(index)).collect();
        assert_eq!(client.answer(), (words, Some(Finish::Length)));
    }
    let counters = bench.engine.stats().counters;
    assert_eq!(
        (counters.prompt_tokens, counters.prefix_cache_queries),
        (24, 24)
    );
    assert_eq!(counters.generation_tokens, 32);
    assert_eq!(bench.load(), (0, 0, 0));
}

#[test]
fn an_abort_frees_slot_and_blocks_in_every_phase() {
    // Waiting, on the GPU, decoding, finished.
    for (at, aborted) in [(110, 1), (150, 1), (300, 1), (5000, 0)] {
        let mut bench = Bench::new(64, 8);
        bench.submit(0, &prompt(0, 20), 1);
        let client = bench.submit(1, &prompt(100, 20), 50);
        bench.advance(at);
        bench.engine.abort(bench.at(at), client.id);
        bench.advance(6000);
        assert_eq!(bench.load(), (0, 0, 0), "aborted at {at} ms");
        assert_eq!(
            bench.engine.stats().counters.aborted,
            aborted,
            "aborted at {at} ms"
        );
        assert_eq!(bench.engine.next_event(), None);
    }
}

#[test]
fn a_full_queue_refuses() {
    let mut bench = Bench::new(64, 1);
    bench.engine.limits.max_num_queued_reqs = Some(2);
    bench.submit(0, &prompt(0, 4), 5);
    bench.submit(0, &prompt(0, 4), 5);
    assert_eq!(bench.try_submit(0, &prompt(0, 4), 5).err(), Some(Busy));
    assert_eq!(bench.engine.stats().counters.rejected, 1);
    bench.advance(10_000);
    assert!(bench.try_submit(10_000, &prompt(0, 4), 5).is_ok());
}

#[test]
fn usage_counts_blocks_in_use_not_blocks_cached() {
    let mut bench = Bench::new(9, 8);
    bench.submit(0, &prompt(0, 16), 1);
    assert!((bench.engine.gauges().kv_cache_usage - 0.5).abs() < 1e-9);
    bench.advance(500);
    let gauges = bench.engine.gauges();
    assert!(gauges.kv_cache_usage.abs() < 1e-9);
    assert_eq!(gauges.cached_blocks, 4);
}

#[test]
fn reset_forgets_everything_once_idle() {
    let mut bench = Bench::new(64, 8);
    bench.submit(0, &prompt(0, 16), 1);
    assert!(!bench.engine.reset_prefix_cache());
    bench.advance(500);
    assert!(bench.engine.reset_prefix_cache());
    assert_eq!(bench.submit(600, &prompt(0, 16), 1).cached(), Some(0));
}

#[test]
fn an_adapter_is_loaded_with_the_first_prefill_that_needs_it() {
    let mut bench = Bench::new(64, 8);
    bench.adapter = Some("a");
    let mut first = bench.submit(0, &prompt(0, 20), 1);
    // 160 ms for the adapter, 120 ms for the prompt.
    bench.advance(279);
    assert_eq!(first.answer().0.len(), 0);
    bench.advance(280);
    assert_eq!(first.answer().0.len(), 1);
    let mut second = bench.submit(1000, &prompt(100, 20), 1);
    bench.advance(1120);
    assert_eq!(second.answer().0.len(), 1);
    assert_eq!(bench.engine.stats().counters.adapter_loads, 1);
}

#[test]
fn a_request_without_a_slot_for_its_adapter_lets_others_by() {
    let mut bench = Bench::new(64, 8);
    bench.adapter = Some("a");
    bench.submit(0, &prompt(0, 20), 50);
    bench.adapter = Some("b");
    let mut deferred = bench.submit(0, &prompt(100, 20), 1);
    bench.adapter = None;
    let mut base = bench.submit(0, &prompt(200, 20), 1);
    assert_eq!(bench.engine.gauges().num_requests_deferred, 1);
    bench.advance(500);
    assert_eq!((base.answer().0.len(), deferred.cached()), (1, None));
    // The first one's 50 tokens end at 280 + 490 ms.
    bench.advance(770);
    assert_eq!(deferred.cached(), Some(0));
    bench.advance(2000);
    assert_eq!(bench.engine.gauges().num_requests_deferred, 0);
    assert_eq!(bench.engine.stats().counters.adapter_loads, 2);
}

#[test]
fn a_stuck_engine_takes_requests_and_goes_on_where_it_was() {
    let mut bench = Bench::new(64, 8);
    let mut first = bench.submit(0, &prompt(0, 20), 5);
    bench.advance(125);
    assert_eq!(first.answer().0.len(), 1);
    bench.engine.set_stuck(bench.at(125), true);
    let mut second = bench.submit(300, &prompt(100, 20), 1);
    let mut third = bench.submit(300, &prompt(200, 20), 1);
    bench.advance(5000);
    assert_eq!((bench.load().0, bench.load().1), (2, 1));
    assert_eq!((first.answer().0.len(), third.cached()), (0, None));
    assert_eq!(bench.engine.next_event(), None);

    bench.engine.set_stuck(bench.at(10_125), false);
    bench.advance(10_129);
    assert_eq!(first.answer().0.len(), 0);
    bench.advance(10_130);
    assert_eq!(first.answer().0.len(), 1);
    bench.advance(10_245);
    assert_eq!(second.answer().0.len(), 1);
}

#[test]
fn the_outlook_counts_what_is_ahead_and_what_will_be_cached_by_then() {
    let mut bench = Bench::new(64, 8);
    let first = prompt(0, 40);
    let _first = bench.submit(0, &first, 1);
    let _second = bench.submit(10, &prompt(1_000, 20), 1);
    let outlook = |bench: &mut Bench, at, prompt: &[Token]| {
        let mut chain = Chain::new(&CacheScope::default(), BLOCK);
        let hashes = chain.extend(prompt).to_vec();
        let outlook = bench.engine.outlook(bench.at(at), &hashes, prompt.len());
        (outlook.wait.as_millis(), outlook.prefill.as_millis())
    };
    // 90 ms of the first prefill are left, then 120 ms of the second.
    assert_eq!(outlook(&mut bench, 50, &prompt(9_000, 12)), (210, 112));
    // The first one's 40 tokens are not cached yet and will be.
    assert_eq!(outlook(&mut bench, 50, &prompt(0, 48)), (210, 108));
    assert_eq!(outlook(&mut bench, 500, &prompt(0, 48)), (0, 108));
    assert_eq!(outlook(&mut bench, 500, &prompt(0, 40)), (0, 104));
}
