# SPDX-License-Identifier: MulanPSL-2.0
"""How much of the chip's peak a training step reaches: model FLOPs utilisation.

    from putils.MFU import VeomniFlopsCounter

    counter = VeomniFlopsCounter(model.config)
    tflops, mfu = counter.estimate_flops(batch_seqlens=[4096, 4096], delta_time=1.5)

FLOPs are those of the products that the model needs, forward and backward (6 for each parameter
and token, 12 for each pair of tokens that attend to one another), not what is recomputed. They are
counted for the tokens that are given, so for one device give its share.
"""

from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _messages
from ._support.chips import PEAKS, device_name, peak_of, peak_tflops

__all__ = ["PEAKS", "VeomniFlopsCounter", "device_name", "peak_of", "peak_tflops"]


class _Tokens(NamedTuple):
    """T: tokens; Q: the sum of the squared lengths, pairs that attend to one another."""

    T: int
    Q: int


def _tokens(seqlens: Sequence[int]) -> _Tokens:
    """ValueError where there is nothing to count."""
    lengths = [int(n) for n in seqlens]
    if min(lengths, default=0) < 0 or not any(lengths):
        raise ValueError("lengths of sequences are above 0")
    return _Tokens(sum(lengths), sum(n * n for n in lengths))


def _head_dim(c: Any) -> int:
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def _attention(c: Any) -> int:
    """Parameters of a layer's four projections: q, k, v and the output."""
    hd = _head_dim(c)
    return c.hidden_size * hd * (2 * c.num_attention_heads + 2 * c.num_key_value_heads)


def _dense_mlp(c: Any) -> int:
    return 3 * c.hidden_size * c.intermediate_size


def _moe_mlp(c: Any) -> int:
    """The router, and the experts that a token goes through."""
    H = c.hidden_size
    return H * c.num_experts + 3 * H * c.moe_intermediate_size * c.num_experts_per_tok


def _embeddings(c: Any) -> int:
    return 2 * c.vocab_size * c.hidden_size


def _transformer(c: Any, mlp: int, tokens: _Tokens) -> int:
    L = c.num_hidden_layers
    P = (mlp + _attention(c)) * L + _embeddings(c)
    return 6 * P * tokens.T + 12 * tokens.Q * _head_dim(c) * c.num_attention_heads * L


def _dense(c: Any, tokens: _Tokens) -> int:
    return _transformer(c, _dense_mlp(c), tokens)


def _moe(c: Any, tokens: _Tokens) -> int:
    return _transformer(c, _moe_mlp(c), tokens)


def _deepseek(c: Any, tokens: _Tokens) -> int:
    """Latent attention; the first layers are dense."""
    H, L, nh = c.hidden_size, c.num_hidden_layers, c.num_attention_heads
    dense_layers = c.first_k_dense_replace
    qh = c.qk_nope_head_dim + c.qk_rope_head_dim
    q = H * nh * qh if c.q_lora_rank is None else (H + nh * qh) * c.q_lora_rank
    attention = (
        q
        + H * (c.kv_lora_rank + c.qk_rope_head_dim)
        + nh * (qh - c.qk_rope_head_dim + c.v_head_dim) * c.kv_lora_rank
        + nh * c.v_head_dim * H
    )
    experts = c.num_experts_per_tok + c.n_shared_experts
    moe = H * c.n_routed_experts + 3 * H * c.moe_intermediate_size * experts
    P = (
        (moe + attention) * (L - dense_layers)
        + (_dense_mlp(c) + attention) * dense_layers
        + _embeddings(c)
    )
    return 6 * P * tokens.T + 12 * tokens.Q * L * qh * nh


def _hybrid(c: Any, tokens: _Tokens) -> int:
    """Every full_attention_interval-th layer attends to all tokens, the others are linear."""
    H, L, hd, nh = c.hidden_size, c.num_hidden_layers, _head_dim(c), c.num_attention_heads
    interval = c.full_attention_interval
    n = L // interval
    full = H * (2 * nh * hd + 2 * c.num_key_value_heads * hd + nh * hd)
    k = c.linear_num_key_heads * c.linear_key_head_dim
    v = c.linear_num_value_heads * c.linear_value_head_dim
    linear = H * (2 * k + 3 * v + 2 * c.linear_num_value_heads)
    linear += c.linear_conv_kernel_dim * (2 * k + v)
    attention = (full + (interval - 1) * linear) * n
    if getattr(c, "num_experts", 0):
        mlp = _moe_mlp(c) + 3 * H * (getattr(c, "shared_expert_intermediate_size", 0) or 0)
    else:
        mlp = _dense_mlp(c)
    state = c.linear_key_head_dim * c.linear_value_head_dim * c.linear_num_value_heads
    return (
        6 * (mlp * L + attention + _embeddings(c)) * tokens.T
        + 12 * tokens.Q * hd * nh * n
        + 15 * state * tokens.T * (L - n)
    )


