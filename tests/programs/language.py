"""Small language models as publishers export them: by ExecuTorch's `export_llm`, and with the static caches of
transformers. Weights are random. Each takes a prompt, then one token after another."""

import json
import tempfile
from pathlib import Path

import torch
from harness import Method, Program, large, program, skipped

PROMPT, TOKENS, VOCABULARY = 5, 32, 32

LLAMA = {
    **{"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "head_dim": 8, "hidden_dim": 32},
    **{"vocab_size": VOCABULARY, "rope_theta": 500000.0, "norm_eps": 1e-5},
}
# Groups of 4-bit weights have 32 elements.
WIDE = {"dim": 32, "hidden_dim": 64}
QWEN2 = {**LLAMA, "attention_qkv_bias": True, "use_hf_rope": True, "rope_theta": 1000000.0}
QWEN3 = {**LLAMA, "use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True}
QWEN35 = {
    **QWEN3,
    "layer_types": ["linear_attention", "full_attention"],
    **{"use_q_gate": True, "rms_norm_add_unit_offset": True, "partial_rotary_factor": 0.5},
    **{"linear_key_head_dim": 4, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
}
GEMMA3 = {
    **QWEN3,
    **{"post_attention_norm": True, "post_ffn_norm": True, "act_fn": "gelu_approx", "embedding_scale_factor": 5.65},
    **{"rms_norm_add_unit_offset": True, "final_logit_softcapping": 30.0},
}
SMOLLM3 = {**LLAMA, "use_hf_rope": True, "no_rope_layer_interval": 2}
LFM2 = {
    **LLAMA,
    "layer_types": ["conv", "full_attention", "conv"],
    **{"n_layers": 3, "use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True},
}
PHI4 = {**LLAMA, "use_hf_rope": True, "partial_rotary_factor": 0.75}


def calls(prompt=PROMPT):
    """A prompt at once, then token by token. Without a prompt all tokens come one by one."""
    tokens = torch.randint(0, VOCABULARY, (1, TOKENS))
    starts = [0, *range(prompt, TOKENS)] if prompt > 1 else range(TOKENS)
    return [(tokens[:, at : prompt if at < prompt and prompt > 1 else at + 1], torch.tensor([at])) for at in starts]


def exported(params, kind="llama3_2", prompt=PROMPT, **settings):
    """A program of `export_llm`. `settings` are those of its configuration, by their full names."""
    # The runtime gets their kernels.
    import executorch.kernels.quantized  # noqa: F401
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

    cases = calls(prompt)

    def export():
        from executorch.examples.models.llama import export_llama_lib, llama_transformer, model_args
        from executorch.extension.llm.export.config import llm_config
        from omegaconf import OmegaConf

        given = {
            "base.model_class": kind,
            **{"model.use_kv_cache": True, "model.use_sdpa_with_kv_cache": True},
            **{"model.enable_dynamic_shape": prompt > 1, "model.dtype_override": "fp32"},
            **{"export.max_seq_length": 40, "export.max_context_length": 40},
            **{"backend.xnnpack.enabled": True, "backend.xnnpack.extended_ops": True},
            **settings,
        }
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "params.json").write_text(json.dumps(params))
            network = llama_transformer.construct_transformer(
                model_args.ModelArgs(max_seq_len=40, max_context_len=40, **params)
            )
            torch.save(varied(network).state_dict(), folder / "weights.pth")
            given["base.params"] = str(folder / "params.json")
            given["base.checkpoint"] = str(folder / "weights.pth")
            given["export.output_name"] = str(folder / "out.pte")
            config = OmegaConf.structured(llm_config.LlmConfig)
            for name, value in given.items():
                OmegaConf.update(config, name, value)
            manager = export_llama_lib._export_llama(OmegaConf.to_object(config))
        return manager.export_program

    method = Method(None, cases, quantize=True)
    return Program("language", {"forward": method}, sequence=True, exporter=export)


def varied(network):
    """Gives norms weights that differ from one, so that each of them counts."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return network


@program
def llama_exported():
    return exported({**LLAMA, "use_scaled_rope": True})


@large
def llama_exported_portable():
    """Without the custom operators, and without a delegate."""
    return exported(LLAMA, **{"model.use_sdpa_with_kv_cache": False, "backend.xnnpack.enabled": False})


@large
def llama_exported_steps():
    """Of a fixed size: one token a run."""
    return exported(LLAMA, prompt=1)


@program
def llama_exported_8da4w():
    return exported(
        {**LLAMA, **WIDE},
        **{"quantization.qmode": "8da4w", "quantization.group_size": 32, "quantization.embedding_quantize": "4,32"},
    )


@program
def llama_exported_int8_cache():
    return exported(LLAMA, **{"model.quantize_kv_cache": True})


@program
def llama_exported_window():
    """Layers that see only the last tokens, in a cache that is a ring."""
    return exported(LLAMA, prompt=1, **{"model.local_global_attention": [8, 0]})


@program
def llama_exported_half():
    return exported(LLAMA, **{"model.dtype_override": "fp16", "backend.xnnpack.enabled": False})


@program
def qwen2_exported():
    return exported(QWEN2, "qwen2_5_0_5b")


@large
def qwen3_exported():
    return exported(QWEN3, "qwen3_0_6b")


@program
def qwen3_exported_8da4w():
    return exported(
        {**QWEN3, **WIDE},
        "qwen3_0_6b",
        **{"quantization.qmode": "8da4w", "quantization.group_size": 32, "quantization.embedding_quantize": "8,0"},
    )


@program
def qwen35_exported():
    """Layers of linear attention: their state is a matrix and the last inputs of a convolution."""
    return exported(QWEN35, "qwen3_5_0_8b")


@program
def gemma3_exported():
    return exported(GEMMA3, "qwen3_0_6b")


@large
def smollm3_exported():
    return exported(SMOLLM3, "smollm2")


@large
def phi4_exported():
    return exported(PHI4, "phi_4_mini")


@program
def lfm2_exported():
    return exported(LFM2, "lfm2_350m")


@program
def lfm2_exported_8da4w():
    return exported(
        {**LFM2, **WIDE},
        "lfm2_350m",
        **{"quantization.qmode": "8da4w", "quantization.group_size": 32, "quantization.embedding_quantize": "8,0"},
    )


SMALL = {
    **{"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def of_transformers(kind, configuration=None, quantize=False, **settings):
    """A program with a static cache of transformers, one token a run."""
    cases = calls(1)

    def export():
        import transformers
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
            XnnpackDynamicallyQuantizedPartitioner,
            XnnpackPartitioner,
        )
        from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
        from executorch.exir.passes import MemoryPlanningPass
        from transformers.integrations.executorch import TorchExportableModuleForDecoderOnlyLM

        config = getattr(transformers, configuration or f"{kind}Config")(**{**SMALL, **settings})
        network = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        varied(network)
        network.generation_config = transformers.GenerationConfig(
            use_cache=True, cache_implementation="static", max_length=40, cache_config={"batch_size": 1, "max_cache_len": 40}
        )
        if quantize:
            from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
            from torchao.quantization.granularity import PerGroup

            quantize_(network, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
        module = TorchExportableModuleForDecoderOnlyLM(network, batch_size=1, max_cache_len=40)
        graph = module.export(input_ids=cases[0][0], cache_position=cases[0][1])
        partitioners = [XnnpackDynamicallyQuantizedPartitioner()] if quantize else []
        edge = to_edge_transform_and_lower(
            graph,
            partitioner=[*partitioners, XnnpackPartitioner()],
            compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
        )
        passes = MemoryPlanningPass(alloc_graph_input=False)
        return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=passes))

    method = Method(None, cases, quantize=True)
    return Program("language", {"forward": method}, sequence=True, exporter=export)


@large
def llama_static_cache():
    return of_transformers("Llama")


@program
def llama_static_cache_8da4w():
    return of_transformers("Llama", quantize=True, hidden_size=32, intermediate_size=64)


@large
def qwen3_static_cache():
    return of_transformers("Qwen3")


@program
def gemma3_static_cache():
    """Layers that see only the last tokens, and others."""
    return of_transformers(
        "Gemma3",
        "Gemma3TextConfig",
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=8,
    )


@program
def smollm3_static_cache():
    return of_transformers("SmolLM3", no_rope_layers=[1, 0])


skipped("LFM2 with a static cache", "transformers exports static caches of attention layers only")
