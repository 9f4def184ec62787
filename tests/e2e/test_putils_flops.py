# SPDX-License-Identifier: MulanPSL-2.0
"""putils.MFU and putils.weight: FLOPs of models, peaks of chips, tensors of safetensors files."""

import json
import os
import sys
import types

import pytest
from putils_package import putils  # noqa: F401

N = types.SimpleNamespace


# --- FLOPs ---

TEXT = dict(
    hidden_size=64, vocab_size=1000, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=128,
)  # fmt: skip
EXPERTS = dict(num_experts=16, moe_intermediate_size=48, num_experts_per_tok=3)
LATENT = dict(
    first_k_dense_replace=1, n_routed_experts=16, n_shared_experts=2, qk_nope_head_dim=24, qk_rope_head_dim=8,
    kv_lora_rank=12, v_head_dim=16, moe_intermediate_size=48, num_experts_per_tok=3,
)  # fmt: skip
LINEAR = dict(
    full_attention_interval=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_num_value_heads=4,
    linear_value_head_dim=8, linear_conv_kernel_dim=4, head_dim=32,
)  # fmt: skip
VIT2 = N(depth=6, num_heads=4, embed_dim=64, hidden_size=96, mlp_ratio=4, spatial_merge_size=2, patch_size=14)
VIT25 = N(depth=6, num_heads=4, hidden_size=64, intermediate_size=100, out_hidden_size=96, spatial_merge_size=2,
          patch_size=14, window_size=112, fullatt_block_indexes=[1, 3])  # fmt: skip
VIT3 = N(depth=6, num_heads=4, hidden_size=64, intermediate_size=100, out_hidden_size=96, spatial_merge_size=2,
         patch_size=16, temporal_patch_size=2, in_channels=3, deepstack_visual_indexes=[1, 2])  # fmt: skip

# Lengths 100 and 50: T = 150, Q = 12500. Images of 100 and 36: T = 136, Q = 11296. By hand, from the
# products of each layer:
DENSE = 6 * ((24576 + 12288) * 8 + 128000) * 150 + 12 * 12500 * 64 * 8
WIDE = 6 * ((24576 + 24576) * 8 + 128000) * 150 + 12 * 12500 * 128 * 8  # head_dim 32
MOE = 6 * ((1024 + 27648 + 12288) * 8 + 128000) * 150 + 12 * 12500 * 64 * 8
# attention: 64*128 (q) + 64*20 + 4*(24+16)*12 + 4*16*64; with a q_lora_rank of 20: (64+128)*20 for q
MLA = 8192 + 1280 + 1920 + 4096
MLA_Q = 3840 + 1280 + 1920 + 4096
DEEP = [6 * ((1024 + 9216 * 5 + a) * 7 + (24576 + a) + 128000) * 150 + 12 * 12500 * 8 * 32 * 4 for a in (MLA, MLA_Q)]
# full: 64*(256+128+128); linear: k=32, v=32: 64*(64+96+8) + 4*(64+32); two full layers of eight
GATED = (32768 + 3 * (10752 + 384)) * 2
STATE = 15 * 16 * 8 * 4 * 150 * 6
HYBRID = [6 * (mlp * 8 + GATED + 128000) * 150 + 12 * 12500 * 128 * 2 + STATE
          for mlp in (24576, 1024 + 27648, 1024 + 27648 + 3 * 64 * 40)]  # fmt: skip
PICTURES2 = 6 * ((64 * 256 * 2 + 16384) * 6 + (96 + 256) * 256) * 136 + 12 * 11296 * 64 * 6
PICTURES25 = 6 * ((64 * 100 * 3 + 16384) * 6 + (96 + 256) * 256) * 136 + 12 * 11296 * 64 * 2 + 12 * 136 * 64 * 64 * 4
PICTURES3 = 6 * ((64 * 100 * 2 + 16384) * 6 + 64 * 3 * 2 * 256 + (96 + 256) * 256 * 3) * 136 + 12 * 11296 * 64 * 6


def config(kind, vision=None, **fields):
    if vision is None:
        return N(model_type=kind, **TEXT, **fields)
    if kind.startswith("qwen2"):
        return N(model_type=kind, vision_config=vision, **TEXT, **fields)
    return N(model_type=kind, vision_config=vision, text_config=N(**TEXT, **fields))


