"""The catalogues: GPUs, models and framework defaults, each value with its source. Works offline."""
