use super::*;

const UNBOUNDED: u32 = u32::MAX;

fn tokens(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn hashes(seed: Seed, block_tokens: u32, bytes: &[u8]) -> Vec<u64> {
    let mut builder = ChainBuilder::new(block_tokens, UNBOUNDED);
    builder.push(bytes);
    numbers(&whole(builder, seed))
}

/// The chain of one whole prompt.
fn whole(mut builder: ChainBuilder, seed: Seed) -> Chain {
    builder.end_prompt();
    builder.finish().chain(seed)
}

fn numbers(chain: &Chain) -> Vec<u64> {
    chain.blocks.iter().map(|block| block.0).collect()
}

/// Model, prompt bytes, tokens a block, seed, hashes.
type Vector = (&'static str, Vec<u8>, u32, u64, &'static [u64]);

/// llm-d's golden vectors for its approximate prefix producer (XXH64, no salt).
fn golden_vectors() -> [Vector; 8] {
    let one_to_ten: Vec<u32> = (1..=10).collect();
    let model: u64 = 0xe1ee_ca7a_f8e0_b529;
    let m: u64 = 0xba2e_5670_83a2_b2e8;
    let chat = b"systemYou are a helpful assistant.userHello!".to_vec();
    [
        (
            "model",
            tokens(&one_to_ten),
            4,
            model,
            &[
                0x2180_99d0_a830_1208,
                0xa5b3_3e7f_56eb_f885,
                0xa2aa_1c66_66cb_1c34,
            ],
        ),
        (
            "model",
            tokens(&[1, 2, 3, 4]),
            2,
            model,
            &[0xffdc_a57d_2290_6a0b, 0x9f53_fe56_00b4_b914],
        ),
        ("model", tokens(&[3, 4]), 2, model, &[0xe3c1_1834_59da_d609]),
        (
            "test-model1",
            tokens(&[1, 2]),
            1,
            0x55b9_ce91_84dd_8509,
            &[0x9b14_876e_2748_6c74, 0xb5ac_6edc_98e7_46e9],
        ),
        (
            "m",
            tokens(&[1, 2, 3, 4]),
            2,
            m,
            &[0xbdea_da20_7194_3583, 0x7aac_fb53_1261_b051],
        ),
        (
            "m",
            b"hello world".to_vec(),
            64,
            m,
            &[0xf661_5699_d17c_b474],
        ),
        ("m", chat, 64, m, &[0xf2c3_b5f4_9e9a_16c1]),
        (
            "m",
            vec![b'a'; 1024],
            64,
            m,
            &[
                0x3f61_340d_0ed0_82d6,
                0x04e6_1d70_7a6f_b751,
                0x1dcc_2eab_4371_c6cf,
                0x40e1_fedf_948d_29f1,
            ],
        ),
    ]
}

#[test]
fn chains_equal_llm_d_golden_vectors() {
    for (model, bytes, block_tokens, seed, expected) in golden_vectors() {
        assert_eq!(Seed::new(model, None), Seed(seed), "seed of {model}");
        assert_eq!(
            hashes(Seed(seed), block_tokens, &bytes),
            expected,
            "{model}, {bytes:?}"
        );
    }
}

#[test]
fn model_and_salt_do_not_run_into_each_other() {
    let split = [("ab", "c"), ("a", "bc"), ("abc", "")];
    let seeds: Vec<Seed> = split
        .iter()
        .map(|(model, salt)| Seed::new(model, Some(salt.as_bytes())))
        .collect();
    assert_ne!(seeds[0], seeds[1]);
    assert_ne!(seeds[1], seeds[2]);
    assert_ne!(seeds[2], Seed::new("abc", None));
    // Our own vector: XXH64("m" ‖ 0xFF ‖ "salt").
    assert_eq!(Seed::new("m", Some(b"salt")), Seed(xxh64(b"m\xFFsalt", 0)));
}

#[test]
fn pieces_hash_like_the_whole() {
    let text: Vec<u8> = (0..2_000_u32)
        .map(|n| u8::try_from(n % 251).unwrap())
        .collect();
    let seed = Seed::new("m", None);
    let whole = hashes(seed, 16, &text);
    for size in [1, 3, 63, 64, 65, 127, 128, 129, 1_999] {
        let mut builder = ChainBuilder::new(16, UNBOUNDED);
        for piece in text.chunks(size) {
            builder.push(piece);
            builder.push(b"");
        }
        assert_eq!(
            numbers(&self::whole(builder, seed)),
            whole,
            "pieces of {size}"
        );
    }
}

#[test]
fn order_of_blocks_matters() {
    let (a, b) = ([b'a'; 64], [b'b'; 64]);
    let seed = Seed::new("m", None);
    let ab = hashes(seed, 16, &[a, b].concat());
    let ba = hashes(seed, 16, &[b, a].concat());
    assert!(ab.iter().all(|hash| !ba.contains(hash)));
}

#[test]
fn hashing_stops_after_the_block_limit() {
    let seed = Seed::new("m", None);
    let mut builder = ChainBuilder::new(16, 2);
    builder.push(&[b'x'; 1_000]);
    assert!(builder.is_full());
    assert_eq!(whole(builder, seed).blocks.len(), 2);
    let mut by_pieces = ChainBuilder::new(16, 2);
    for _ in 0..100 {
        by_pieces.push(&[b'x'; 10]);
    }
    assert_eq!(whole(by_pieces, seed).blocks.len(), 2);
    let mut prompts = ChainBuilder::new(16, 2);
    for _ in 0..100 {
        prompts.push(b"x");
        prompts.end_prompt();
    }
    let chain = prompts.finish().chain(seed);
    assert_eq!((chain.blocks.len(), chain.further), (2, vec![1]));
}

#[test]
fn a_cut_off_prompt_keeps_whole_blocks_only() {
    let seed = Seed::new("m", None);
    let mut cut = ChainBuilder::new(16, UNBOUNDED);
    cut.push(&[b'x'; 150]);
    let cut = cut.finish().chain(seed).blocks;
    assert_eq!(cut.len(), 2);
    let mut longer = ChainBuilder::new(16, UNBOUNDED);
    longer.push(&[b'x'; 300]);
    assert_eq!(cut[..], whole(longer, seed).blocks[..2]);
}

#[test]
fn each_prompt_of_a_list_is_a_chain_of_its_own() {
    let seed = Seed::new("m", None);
    let texts = [&[b'a'; 100][..], b"", &[b'b'; 64], b"c", &[b'a'; 64]];
    let mut builder = ChainBuilder::new(16, UNBOUNDED);
    for text in texts {
        builder.push(text);
        builder.end_prompt();
    }
    // Cut off in a last one.
    builder.push(&[b'd'; 70]);
    let chain = builder.finish().chain(seed);
    let prompts: Vec<Vec<u64>> = chain
        .prompts()
        .map(|prompt| prompt.iter().map(|block| block.0).collect())
        .collect();
    let alone = |text: &[u8]| hashes(seed, 16, text);
    let expected = [
        alone(texts[0]),
        alone(texts[2]),
        alone(texts[3]),
        alone(texts[4]),
        alone(&[b'd'; 64]),
    ];
    assert_eq!(prompts, expected);
    assert_eq!(prompts[0][0], prompts[3][0], "equal beginnings are equal");
    assert_eq!(chain.anchor, Some(BlockHash(prompts[0][1])));
}

#[test]
fn no_prompt_has_no_blocks() {
    let chain = ChainBuilder::new(16, UNBOUNDED)
        .finish()
        .chain(Seed::new("m", None));
    assert_eq!(chain, Chain::default());
    assert_eq!(chain.prompts().map(<[_]>::len).sum::<usize>(), 0);
    assert_eq!(Contents::default().conversation(), None);
}

fn conversation(later: &[u8]) -> Contents {
    let mut builder = ChainBuilder::new(16, UNBOUNDED);
    builder.push(b"systemBe brief.");
    builder.push(b"userWhat is a block?");
    builder.mark_anchor();
    builder.push(later);
    builder.mark_anchor();
    builder.end_prompt();
    builder.finish()
}

#[test]
fn the_anchor_stays_where_the_first_user_message_ends() {
    let seed = Seed::new("m", None);
    let anchor = |later: &[u8]| conversation(later).chain(seed).anchor;
    let alone = hashes(seed, 16, b"systemBe brief.userWhat is a block?");
    assert_eq!(anchor(b""), Some(BlockHash(alone[0])));
    assert_eq!(anchor(b""), anchor(&[b'y'; 500]));
}

#[test]
fn a_conversation_is_the_same_for_every_model() {
    let mine = conversation(b"").conversation();
    assert!(mine.is_some());
    assert_eq!(mine, conversation(&[b'y'; 500]).conversation());
    let models = ["a", "b"].map(|model| conversation(b"").chain(Seed::new(model, None)).anchor);
    assert_ne!(models[0], models[1]);
}

#[test]
fn without_a_user_message_the_anchor_is_the_sixteenth_block_at_most() {
    let chain = |bytes: usize| {
        let mut builder = ChainBuilder::new(16, UNBOUNDED);
        builder.push(&vec![b'x'; bytes]);
        whole(builder, Seed::new("m", None))
    };
    assert_eq!(chain(0).anchor, None);
    assert_eq!(chain(64 * 3).anchor, chain(64 * 3).blocks.get(2).copied());
    assert_eq!(
        chain(64 * 40).anchor,
        chain(64 * 40).blocks.get(15).copied()
    );
}

#[test]
fn what_was_appended_since_a_mark_can_be_taken_back() {
    let seed = Seed::new("m", None);
    for before in [0, 10, 64, 70, 200] {
        for after in [0, 10, 64, 500] {
            let mut builder = ChainBuilder::new(16, UNBOUNDED);
            builder.push(&vec![b'a'; before]);
            builder.mark();
            builder.push(b"kept");
            builder.mark();
            builder.push(&vec![b'x'; after]);
            builder.end_mark(false);
            builder.end_mark(true);
            builder.mark();
            builder.push(&vec![b'y'; after]);
            builder.mark();
            builder.push(b"z");
            builder.end_mark(true);
            builder.end_mark(false);
            builder.push(&[b'b'; 100]);
            let text = [&vec![b'a'; before], &b"kept"[..], &[b'b'; 100]].concat();
            assert_eq!(
                numbers(&whole(builder, seed)),
                hashes(seed, 16, &text),
                "{before} {after}"
            );
        }
    }
}

#[test]
fn a_chain_knows_how_many_bytes_it_was_cut_from() {
    let mut builder = ChainBuilder::new(16, u32::MAX);
    for bytes in [64, 100, 1] {
        builder.push(&vec![b'x'; bytes]);
        builder.end_prompt();
    }
    builder.mark();
    builder.push(&[b'y'; 500]);
    builder.end_mark(false);
    assert_eq!(builder.finish().chain(Seed::default()).bytes, 165);
    // Of what is beyond the limit nothing is known.
    let mut builder = ChainBuilder::new(16, 2);
    builder.push(&[b'x'; 300]);
    builder.end_prompt();
    assert_eq!(builder.finish().chain(Seed::default()).bytes, 128);
}