def _vit_qwen2(c: Any, images: _Tokens) -> int:
    """Of Qwen2-VL (every layer attends to the whole image) and Qwen2.5-VL (most to a window)."""
    is_25 = hasattr(c, "fullatt_block_indexes")
    d = c.hidden_size if is_25 else c.embed_dim
    mlp = c.intermediate_size if is_25 else int(d * c.mlp_ratio)
    out = c.out_hidden_size if is_25 else c.hidden_size
    merged = d * c.spatial_merge_size**2
    P = (d * mlp * (3 if is_25 else 2) + 4 * d * d) * c.depth + (out + merged) * merged
    full = len(c.fullatt_block_indexes) if is_25 else c.depth
    flops = 6 * P * images.T + 12 * images.Q * (d // c.num_heads) * c.num_heads * full
    if full < c.depth:
        # The width is in pixels; a token attends to those of its window.
        window = c.window_size // c.patch_size
        flops += 12 * images.T * window**2 * (d // c.num_heads) * c.num_heads * (c.depth - full)
    return flops


def _vit_qwen3(c: Any, images: _Tokens) -> int:
    d = c.hidden_size
    merged = d * c.spatial_merge_size**2
    patches = d * c.in_channels * c.temporal_patch_size * c.patch_size**2
    mergers = 1 + len(getattr(c, "deepstack_visual_indexes", None) or [])
    P = (2 * d * c.intermediate_size + 4 * d * d) * c.depth
    P += patches + (c.out_hidden_size + merged) * merged * mergers
    return 6 * P * images.T + 12 * images.Q * (d // c.num_heads) * c.num_heads * c.depth


Formula = Callable[[Any, _Tokens], int]


class _Model(NamedTuple):
    text: Formula
    vision: Optional[Formula] = None


# By model_type of the configuration, as transformers writes it.
MODELS: Dict[str, _Model] = {
    "llama": _Model(_dense),
    "qwen2": _Model(_dense),
    "qwen3": _Model(_dense),
    "seed_oss": _Model(_dense),
    "qwen3_moe": _Model(_moe),
    "deepseek_v3": _Model(_deepseek),
    "qwen2_vl": _Model(_dense, _vit_qwen2),
    "qwen2_5_vl": _Model(_dense, _vit_qwen2),
    "qwen3_vl": _Model(_dense, _vit_qwen3),
    "qwen3_vl_moe": _Model(_moe, _vit_qwen3),
    "qwen3_next": _Model(_hybrid),
    "qwen3_5": _Model(_hybrid, _vit_qwen3),
    "qwen3_5_moe": _Model(_hybrid, _vit_qwen3),
}


class VeomniFlopsCounter:
    """Counts the FLOPs of a model by its configuration.

    `config` has the fields that transformers gives it. `peak` is the device's in TFLOPS; without,
    it is looked up when it is needed for the first time.

    >>> VeomniFlopsCounter(model.config, peak=989.5).estimate_flops([4096], delta_time=0.5)
    (412.3, 0.4167)
    """

    def __init__(self, config: Any, peak: Optional[float] = None):
        self.config = config
        self._peak = peak

    @property
    def peak(self) -> float:
        """TFLOPS of the device; 0 if that is not known."""
        if self._peak is None:
            self._peak = peak_tflops()
        return self._peak

    def count_flops(
        self, batch_seqlens: Sequence[int], images_seqlens: Optional[Sequence[int]] = None
    ) -> int:
        """FLOPs of one step, forward and backward; 0, and one warning, for an unknown model, and for
        lengths that are negative, or none above 0.

        >>> VeomniFlopsCounter(config).count_flops([4096, 2048])
        """
        kind = str(getattr(self.config, "model_type", None))
        model = MODELS.get(kind)
        if model is None:
            _messages.warn_once(
                f"no formula for models of type '{kind}': FLOPs are 0. Known: {', '.join(MODELS)}"
            )
            return 0
        try:
            text = getattr(self.config, "text_config", None) or self.config
            flops = model.text(text, _tokens(batch_seqlens))
            if images_seqlens is not None and len(images_seqlens) > 0:
                flops += self._vision(kind, model, _tokens(images_seqlens))
            return flops
        except (AttributeError, TypeError, ValueError, ZeroDivisionError) as why:
            _messages.warn_once(f"FLOPs of a '{kind}' are 0: {_messages.words(why)}")
            return 0

    def _vision(self, kind: str, model: _Model, images: _Tokens) -> int:
        config = getattr(self.config, "vision_config", None)
        if model.vision is None or config is None:
            _messages.warn_once(f"a '{kind}' sees no images: images_seqlens is ignored")
            return 0
        return model.vision(config, images)

    def estimate_flops(
        self,
        batch_seqlens: Sequence[int],
        delta_time: float,
        images_seqlens: Optional[Sequence[int]] = None,
        **kwargs: Any,
    ) -> Tuple[float, float]:
        """(TFLOPS, their part of the peak) of a step with these lengths that took delta_time
        seconds. 0, and one warning, for a model or a chip that is not known.

        >>> tflops, mfu = counter.estimate_flops([4096, 4096], delta_time=1.5)
        """
        for name in kwargs:
            _messages.warn_once(f"estimate_flops() does not know '{name}': it is ignored")
        if not delta_time > 0:
            _messages.warn_once(f"a step cannot take {delta_time} s: TFLOPS are 0", "step time")
            return 0.0, 0.0
        tflops = self.count_flops(batch_seqlens, images_seqlens) / delta_time / 1e12
        return tflops, tflops / self.peak if tflops and self.peak else 0.0
