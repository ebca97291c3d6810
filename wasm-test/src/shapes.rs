//! The shapes of requests that are read: the README's table, and bodies that hold it to the code.

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The API's path.
    pub path: &'static str,
    /// What a body of that API may hold.
    pub shape: &'static str,
    /// What of it is hashed, and how.
    pub hashed: &'static str,
    /// A body of the shape.
    pub body: &'static str,
    /// Bodies that must be hashed as it is.
    pub same: &'static [&'static str],
    /// Bodies that must not.
    pub other: &'static [&'static str],
}

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Every shape, API by API.
pub const SHAPES: &[Shape] = &[
    Shape {
        path: COMPLETIONS,
        shape: "`prompt`: a string",
        hashed: "its text",
        body: r#"{"model":"m","prompt":"a b"}"#,
        same: &[
            r#"{"prompt":"\u0061 b","temperature":1,"model":"m","unknown":{"prompt":"x"}}"#,
            r#"{"prompt":"x","prompt":"a b","model":"m"}"#,
        ],
        other: &[
            r#"{"model":"m","prompt":"a  b"}"#,
            r#"{"model":"n","prompt":"a b"}"#,
        ],
    },
    Shape {
        path: COMPLETIONS,
        shape: "`prompt`: token ids",
        hashed: "the ids, four bytes each",
        body: r#"{"model":"m","prompt":[1,2,3]}"#,
        same: &[r#"{"model":"m","prompt":[ 1, 2 ,3 ]}"#],
        other: &[
            r#"{"model":"m","prompt":[1,3,2]}"#,
            r#"{"model":"m","prompt":[[1],[2,3]]}"#,
            r#"{"model":"m","prompt":"1,2,3"}"#,
        ],
    },
    Shape {
        path: COMPLETIONS,
        shape: "`prompt`: a list of strings or of lists of token ids",
        hashed: "each a chain of its own",
        body: r#"{"model":"m","prompt":["a",[1,2]]}"#,
        same: &[r#"{"model":"m","prompt":["a",[1,2]],"n":2}"#],
        other: &[
            r#"{"model":"m","prompt":[[1,2],"a"]}"#,
            r#"{"model":"m","prompt":["a"]}"#,
        ],
    },
    Shape {
        path: COMPLETIONS,
        shape: "`add_special_tokens`, `truncate_prompt_tokens`, `mm_processor_kwargs`, `prompt_embeds`",
        hashed: "one digest of them before each prompt",
        body: r#"{"model":"m","prompt":"a","add_special_tokens":false}"#,
        same: &[r#"{"add_special_tokens":false,"prompt":"a","echo":true,"model":"m"}"#],
        other: &[
            r#"{"model":"m","prompt":"a"}"#,
            r#"{"model":"m","prompt":"a","truncate_prompt_tokens":5}"#,
            r#"{"model":"m","prompt":"a","prompt_embeds":"QQ=="}"#,
        ],
    },
    Shape {
        path: CHAT,
        shape: "`messages`: role and `content`, a string, null, or parts of type `text`",
        hashed: "role and text of each, without separators",
        body: r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null}]}"#,
        same: &[
            r#"{"messages":[{"content":[{"type":"text","text":"a"}],"role":"user"},{"role":"assistant"}],"model":"m"}"#,
            // The one thing that llm-d's scheme cannot tell.
            r#"{"model":"m","messages":[{"role":"user","content":"aassistant"}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"assistant","content":null},{"role":"user","content":"a"}]}"#,
            r#"{"model":"m","messages":[{"role":"developer","content":"a"}]}"#,
        ],
    },
    Shape {
        path: CHAT,
        shape: "`tool_calls`, `function_call`, `tool_call_id`, `refusal`, `name`, `reasoning`, `reasoning_content`",
        hashed: "a record of each one's JSON behind the message's content",
        body: r#"{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}]}"#,
        same: &[
            r#"{"model":"m","messages":[{"tool_calls":[{"id": "1", "function": {"name":"f","arguments":"{}"}}],"role":"assistant"}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{ }"}}]}]}"#,
            r#"{"model":"m","messages":[{"role":"assistant","content":null,"refusal":"no"}]}"#,
            r#"{"model":"m","messages":[{"role":"assistant","content":null,"name":"no"}]}"#,
            r#"{"model":"m","messages":[{"role":"assistant","content":null}]}"#,
        ],
    },
    Shape {
        path: CHAT,
        shape: "parts of images, audio, video",
        hashed: "placeholders of the content's hash, as many as llm-d estimates tokens, at most 16384",
        body: r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a"}}]}]}"#,
        same: &[
            r#"{"model":"m","messages":[{"role":"user","content":[{"image_url":{"url":"https:\/\/a"},"type":"image_url"}]}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://b"}}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://a"}}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"QQ==","format":"wav"}}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"https://a"}]}"#,
        ],
    },
    Shape {
        path: CHAT,
        shape: "parts of any other type, content of any other kind",
        hashed: "a record of its JSON",
        body: r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"a"}}]}]}"#,
        same: &[
            r#"{"model":"m","messages":[{"role":"user","content":[ {"type": "file", "file": {"file_id":"a"}} ]}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"b"}}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":{"type":"file","file":{"file_id":"a"}}}]}"#,
        ],
    },
    Shape {
        path: CHAT,
        shape: "`tools`, `reasoning_effort`, `reasoning`, `chat_template`, `chat_template_kwargs`, `documents`, \
                `add_special_tokens`, `mm_processor_kwargs`, `truncate_prompt_tokens`",
        hashed: "a record of each one's JSON before the messages",
        body: r#"{"model":"m","messages":[{"role":"user","content":"a"}],"reasoning_effort":"low"}"#,
        same: &[
            r#"{"reasoning_effort":"low","model":"m","tools":[],"chat_template_kwargs":null,"messages":[{"role":"user","content":"a"}]}"#,
            r#"{"tool_choice":"auto","response_format":{},"reasoning_effort":"low","model":"m","messages":[{"role":"user","content":"a"}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"reasoning_effort":"high"}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","tools":[{}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"reasoning_effort":"low","chat_template_kwargs":{"x":1}}"#,
        ],
    },
    Shape {
        path: RESPONSES,
        shape: "`instructions`, and `input`: a string or messages",
        hashed: "as the chat that the server makes of it",
        body: r#"{"model":"m","instructions":"s","input":"a"}"#,
        same: &[
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}],"instructions":"s","store":false}"#,
            r#"{"model":"m","input":[{"type":"message","role":"system","content":"s"},{"role":"user","content":"a"}]}"#,
        ],
        other: &[
            r#"{"model":"m","input":"a"}"#,
            r#"{"model":"m","instructions":"t","input":"a"}"#,
        ],
    },
    Shape {
        path: RESPONSES,
        shape: "other items; `tools`, `reasoning`, `prompt`, `conversation`, `truncate_prompt_tokens`",
        hashed: "a record of each one's JSON, items in their places, the rest before",
        body: r#"{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"4"}]}"#,
        same: &[
            r#"{"model":"m","input":[{"type":"function_call_output","call_id":"c", "output":"4"}],"temperature":0}"#,
        ],
        other: &[
            r#"{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"5"}]}"#,
            r#"{"model":"m","tools":[{}],"input":[{"type":"function_call_output","call_id":"c","output":"4"}]}"#,
        ],
    },
    Shape {
        path: RESPONSES,
        shape: "`previous_response_id`",
        hashed: "the id alone: the request goes to the server that gave that response, which holds the conversation",
        body: r#"{"model":"m","previous_response_id":"resp_1","input":"a"}"#,
        same: &[r#"{"model":"m","input":"b","tools":[{}],"previous_response_id":"resp_1"}"#],
        other: &[r#"{"model":"m","previous_response_id":"resp_2","input":"a"}"#],
    },
    Shape {
        path: "/v1/embeddings",
        shape: "`input` as a completion's `prompt`, or `messages` as a chat's; also `/pooling`, `/classify`",
        hashed: "as there",
        body: r#"{"model":"m","input":["a","b"]}"#,
        same: &[r#"{"model":"m","input":["a","b"],"encoding_format":"float"}"#],
        other: &[
            r#"{"model":"m","input":["b","a"]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
        ],
    },
    Shape {
        path: "/rerank",
        shape: "`query`, `queries`, `text_1`, `text_2`, `documents`, `items`; also `/score`",
        hashed: "one chain of a record of each",
        body: r#"{"model":"m","query":"q","documents":["a","b"]}"#,
        same: &[r#"{"model":"m","documents":["a", "b"],"query":"q","top_n":1}"#],
        other: &[
            r#"{"model":"m","query":"q","documents":["b","a"]}"#,
            r#"{"model":"m","query":"r","documents":["a","b"]}"#,
        ],
    },
    Shape {
        path: MESSAGES,
        shape: "`system`, a string or blocks, and `messages` of text",
        hashed: "as the chat that the server makes of it, without a block that is a billing header",
        body: r#"{"model":"m","system":"s","messages":[{"role":"user","content":"a"}]}"#,
        same: &[
            r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
            r#"{"model":"m","system":"t","messages":[{"role":"user","content":"a"}]}"#,
        ],
    },
    Shape {
        path: MESSAGES,
        shape: "blocks of tool use, tool results, thinking, images; `tools`, `thinking`, `chat_template_kwargs`",
        hashed: "records and placeholders as in a chat, without `cache_control` and signatures",
        body: r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"4"}]}]}"#,
        same: &[
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"4"}],"cache_control":{}}]}]}"#,
        ],
        other: &[
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"5"}]}]}"#,
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]}"#,
            r#"{"model":"m","thinking":{"type":"enabled"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"4"}]}]}"#,
        ],
    },
    Shape {
        path: "/v1/messages/count_tokens",
        shape: "as `/v1/messages`",
        hashed: "as there, and not recorded: nothing is computed",
        body: r#"{"model":"m","system":"s","messages":[{"role":"user","content":"a"}]}"#,
        same: &[
            r#"{"model":"m","messages":[{"role":"user","content":"a"}],"system":[{"type":"text","text":"s"}]}"#,
        ],
        other: &[r#"{"model":"m","system":"s","messages":[{"role":"user","content":"b"}]}"#],
    },
    Shape {
        path: "/inference/v1/generate",
        shape: "`token_ids`, `features`",
        hashed: "the ids, behind a digest of the features",
        body: r#"{"model":"m","token_ids":[1,2],"sampling_params":{}}"#,
        same: &[
            r#"{"model":"m","sampling_params":{"max_tokens":3},"token_ids":[1,2],"features":null}"#,
        ],
        other: &[
            r#"{"model":"m","token_ids":[2,1]}"#,
            r#"{"model":"m","token_ids":[1,2],"features":{"mm_hashes":{"image":["h"]}}}"#,
        ],
    },
    Shape {
        path: "/generate",
        shape: "SGLang's `text` or `input_ids`, one or a list; `lora_path`, `image_data`, `audio_data`, `video_data`; \
                `extra_key` is the cache salt",
        hashed: "as a completion's prompts, each behind a digest of the rest",
        body: r#"{"text":"a","lora_path":"l","extra_key":"k"}"#,
        same: &[
            r#"{"extra_key":"k","lora_path":"l","text":"a","sampling_params":{"temperature":0}}"#,
        ],
        other: &[
            r#"{"text":"a","extra_key":"k"}"#,
            r#"{"text":"a","lora_path":"l","extra_key":"j"}"#,
            r#"{"text":"a","lora_path":"l","extra_key":"k","image_data":"https://a"}"#,
            r#"{"input_ids":[1],"lora_path":"l","extra_key":"k"}"#,
        ],
    },
];
