"""A CPU as a platform of verl's and vLLM's, and vLLM's workers of both kinds. On GPUs only ``gpu_vllm`` is imported."""
