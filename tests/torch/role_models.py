"""Models whose parameters have roles: those of real libraries built from small configurations, and some of our own."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, HIDDEN, VOCABULARY, HEADS = 32, 80, 101, 4


# Hugging Face, from configurations: nothing is downloaded.


def gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCABULARY, "n_positions": 24, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(n_inner=HIDDEN, **sizes, **special, **options))


def gpt2_untied():
    return gpt2(tie_word_embeddings=False)


def bert_config():
    from transformers import BertConfig

    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=HIDDEN,
        max_position_embeddings=24,
    )


def bert_classifier():
    from transformers import BertForSequenceClassification

    return BertForSequenceClassification(bert_config())


def bert_masked():
    from transformers import BertForMaskedLM

    return BertForMaskedLM(bert_config())


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS, "intermediate_size": HIDDEN}
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_labels=5, **sizes))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": WIDTH, "d_kv": 6, "d_ff": HIDDEN, "num_layers": 2, "num_heads": HEADS}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, **sizes))


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": WIDTH, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    return MixtralForCausalLM(MixtralConfig(vocab_size=VOCABULARY, num_key_value_heads=2, num_local_experts=3, **sizes))


# Of our own, laid out as people write them.


class Block(nn.Module):
    """Two convolutions and a way around them; the second is in groups, as in ResNeXt."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, groups=2, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 24, 2))
        self.depthwise = nn.Conv2d(24, 24, 3, groups=24)
        self.scale = nn.Parameter(torch.ones(24, 1, 1))
        self.fc = nn.Linear(24, 10)


class UNet(nn.Module):
    """Of a diffusion model: times and classes go in, attention works on pixels, transposed convolutions grow."""

    def __init__(self):
        super().__init__()
        self.time_mlp = nn.Sequential(nn.Linear(16, 48), nn.SiLU(), nn.Linear(48, 48))
        self.label_emb = nn.Embedding(10, 48)
        self.down = nn.ModuleList([nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, padding=1)])
        self.norm = nn.GroupNorm(4, 32)
        self.to_qkv = nn.Conv2d(32, 3 * 24, 1, bias=False)
        self.to_out = nn.Conv2d(24, 32, 1)
        self.up = nn.ConvTranspose2d(32, 16, 4, 2, padding=1)
        self.null_token = nn.Parameter(torch.zeros(1, 48))
        self.out = nn.Conv2d(16, 1, 3, padding=1)


class Recurrent(nn.Module):
    """A language model of LSTMs, its output layer as wide as the vocabulary and not tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(VOCABULARY, 24)
        self.lstm = nn.LSTM(24, 20, num_layers=2, bidirectional=True, proj_size=12)
        self.gru = nn.GRU(24, 20)
        self.cell = nn.LSTMCell(20, 10)
        self.attention = nn.MultiheadAttention(10, 2, add_bias_kv=True)
        self.cross = nn.MultiheadAttention(10, 2, kdim=6, vdim=8)
        self.decoder = nn.Linear(10, VOCABULARY)


class GraphLinear(nn.Module):
    """A linear layer as graph libraries have it: not a subclass of torch's."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))


class Graph(nn.Module):
    """Graph attention, then a convolution with a matrix for each relation."""

    def __init__(self):
        super().__init__()
        self.lin = GraphLinear(16, 4 * 6)
        self.att_src = nn.Parameter(torch.zeros(1, 4, 6))
        self.att_dst = nn.Parameter(torch.zeros(1, 4, 6))
        self.bias = nn.Parameter(torch.zeros(24))
        self.theta = nn.Parameter(torch.zeros(5, 24, 12))
        self.mixing = nn.Parameter(torch.zeros(7, 12))
        self.norm = nn.LayerNorm(12)
        self.readout = nn.Linear(12, 1)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.zeros(3, 16, 40))
        self.w2 = nn.Parameter(torch.zeros(3, 40, 16))
        self.b1 = nn.Parameter(torch.zeros(3, 40))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 3)
        self.experts = Experts()
        self.mlp = nn.ModuleList([nn.Linear(16, 40), nn.Linear(40, 16)])


