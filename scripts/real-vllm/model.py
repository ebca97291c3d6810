"""Writes a model folder with random weights to come, a tokenizer learned from Python's own library: model.py FOLDER"""
import glob
import json
import os
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=4096,
    special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train(sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py")), trainer)
tokenizer.save(str(out / "tokenizer.json"))
template = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
vocabulary = (tokenizer.get_vocab_size() + 63) // 64 * 64
files = {
    "tokenizer_config.json": {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048, "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "clean_up_tokenization_spaces": False, "chat_template": template,
    },
    "config.json": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "hidden_act": "silu",
        "max_position_embeddings": 2048, "initializer_range": 0.02, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "vocab_size": vocabulary, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False,
    },
    "generation_config.json": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0},
}
for name, content in files.items():
    (out / name).write_text(json.dumps(content, indent=1))
