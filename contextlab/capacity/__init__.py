"""What a model needs and what a context window holds: pure arithmetic over model metadata.

    model.gguf ──▶ gguf.read_gguf ─▶ gguf_shape.from_gguf ─┐                    ┌▶ kv              bytes; what fits
    config.json ─▶ config.read_config ─▶ config_shape ─────┴▶ shape.ModelShape ─┼▶ limits          by layer; which binds
                                                                                └▶ contradictions  where they disagree

Nothing here loads weights, talks to a server or needs more than the standard library.
"""