class LoraLinear(nn.Module):
    """A linear layer with adapters, laid out and named as peft does it."""

    def __init__(self, base, rank=4):
        super().__init__()
        outputs, inputs = base.weight.shape if isinstance(base, nn.Linear) else base.weight.shape[::-1]
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(inputs, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, outputs, bias=False)})
        self.lora_magnitude_vector = nn.ParameterDict({"default": nn.Parameter(torch.ones(outputs))})


class LoraEmbedding(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_embedding_A = nn.ParameterDict({"default": nn.Parameter(torch.zeros(rank, base.num_embeddings))})
        self.lora_embedding_B = nn.ParameterDict({"default": nn.Parameter(torch.zeros(base.embedding_dim, rank))})


def lora():
    """GPT-2 whose weights are frozen, with adapters at its attention and its embedding."""
    model = gpt2(tie_word_embeddings=False).requires_grad_(False)
    model.transformer.wte = LoraEmbedding(model.transformer.wte)
    for block in model.transformer.h:
        block.attn.c_attn = LoraLinear(block.attn.c_attn)
        block.attn.c_proj = LoraLinear(block.attn.c_proj, rank=1)
    return model


class Parametrised(nn.Module):
    def __init__(self):
        super().__init__()
        from torch.nn.utils import parametrizations, parametrize

        self.normed = parametrizations.weight_norm(nn.Linear(16, 24))
        self.normed_conv = parametrizations.weight_norm(nn.Conv1d(6, 8, 3))
        self.bounded = parametrizations.spectral_norm(nn.Linear(24, 12))
        self.rotation = parametrizations.orthogonal(nn.Linear(12, 12))
        self.symmetric = nn.Linear(12, 12)
        parametrize.register_parametrization(self.symmetric, "weight", Symmetric())
        self.gates = nn.GRU(12, 5)
        parametrizations.weight_norm(self.gates, "weight_hh_l0")


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Vision(nn.Module):
    """A vision transformer with a joined projection, its tables of positions under the names that people give them."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 32))
        self.register_tokens = nn.Parameter(torch.zeros(1, 4, 32))
        self.pos_embed = nn.Parameter(torch.zeros(1, 64, 32))
        self.relative_position_bias_table = nn.Parameter(torch.zeros(49, 4))
        self.rope = nn.Embedding(64, 32)
        self.patch_embed = nn.Conv2d(3, 32, 4, 4)
        self.qkv = nn.Linear(32, 96)
        self.qkv_proj = nn.Linear(32, 64)
        self.kv_proj = nn.Linear(32, 48)
        self.gate_up_proj = nn.Linear(32, 80)
        self.proj = nn.Linear(32, 32)
        self.ls1 = nn.Parameter(torch.ones(32))
        self.logit_scale = nn.Parameter(torch.ones(()))
        self.bilinear = nn.Bilinear(6, 7, 5)
        self.head = nn.Linear(32, 10)


class Shared(nn.Module):
    """The embedding is the output layer, and one linear layer is used under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = self.first
        self.output = nn.Linear(16, VOCABULARY, bias=False)
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.output.weight = self.embedding.weight


class Bytes(nn.Module):
    """All its layers are as wide as the vocabulary, and only the last one is its output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, 64)
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.last = nn.Linear(64, 64)


MODELS = {
    "GPT-2": gpt2,
    "GPT-2 untied": gpt2_untied,
    "BERT classifier": bert_classifier,
    "BERT masked": bert_masked,
    "ViT": vit,
    "T5": t5,
    "Mixtral": mixtral,
    "ResNet": ResNet,
    "U-Net": UNet,
    "LSTM": Recurrent,
    "graph": Graph,
    "mixture": Mixture,
    "LoRA": lora,
    "parametrised": Parametrised,
    "vision": Vision,
    "shared": Shared,
    "bytes": Bytes,
}