MODELS = [
    *[(config(kind), DENSE, 0) for kind in ("llama", "qwen2", "qwen3", "seed_oss")],
    (config("qwen3", head_dim=32), WIDE, 0),
    (config("qwen3_moe", **EXPERTS), MOE, 0),
    (config("deepseek_v3", q_lora_rank=None, **LATENT), DEEP[0], 0),
    (config("deepseek_v3", q_lora_rank=20, **LATENT), DEEP[1], 0),
    (config("qwen3_next", shared_expert_intermediate_size=40, **EXPERTS, **LINEAR), HYBRID[2], 0),
    (config("qwen3_5", VIT3, **LINEAR), HYBRID[0], PICTURES3),
    (config("qwen3_5_moe", VIT3, **EXPERTS, **LINEAR), HYBRID[1], PICTURES3),
    (config("qwen2_vl", VIT2), DENSE, PICTURES2),
    (config("qwen2_5_vl", VIT25), DENSE, PICTURES25),
    (config("qwen3_vl", VIT3), DENSE, PICTURES3),
    (config("qwen3_vl_moe", VIT3, **EXPERTS), MOE, PICTURES3),
]


@pytest.mark.parametrize("model, flops, pictures", MODELS, ids=[m[0].model_type for m in MODELS])
def test_flops(model, flops, pictures):
    from putils.MFU import VeomniFlopsCounter

    counter = VeomniFlopsCounter(model, peak=376)
    assert counter.count_flops([100, 50]) == flops
    assert counter.estimate_flops([100, 50], 2.0) == (flops / 2e12, flops / 2e12 / 376)
    if pictures:
        assert counter.count_flops([100, 50], images_seqlens=[100, 36]) == flops + pictures
        assert counter.estimate_flops([100, 50], 1.0, images_seqlens=[])[0] == flops / 1e12


def test_llama_of_eight_billion():
    """An independent figure: 8.03 billion parameters, of which attention and products of 4096 tokens."""
    from putils.MFU import VeomniFlopsCounter

    model = N(model_type="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
              num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)  # fmt: skip
    flops = VeomniFlopsCounter(model).count_flops([4096])
    assert flops == pytest.approx(6 * 8.03e9 * 4096 + 12 * 32 * 4096 * 4096**2, rel=1e-3)


def test_unknown_models_and_chips_are_0_with_one_warning(capsys, monkeypatch):
    from putils import MFU, _messages

    monkeypatch.setattr(_messages, "_said", set())
    monkeypatch.delenv("PUTILS_PEAK_TFLOPS", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    counter = MFU.VeomniFlopsCounter(N(model_type="bert"))
    assert [counter.estimate_flops([8], 1.0) for _ in range(3)] == [(0.0, 0.0)] * 3
    assert capsys.readouterr().err.count("no formula for models of type 'bert'") == 1
    known = MFU.VeomniFlopsCounter(config("llama"))
    assert [known.estimate_flops([100, 50], 1.0) for _ in range(3)] == [(DENSE / 1e12, 0.0)] * 3
    assert capsys.readouterr().err.count("there is no NPU or GPU: MFU is 0") == 1
    # what a text model cannot use, what nobody knows, what a clock cannot say
    assert known.estimate_flops([100, 50], 1.0, images_seqlens=[5], other=1)[0] == DENSE / 1e12
    assert known.estimate_flops([100, 50], 0.0) == known.estimate_flops([1], float("nan")) == (0.0, 0.0)
    assert MFU.VeomniFlopsCounter(N(model_type="llama")).estimate_flops([1], 1.0) == (0.0, 0.0)
    said = capsys.readouterr().err
    for words in ("sees no images", "does not know 'other'", "cannot take 0.0 s", "FLOPs of a 'llama' are 0"):
        assert said.count(words) == 1
    assert "nan" not in said
    monkeypatch.setenv("PUTILS_PEAK_TFLOPS", "500")
    assert MFU.VeomniFlopsCounter(config("llama")).estimate_flops([100, 50], 1.0)[1] == DENSE / 5e14
    monkeypatch.setenv("PUTILS_PEAK_TFLOPS", "much")
    assert MFU.peak_tflops() == 0.0 and "is not a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize("lengths", [[0], [], [-5], [100, -1], [0, 0]])
def test_lengths_that_cannot_be_are_0_with_one_warning(capsys, monkeypatch, lengths):
    from putils import MFU, _messages

    monkeypatch.setattr(_messages, "_said", set())
    counter = MFU.VeomniFlopsCounter(config("llama"), peak=100.0)
    assert [counter.estimate_flops(lengths, 1.0) for _ in range(3)] == [(0.0, 0.0)] * 3
    assert counter.estimate_flops([-7], 1.0) == (0.0, 0.0)
    said = capsys.readouterr().err
    assert said == "[putils] FLOPs of a 'llama' are 0: lengths of sequences are above 0\n"
    assert counter.count_flops([100, 0]) == counter.count_flops([100]) > 0  # a sequence that is empty


def test_peaks_by_the_name_of_the_device():
    from putils.MFU import PEAKS, peak_of

    for name, peak in {
        "NVIDIA H200": 989.5, "NVIDIA H100 80GB HBM3": 989.5, "NVIDIA H100 PCIe": 756.5, "NVIDIA H20": 148.0,
        "NVIDIA A100-SXM4-80GB": 312.0, "NVIDIA A10": 125.0, "NVIDIA A10G": None, "NVIDIA L40S": 362.05,
        "NVIDIA L4": 121.0, "NVIDIA GB200": 2500.0, "NVIDIA B200": 2250.0, "Ascend910B2": 376.0,
        "Ascend910_9392": 376.0, "Tesla T4": None, "": None,
    }.items():  # fmt: skip
        assert peak_of(name) == peak, name
    assert all(source for _, _, source in PEAKS) and len({p[0] for p in PEAKS}) == len(PEAKS)


def test_the_chip_that_torch_uses(monkeypatch):
    from putils import MFU

    device = lambda name: N(is_available=lambda: True, current_device=lambda: 1, get_device_name=lambda i: name)
    monkeypatch.delenv("PUTILS_PEAK_TFLOPS", raising=False)
    monkeypatch.setitem(sys.modules, "torch", N(cuda=device("NVIDIA H200")))
    assert MFU.peak_tflops() == 989.5
    monkeypatch.setitem(sys.modules, "torch", N(cuda=device("NVIDIA H200"), npu=device("Ascend910B3")))
    assert MFU.peak_tflops() == 313.0


# --- lists of tensors ---


def safetensors(path, header, data=b"\0" * 64):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2, 2), at=0, size=16):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}


