//! What several prompts of one request have in common before their text.

use xxhash_rust::xxh64::Xxh64;

use super::encoder::{Encoder, Field, PromptSink};
use super::json::{Reader, Stop};
use super::keys::{Key, TopLevel};

/// One number for the values of those of `heads` that are there: every prompt begins with it, and
/// the values themselves, which may be long, are hashed once. `None` where none is there.
pub(super) fn digest(
    body: &TopLevel,
    heads: &[(Key, Field)],
    reader: &mut Reader<'_>,
) -> Result<Option<u64>, Stop> {
    let mut digest = Digest(Xxh64::new(0), false);
    body.record(heads, reader, &mut Encoder::new(&mut digest))?;
    let Digest(hash, holds_any) = digest;
    Ok(holds_any.then(|| hash.digest()))
}

/// A request whose prompt is all in its head.
pub(super) fn alone(head: Option<u64>, encoder: &mut Encoder<'_>) -> Result<(), Stop> {
    let digest = head.ok_or(Stop::UnknownShape)?;
    encoder.record_bytes(Field::Head, &digest.to_le_bytes());
    encoder.end_prompt();
    Ok(())
}

/// Hashes what it is given, and knows whether that was anything.
struct Digest(Xxh64, bool);

impl PromptSink for Digest {
    fn push(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
        self.1 = true;
    }

    fn end_first_user_message(&mut self) {}

    fn end_prompt(&mut self) {}

    fn mark(&mut self) {}

    fn end_mark(&mut self, _: bool) {}

    fn is_full(&self) -> bool {
        false
    }
}
