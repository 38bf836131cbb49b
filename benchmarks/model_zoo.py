"""Models of published widths, with few layers and random weights: those of `transformers` where it has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]
Made = tuple[nn.Module, Tensors]
"""A model, and the arguments of a call to it."""


def llama(small: bool) -> Made:
    """Two layers of Llama-3-8B, one sequence of 2048 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (64, 160, 4, 2, 16, 300) if small else (4096, 14336, 32, 8, 2048, 128256)
    width, inner, heads, kv_heads, tokens, words = sizes
    config = LlamaConfig(
        hidden_size=width, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=words, use_cache=False, rope_theta=500000.0,
    )  # fmt: skip
    return LlamaForCausalLM(config), _words(1, tokens, words)


def qwen_moe(small: bool) -> Made:
    """Two layers of Qwen3-30B-A3B: 128 experts, eight for each token."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = (64, 96, 4, 2, 8, 2, 16, 300, 16) if small else (2048, 768, 32, 4, 128, 8, 1024, 151936, 128)
    width, inner, heads, kv_heads, experts, taken, tokens, words, head = sizes
    config = Qwen3MoeConfig(
        hidden_size=width, moe_intermediate_size=inner, intermediate_size=3 * width, num_hidden_layers=2,
        num_attention_heads=heads, num_key_value_heads=kv_heads, num_experts=experts, num_experts_per_tok=taken,
        vocab_size=words, head_dim=head, use_cache=False, norm_topk_prob=True,
    )  # fmt: skip
    return Qwen3MoeForCausalLM(config), _words(1, tokens, words)


def bert(small: bool) -> Made:
    """Four layers of BERT-large, 16 sequences of 512 tokens."""
    from transformers import BertConfig, BertModel

    width, heads, batch, tokens, words = (64, 4, 2, 16, 300) if small else (1024, 16, 16, 512, 30522)
    config = BertConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=heads, intermediate_size=4 * width,
        vocab_size=words, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertModel(config), _words(batch, tokens, words)


def whisper(small: bool) -> Made:
    """Two layers each of the encoder and decoder of Whisper-large, two pieces of 30 seconds."""
    from transformers import WhisperConfig, WhisperModel

    width, heads, frames, tokens, words = (64, 4, 40, 8, 300) if small else (1280, 20, 3000, 128, 51866)
    config = WhisperConfig(
        d_model=width, encoder_layers=2, decoder_layers=2, encoder_attention_heads=heads, vocab_size=words,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, num_mel_bins=80,
        max_source_positions=frames // 2, use_cache=False, pad_token_id=1, bos_token_id=1, eos_token_id=1,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    words_in = _words(2, tokens, words)["input_ids"]
    return WhisperModel(config), {"input_features": torch.randn(2, 80, frames), "decoder_input_ids": words_in}


def vit(small: bool) -> Made:
    """Four layers of ViT-large, 64 images."""
    from transformers import ViTConfig, ViTModel

    width, heads, batch, side = (64, 4, 2, 32) if small else (1024, 16, 64, 224)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=4, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=side, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTModel(config), {"pixel_values": torch.randn(batch, 3, side, side)}


def convnext(small: bool) -> Made:
    """ConvNeXt-base with one block in each stage, 32 images."""
    from transformers import ConvNextConfig, ConvNextModel

    widths, batch, side = ([16, 32, 64, 128], 2, 64) if small else ([128, 256, 512, 1024], 32, 224)
    return ConvNextModel(ConvNextConfig(hidden_sizes=widths, depths=[1, 1, 1, 1])), {
        "pixel_values": torch.randn(batch, 3, side, side)
    }


def resnet(small: bool) -> Made:
    """ResNet-50 with one block in each stage, 64 images."""
    from transformers import ResNetConfig, ResNetModel

    stem, widths, batch, side = (16, [32, 64], 2, 32) if small else (64, [256, 512, 1024, 2048], 64, 224)
    config = ResNetConfig(embedding_size=stem, hidden_sizes=widths, depths=[1] * len(widths))
    return ResNetModel(config), {"pixel_values": torch.randn(batch, 3, side, side)}


def swin(small: bool) -> Made:
    """Swin-base with one pair of blocks in each stage, 32 images."""
    from transformers import SwinConfig, SwinModel

    width, heads, batch, side = (16, [1, 2, 4, 8], 2, 64) if small else (128, [4, 8, 16, 32], 32, 224)
    config = SwinConfig(
        embed_dim=width, depths=[2, 2, 2, 2], num_heads=heads, image_size=side, window_size=2 if small else 7,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, drop_path_rate=0.0,
    )  # fmt: skip
    return SwinModel(config), {"pixel_values": torch.randn(batch, 3, side, side)}


def gpt(small: bool) -> Made:
    """Four layers of GPT-2-large, eight sequences of 1024 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    width, heads, batch, tokens, words = (64, 4, 2, 16, 300) if small else (1280, 20, 8, 1024, 50257)
    config = GPT2Config(
        n_embd=width, n_head=heads, n_layer=4, n_positions=tokens, vocab_size=words, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), _words(batch, tokens, words)


def mamba(small: bool) -> Made:
    """Two layers of Mamba-790m, a sequence of 64 tokens: PyTorch traces each step of the scan by itself."""
    from transformers import MambaConfig, MambaModel

    width, tokens, words = (32, 8, 300) if small else (1536, 64, 50280)
    config = MambaConfig(hidden_size=width, num_hidden_layers=2, vocab_size=words, use_cache=False)
    return MambaModel(config), _words(1, tokens, words)


def unet(small: bool) -> Made:
    """A U-Net of three levels with group norms and skip connections, eight images."""
    width, batch, side = (8, 1, 16) if small else (64, 8, 128)
    return UNet(width), {"x": torch.randn(batch, 3, side, side)}


class UNet(nn.Module):
    """A U-Net with `width` channels on the first level and twice as many on each further level."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = _block(3, width)
        self.down = nn.ModuleList([_block(width << i, width << i + 1) for i in range(2)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(width << i + 1, width << i, 2, 2) for i in (1, 0)])
        self.after = nn.ModuleList([_block(width << i + 1, width << i) for i in (1, 0)])
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images of the same size."""
        levels = [self.first(x)]
        for block in self.down:
            levels.append(block(nn.functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for grow, block in zip(self.up, self.after, strict=True):
            x = block(torch.cat([grow(x), levels.pop()], 1))
        return self.last(x)  # type: ignore[no-any-return]


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
    )  # fmt: skip


def _words(batch: int, tokens: int, words: int) -> Tensors:
    return {"input_ids": torch.randint(words, (batch, tokens))}


MODELS: Mapping[str, Callable[[bool], Made]] = {
    make.__name__: make for make in (llama, qwen_moe, bert, whisper, vit, convnext, resnet, swin, gpt, mamba, unet)
}