def test_tensors_of_a_model(tmp_path, monkeypatch, capsys):
    from putils.weight import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    first = {"__metadata__": {"format": "pt"}, "b": entry("BF16", (2, 4), 16), "a": entry()}
    safetensors(tmp_path / "m/model-00001-of-00002.safetensors", first)
    safetensors(tmp_path / "m/model-00002-of-00002.safetensors", {"c": entry("I64", (), 0, 8), "d": entry("NEW", (3,))})
    (tmp_path / "m/config.json").write_text("{}")
    assert main(["m"]) == 0
    assert (tmp_path / "model_shapes.txt").read_text() == (
        "a | (2, 2) | torch.float32\nb | (2, 4) | torch.bfloat16\nc | () | torch.int64\nd | (3,) | NEW\n"
    )
    said = capsys.readouterr().out
    assert "\nLoading tensors from: model-00001-of-00002.safetensors\n" in said
    assert "Tensor: a | Shape: (2, 2) | Dtype: torch.float32\n" in said and "4 tensors, 56 bytes\n" in said
    assert said.endswith("The list is in model_shapes.txt\n")
    os.unlink("model_shapes.txt")
    assert main(["m/model-00001-of-00002.safetensors", "--json", "-o", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [t["name"] for t in found["tensors"]] == ["a", "b"] and found["bytes"] == 32
    assert not os.path.exists("model_shapes.txt")


BAD_FILES = [
    b"", b"\x05", b"\xff" * 8, (2).to_bytes(8, "little") + b"{", (2).to_bytes(8, "little") + b"[]",
    (4).to_bytes(8, "little") + b"{{{{", (200000).to_bytes(8, "little") + b"[" * 200000,
    {"a": 3}, {"a": {}}, {"a": entry(shape=(-1, 2))}, {"a": entry(shape=(True, 4))}, {"a": entry(at=1000)},
    {"a": {**entry(), "data_offsets": [16, 0]}}, {"a": {**entry(), "data_offsets": [0]}}, {"a": entry(size=8)},
]  # fmt: skip


@pytest.mark.parametrize("content", BAD_FILES, ids=range(len(BAD_FILES)))
def test_files_that_are_no_safetensors(tmp_path, capsys, content):
    from putils.weight import main

    path = tmp_path / "bad.safetensors"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        safetensors(path, content)
    assert main([str(path), "-o", str(tmp_path / "list")]) == 11
    err = capsys.readouterr().err
    assert err.startswith("ERROR[11] '") or err.startswith("ERROR[11] the header of '"), err
    assert not (tmp_path / "list").exists()


def test_places_without_tensors(tmp_path, capsys):
    from putils.weight import main

    os.mkfifo(tmp_path / "fifo.safetensors")
    for path, status in ((tmp_path / "none", 10), (tmp_path / "fifo.safetensors", 11), ("/dev", 10)):
        assert main([str(path), "-o", "-"]) == status
        assert capsys.readouterr().err.startswith(f"ERROR[{status}] ")
    assert main([]) == 2 and capsys.readouterr().err.startswith("ERROR[2] ")
