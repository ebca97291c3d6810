//! The top level of a body: where the values are that any API reads.

use super::encoder::{Encoder, Field};
use super::json::{Fields, Kind, Reader, Stop};

macro_rules! keys {
    ($($variant:ident $name:literal,)*) => {
        /// A key some API reads at the top level.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Key {
            $($variant,)*
        }

        const NAMES: [&[u8]; [$(Key::$variant),*].len()] = [$($name.as_bytes()),*];
    };
}

keys! {
    Model "model",
    CacheSalt "cache_salt",
    ExtraSalt "extra_key",
    Prompt "prompt",
    Messages "messages",
    Input "input",
    System "system",
    Instructions "instructions",
    Text "text",
    TokenIds "token_ids",
    InputIds "input_ids",
    Tools "tools",
    ReasoningEffort "reasoning_effort",
    Reasoning "reasoning",
    Thinking "thinking",
    ChatTemplate "chat_template",
    ChatTemplateArguments "chat_template_kwargs",
    Documents "documents",
    AddSpecialTokens "add_special_tokens",
    MediaArguments "mm_processor_kwargs",
    TruncatePrompt "truncate_prompt_tokens",
    LoraPath "lora_path",
    Features "features",
    PromptEmbeds "prompt_embeds",
    Conversation "conversation",
    PreviousResponse "previous_response_id",
    ImageData "image_data",
    AudioData "audio_data",
    VideoData "video_data",
    Query "query",
    Queries "queries",
    Items "items",
    Text1 "text_1",
    Text2 "text_2",
    TransferParams "kv_transfer_params",
    BootstrapHost "bootstrap_host",
    BootstrapPort "bootstrap_port",
    BootstrapRoom "bootstrap_room",
}

/// Where a body's values begin; of equal keys, the last one's.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopLevel(Fields<{ NAMES.len() }>);

impl TopLevel {
    /// Passes over the whole body, once.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Stop> {
        reader.skip_byte_order_mark();
        if reader.kind()? != Kind::Object {
            reader.skip()?;
            reader.expect_end()?;
            return Err(Stop::UnknownShape);
        }
        let fields = reader.fields(&NAMES)?;
        reader.expect_end()?;
        Ok(Self(fields))
    }

    /// Where the value of `key` begins.
    pub(super) fn get(&self, key: Key) -> Option<usize> {
        self.0.get(key as usize)
    }

    /// Goes to the value of `key`, if there is one.
    pub(super) fn find(&self, key: Key, reader: &mut Reader<'_>) -> bool {
        let value = self.get(key);
        if let Some(value) = value {
            reader.seek(value);
        }
        value.is_some()
    }

    /// Records the values of those of `heads` that are there. One that the body was cut off in says
    /// as little as one that was not there.
    pub(super) fn record(
        &self,
        heads: &[(Key, Field)],
        reader: &mut Reader<'_>,
        encoder: &mut Encoder<'_>,
    ) -> Result<(), Stop> {
        for &(key, field) in heads {
            if !self.find(key, reader) {
                continue;
            }
            match encoder.record(field, reader) {
                Err(Stop::CutOff) => {}
                other => other?,
            }
        }
        Ok(())
    }
}
