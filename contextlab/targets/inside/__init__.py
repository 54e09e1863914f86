"""Behind `hf:`: what is loaded, measured and provoked inside the probe's own process. No target in itself."""
