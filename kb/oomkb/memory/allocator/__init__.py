"""PyTorch's CUDA caching allocator, replayed: what a sequence of allocations and frees reserves."""
